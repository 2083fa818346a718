#!/usr/bin/env python3
"""bench/experiment runs, measures what it says, and takes everything down again. How near the times come
to the cost model is not judged: this machine does other things too."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
FOLDER = SOURCE / "bench" / "experiment"
sys.path[:0] = [str(FOLDER), str(SOURCE / "bench" / "pictures")]

import learning  # noqa: E402

RECORDS = [{"step": 1, "train_seconds": 0.5, "loss": 2.0, "time": 100.5},
           {"step": 10, "train_seconds": 5.0, "loss": 1.0, "time": 105.0}, {"step": 10, "accuracy": 0.7, "time": 107.0},
           {"step": 20, "train_seconds": 10.0, "loss": 0.5, "time": 112.0}, {"step": 20, "accuracy": 0.9, "time": 114.0}]


def traffic(time, ps_0, ps_1):
    return {"time": time, "ps": [{"task": task, "wireReceivedBytes": count, "wireTransmittedBytes": 2 * count}
                                 for task, count in (("ps-0", ps_0), ("ps-1", ps_1))]}


class Learning(unittest.TestCase):
    def run_of(self, placement, target=0.88):
        samples = [traffic(99, 0, 0), traffic(101, 0, 0), traffic(103, 2_000_000, 1_000_000),
                   traffic(105, 6_000_000, 1_000_000), traffic(120, 7_000_000, 9_000_000)]
        return learning.told(placement, RECORDS, samples, target)

    def test_what_is_told_of_a_run(self):
        run = self.run_of("balanced")
        self.assertEqual((20, 20 * 7 * 32, 10.0), tuple(run["reached"][name] for name in ("updates", "images", "seconds")))
        self.assertEqual([[0.5, 2.0], [5.0, 1.0], [10.0, 0.5]], run["losses"])
        # Between samples of the time of training, in and out together.
        self.assertEqual([[3.0, 3e6], [5.0, 6e6]], run["rates"]["ps-0"])
        self.assertEqual([[3.0, 1.5e6], [5.0, 0.0]], run["rates"]["ps-1"])
        self.assertIsNone(self.run_of("balanced", 0.95)["reached"])

    def test_curves_are_thinned_by_means(self):
        long = [(i, float(i % 2)) for i in range(10 * learning.POINTS)]
        self.assertEqual([0.5] * learning.POINTS, [y for _, y in learning.thinned(long)])

    def test_table_and_picture(self):
        results = {"machine": "m", "date": "d", "load": 0.1, "link": "1Gbit", "target": 0.88, "workers": 7, "batch": 32,
                   "runs": [self.run_of("roundrobin", 0.95), self.run_of("balanced")]}
        text = learning.table(results)
        self.assertIn("| RoundRobin | 0.500 s | not reached | | 0.900 at the end | 4.5 | 0.8 |", text)
        self.assertIn("| Balanced | 0.500 s | 20 | 4k | 10 | 4.5 | 0.8 |", text)
        drawn = xml.etree.ElementTree.fromstring(learning.svg(results))
        words = [element.text for element in drawn.iter() if element.tag.endswith("text")]
        self.assertEqual([1, 1], [words.count(name) for name in ("RoundRobin", "Balanced")])


class Run(unittest.TestCase):
    def experiment(self, out, *flags):
        """Its results and what it has printed; its namespaces are gone."""
        running = subprocess.Popen([sys.executable, "-B", FOLDER / "experiment.py", "--bin", os.environ["TRAINYARD_BIN"],
                                    "--out", out, "--quick", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        printed, errors = running.communicate(timeout=550)
        if running.returncode == 77:
            self.skipTest(errors.strip())
        self.assertEqual(0, running.returncode, errors + printed)
        self.assertEqual([], [path.name for path in pathlib.Path("/run/netns").glob(f"trainyard-{running.pid}-*")])
        self.assertIn((pathlib.Path(out) / "results.md").read_text(), printed)
        return json.loads((pathlib.Path(out) / "results.json").read_text())

    def test_links(self):
        with tempfile.TemporaryDirectory() as out:
            runs = self.experiment(out, "--only", "links")["links"]["runs"]
            self.assertEqual(["roundrobin", "fixedsize", "balanced"], [r["placement"] for r in runs])
            for run in runs:
                # Seven workers' gradients cannot pass a link faster than it is.
                self.assertGreater(run["measured_seconds"], 0.9 * run["communication_seconds"], run)
            step = {run["placement"]: run["communication_seconds"] for run in runs}
            self.assertGreater(step["roundrobin"], step["balanced"])
            page = (pathlib.Path(out) / "mnist.html").read_text()
            self.assertTrue(all(f"mnist-{placement}" in page for placement in step), page[:1000])

    def test_learning(self):
        with tempfile.TemporaryDirectory() as out:
            found = self.experiment(out, "--only", "learning", "--placement", "balanced", "--target", "0.3")["learning"]
            run, = found["runs"]
            self.assertGreaterEqual(run["reached"]["accuracy"], 0.3, run)
            self.assertLess(run["losses"][-1][1], run["losses"][0][1])
            xml.etree.ElementTree.parse(pathlib.Path(out) / "learning.svg")


if __name__ == "__main__":
    unittest.main(verbosity=2)
