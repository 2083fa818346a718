#!/usr/bin/env python3
"""The examples whose update the job makes, as a user starts them from their job files: in PyTorch on parameter servers
and in a ring, with tables of embeddings, and in NumPy."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import made_up_flights
from example_runs import BIN, LIMIT, SOURCE, ExampleTest, changed_lines, environment

MOST_CHANGED = 10


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
        made_up_flights.write(run / "train.csv", 4000)
        made_up_flights.write(run / "eval.csv", 2000)
        told = self.result("examples/ctr", "flights_program", *flags)
        self.assertGreater(told["auc"], 0.65)

    def test_in_numpy(self):
        self.assertGreater(self.accuracy("examples/numpy", "softmax"), 0.82)
        records = (self.folder / "softmax-0" / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        told = [record["training_accuracy"] for record in map(json.loads, records) if "loss" in record]
        self.assertTrue(told)
        self.assertLess(told[0], 0.5)  # of weights that are zeros all labels are alike
        self.assertGreater(sum(told[-3:]) / 3, 0.7)


if __name__ == "__main__":
    unittest.main(verbosity=2)
