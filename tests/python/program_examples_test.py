#!/usr/bin/env python3
"""The examples whose update the job makes, as a user starts them from their job files: in PyTorch on parameter servers
and in a ring, with tables of embeddings, and in NumPy."""
import csv
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

from example_runs import BIN, LIMIT, SOURCE, ExampleTest, changed_lines, environment

MOST_CHANGED = 10
FLIGHTS = ["carrier", "flight", "tailnum", "origin", "dest", "route", "hour", "weekday", "distance", "minutes", "late"]


def make_flights(path, count):
    """As flights.py writes them: which are late the carrier decides, and the hour."""
    draw = random.Random(path.name)
    with open(path, "w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(FLIGHTS)
        for _ in range(count):
            carrier, hour = draw.randrange(8), draw.randrange(24)
            late = draw.random() < (0.1 + 0.1 * carrier if hour > 11 else 0.1)
            lines.writerow([f"c{carrier}", draw.randrange(500), f"n{draw.randrange(300)}", "JFK", f"d{draw.randrange(50)}",
                            f"r{draw.randrange(90)}", hour, draw.randrange(7), draw.random(), draw.random(), int(late)])


class ProgramExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="trainyard-examples-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.environment = environment(cls.folder, ExampleTest.steps)

    def test_few_lines_change(self):
        for script in ("parameter_server.py", "elastic.py"):
            changed = changed_lines("plain_loader.py", script)
            self.assertLessEqual(len(changed), MOST_CHANGED, changed)

    def accuracy(self, folder, name, *flags):
        return self.result(folder, name, *flags)["accuracy"]

    def result(self, folder, name, *flags):
        """What the job says of its last evaluation."""
        text = (SOURCE / folder / f"{name}.yaml").read_text(encoding="utf-8")
        text = text.replace(f"[python3, {name}.py", f"[{sys.executable}, {SOURCE / folder / name}.py")
        run = self.folder / f"{name}-{len(flags)}"
        run.mkdir(exist_ok=True)
        (run / "job.yaml").write_text(text, encoding="utf-8")
        done = subprocess.run([BIN / "trainyard", "run", "-f", run / "job.yaml", "--dir", run / "run", *flags],
                              env=self.environment, cwd=run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=LIMIT)
        found = re.search(r"result: succeeded .*", done.stdout)
        self.assertTrue(done.returncode == 0 and found, done.stdout)
        return {name: float(value) for name, value in re.findall(r"(accuracy|auc)=(\S+)", found[0])}

    def test_on_parameter_servers(self):
        self.assertGreater(self.accuracy("examples/pytorch", "parameter_server"), 0.74)

    def test_in_a_ring(self):
        self.assertGreater(self.accuracy("examples/pytorch", "parameter_server", "--set", "strategy=AllReduce",
                                         "--set", "ps=", "--set", "worker.replicas=3"), 0.74)

    def test_with_torchs_optimizer(self):
        self.assertGreater(self.accuracy("examples/pytorch", "elastic"), 0.74)

    def test_with_tables_of_embeddings(self):
        flags = ["--set", "training.passes=10", "--set", "training.batchSize=64"]
        run = self.folder / f"flights_program-{len(flags)}" / "flights"
        run.mkdir(parents=True)
        make_flights(run / "train.csv", 4000)
        make_flights(run / "eval.csv", 2000)
        told = self.result("examples/ctr", "flights_program", *flags)
        self.assertGreater(told["auc"], 0.65)

    def test_in_numpy(self):
        self.assertGreater(self.accuracy("examples/numpy", "softmax"), 0.82)


if __name__ == "__main__":
    unittest.main(verbosity=2)
