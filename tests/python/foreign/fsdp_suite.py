#!/usr/bin/env python3
"""examples/pytorch/fsdp.py as a user starts it; its weights are, bit for bit, those of FSDP2 over gloo, since a sum of
two has one order. For a torch that has FSDP2: with_newest.py foreign/fsdp_suite.py"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import example_runs  # noqa: E402
from example_runs import ExampleTest  # noqa: E402


class FsdpTest(ExampleTest):
    gloos = "fsdp_gloo.py"

    def test_by_hand(self):
        self.expect_gloos(self.by_hand("fsdp.py", "hand"), 0)

    def test_alone(self):
        """One rank sums over all samples of a step in another order than two."""
        alone = self.by_hand("fsdp.py", "alone", 1)
        plain = self.by_hand("plain.py", "plain", 1)
        weights, expected = (example_runs.saved(each)["net"] for each in (alone, plain))
        self.assertEqual(0, example_runs.largest_difference(weights, expected))
        self.expect_gloos(alone, 1e-4)

    def test_three_ranks(self):
        ours, gloos = (example_runs.saved(self.by_hand(script, f"three-{script}", 3))["net"]
                       for script in ("fsdp.py", "fsdp_gloo.py"))
        self.assertLessEqual(example_runs.largest_difference(ours, gloos), 1e-6)

    def test_under_torchrun(self):
        self.expect_gloos(self.under_torchrun("fsdp.py"), 0)

    def test_under_trainyard_run(self):
        self.expect_gloos(self.under_trainyard_run("fsdp.py"), 0)

    def test_from_a_job_file(self):
        self.expect_gloos(self.from_a_job_file("fsdp.py"), 0)

    def test_a_killed_program_goes_on_from_the_scripts_checkpoint(self):
        steps = 10 * self.steps
        gloos = example_runs.by_hand(self.gloos, self.folder / "gloo-long", {**self.environment, "STEPS": str(steps)})
        ours = self.go_on_after_a_kill("fsdp.py", steps)
        weights, expected = (example_runs.saved(each)["net"] for each in (ours, gloos))
        self.assertEqual(0, example_runs.largest_difference(weights, expected))


if __name__ == "__main__":
    unittest.main(verbosity=2)
