#!/usr/bin/env python3
"""The examples with torch, as a user starts them: by hand, under torchrun, under `trainyard run`, from a job file, and
with a program killed in the middle. The weights must be those that gloo gives. What FSDP2 does is
foreign/fsdp_suite.py's, for it takes a newer torch than Debian's."""
import subprocess
import sys
import unittest

import example_runs
from example_runs import EXAMPLES, ExampleTest, changed_lines

OLDEST_WITH_FSDP2 = (2, 6)


class ExamplesTest(ExampleTest):
    gloos = "ddp_gloo.py"

    def test_one_line_of_ddp_changes(self):
        # And an import, which torch from 2.14 on does without.
        self.assertLessEqual(len(changed_lines("ddp_gloo.py", "ddp.py")), 2)

    def test_one_line_of_fsdp_changes(self):
        self.assertLessEqual(len(changed_lines("fsdp_gloo.py", "fsdp.py")), 2)

    def test_few_lines_change_for_horovods_names(self):
        changed = changed_lines("plain.py", "horovod_names.py")
        self.assertLessEqual(len(changed), 6, changed)

    def test_ddp_by_hand(self):
        self.expect_gloos(self.by_hand("ddp.py", "hand"))

    def test_horovods_names_by_hand(self):
        self.expect_gloos(self.by_hand("horovod_names.py", "horovod"))

    def test_under_torchrun(self):
        self.expect_gloos(self.under_torchrun("ddp.py"))

    def test_under_trainyard_run(self):
        for script in ("ddp.py", "horovod_names.py"):
            self.expect_gloos(self.under_trainyard_run(script))

    def test_from_a_job_file(self):
        self.expect_gloos(self.from_a_job_file("ddp.py"))

    def test_a_killed_program_goes_on_from_the_scripts_checkpoint(self):
        self.go_on_after_a_kill("ddp.py", 20 * self.steps)

    def test_fsdp_says_which_torch_it_needs(self):
        version = example_runs.torch.__version__
        if tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_WITH_FSDP2:
            self.skipTest("this torch has FSDP2")
        for script in ("fsdp.py", "fsdp_gloo.py"):
            done = subprocess.run([sys.executable, script], cwd=EXAMPLES, env=self.environment,
                                  capture_output=True, text=True, timeout=example_runs.LIMIT)
            self.assertEqual((done.returncode, done.stderr.splitlines()),
                             (1, [f"fully_shard needs torch 2.6 or newer; this is {version}"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
