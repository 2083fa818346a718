#!/usr/bin/env python3
"""PyTorch models of the user's own with EmbeddingBag and Embedding over the job's tables: the weights are those of
torch's own layers, with any number of servers, whoever dies."""
import os
import pathlib
import re
import signal
import unittest

import program_runs
from program_runs import ProgramRuns

TABLES = """tables:
  - {name: words, dim: 4, rows: {max: 1000}}
  - {name: users, dim: 4, rows: {max: 1000}}"""


class EmbeddingTest(ProgramRuns):
    program = pathlib.Path(__file__).parent / "embedding_program.py"
    optimizer = "{name: SGD, learningRate: 0.1}"
    steps, batch = 400, 32

    def start(self, name, **given):
        return super().start(name, fields=TABLES, **given)

    def test_the_weights_are_those_of_torchs_own_layers(self):
        for more in ("", ",ahead", ",parts"):
            run, launcher = self.start(f"twin{more}", workers=1, EMBEDDING=f"twin{more}")
            output = self.finish(run, launcher)
            self.trained(run, output)
            told = float(re.search(r" auc=(\S+) calibration=\d", output)[1])
            counted = float(re.findall("AUC of this worker's samples: (.*)", self.logs(run))[-1])
            self.assertAlmostEqual(told, counted, delta=0.001)
            self.assertGreater(told, 0.8)
            differs = re.search(r"twin differs by (\S+)", self.logs(run))
            self.assertTrue(differs, self.logs(run))
            self.assertLess(float(differs[1]), 1e-5)
            self.assertIn("EmbeddingBag('words', dim=4)", self.logs(run))

    def test_servers_and_reading_ahead_change_nothing(self):
        for name, given in {"one": {"servers": 1}, "three": {"servers": 3}, "ahead": {"EMBEDDING": "ahead,workers"}}.items():
            run, launcher = self.start(name, **given)
            self.trained(run, self.finish(run, launcher), self.undisturbed())

    def test_a_killed_program_costs_no_step(self):
        expected = self.undisturbed()
        run, launcher = self.start("killed", EMBEDDING="ahead,hold")
        self.wait_until_held(run)
        os.kill(self.child(run, "worker-1"), signal.SIGKILL)
        (run.parent / "go").touch()
        self.trained(run, self.finish(run, launcher), expected)

    def test_a_layer_that_is_left_out_is_named(self):
        run, launcher = self.start("stray", EMBEDDING="stray", retries=0)
        launcher.communicate(timeout=120)
        self.assertIn("belongs to no model: it must be a part of the one that ServerOptimizer is given", self.logs(run))


if __name__ == "__main__":
    program_runs.require_torch()
    unittest.main(verbosity=2)
