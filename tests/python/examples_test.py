#!/usr/bin/env python3
"""The examples with torch, as a user starts them: by hand, under torchrun, under `trainyard run`, from a job file, and
with a program killed in the middle. The weights must be those that gloo gives."""
import difflib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import example_runs
from example_runs import BIN, EXAMPLES, LIMIT
from ranks import free_port

STEPS = 100


class ExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="trainyard-pytorch-")
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.environment = example_runs.environment(cls.folder, STEPS)
        checkpoint = example_runs.by_hand("ddp_gloo.py", cls.folder / "gloo", cls.environment)
        cls.gloo = example_runs.saved(checkpoint)["net"]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def expect_gloos(self, checkpoint):
        weights = example_runs.saved(checkpoint)["net"]
        self.assertLessEqual(example_runs.largest_difference(weights, self.gloo), 1e-6)

    def run_in(self, name, command, **variables):
        """The command in a folder of its own, of which the checkpoint's path is returned."""
        folder = self.folder / name
        folder.mkdir()
        environment = {**self.environment, "CHECKPOINT": str(folder / "fashion.pt"), **variables}
        done = subprocess.run(list(map(str, command)), cwd=EXAMPLES, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stdout)
        return folder / "fashion.pt"

    def by_hand(self, script, name):
        return example_runs.by_hand(script, self.folder / name, self.environment)

    def changed(self, plain, ours):
        """Lines of `ours` that `plain` has not, but for what says how to start it."""
        lines = [(EXAMPLES / name).read_text(encoding="utf-8").splitlines()[1:] for name in (plain, ours)]
        return [line[2:] for line in difflib.ndiff(*lines) if line.startswith("+ ")]

    def test_one_line_of_ddp_changes(self):
        # And an import, which torch from 2.14 on does without.
        self.assertLessEqual(len(self.changed("ddp_gloo.py", "ddp.py")), 2)

    def test_few_lines_change_for_horovods_names(self):
        changed = self.changed("plain.py", "horovod_names.py")
        self.assertLessEqual(len(changed), 8, changed)

    def test_ddp_by_hand(self):
        self.expect_gloos(self.by_hand("ddp.py", "hand"))

    def test_horovods_names_by_hand(self):
        self.expect_gloos(self.by_hand("horovod_names.py", "horovod"))

    def test_under_torchrun(self):
        # What torch 1.13 does by itself with their output is refused by Python 3.11: -r, -t.
        self.expect_gloos(self.run_in("torchrun", [
            sys.executable, "-m", "torch.distributed.run", "-r", "1", "-t", "1", "--nproc_per_node", "2", "--master_port", free_port(),
            "ddp.py"]))

    def test_under_trainyard_run(self):
        for script in ("ddp.py", "horovod_names.py"):
            run = self.folder / f"run-{script}"
            self.expect_gloos(self.run_in(f"np-{script}", [
                BIN / "trainyard", "run", "-np", "2", "--dir", run, "--", sys.executable, script]))

    def job(self, name, steps):
        folder = self.folder / name
        folder.mkdir()
        text = (EXAMPLES / "ddp.yaml").read_text(encoding="utf-8")
        text = text.replace("[python3, ddp.py]", f"[{sys.executable}, {EXAMPLES}/ddp.py]")
        (folder / "job.yaml").write_text(text, encoding="utf-8")
        environment = {**self.environment, "CHECKPOINT": str(folder / "fashion.pt"), "STEPS": str(steps)}
        return folder, subprocess.Popen([BIN / "trainyard", "run", "-f", folder / "job.yaml", "--dir", folder / "run"],
                                        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)

    def test_from_a_job_file(self):
        folder, launcher = self.job("job", STEPS)
        output = launcher.communicate(timeout=LIMIT)[0]
        self.assertEqual(launcher.returncode, 0, output)
        self.expect_gloos(folder / "fashion.pt")

    def test_a_killed_program_goes_on_from_the_scripts_checkpoint(self):
        steps = 20 * STEPS
        folder, launcher = self.job("killed", steps)
        try:
            deadline = time.monotonic() + LIMIT
            while not (folder / "fashion.pt").exists():
                self.assertLess(time.monotonic(), deadline, "no checkpoint")
                self.assertIsNone(launcher.poll(), "it ended early")
                time.sleep(0.01)
            agent = (folder / "run/tasks/worker-1/agent.json").read_text(encoding="utf-8")
            os.kill(json.loads(agent)["childPid"], signal.SIGKILL)
            output = launcher.communicate(timeout=LIMIT)[0]
        finally:
            launcher.kill()
        self.assertEqual(launcher.returncode, 0, output)
        self.assertEqual(example_runs.saved(folder / "fashion.pt")["step"], steps)
        self.assertIn("worker-1 is restarted", output)
        # The other one lost its peer and is started again with it: one disruption.
        self.assertIn("Succeeded, restarts 1", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
