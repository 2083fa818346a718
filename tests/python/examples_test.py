#!/usr/bin/env python3
"""The examples with torch, as a user starts them: by hand, under torchrun, under `trainyard run`, from a job file, and
with a program killed in the middle. The weights must be those that gloo gives."""
import difflib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import torch
except ImportError:
    print("torch is not installed (Debian: python3-torch)")
    sys.exit(77)

from ranks import free_port

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
EXAMPLES = SOURCE / "examples/pytorch"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
STEPS = 100
LIMIT = 180  # seconds; against hangs only


class ExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="trainyard-pytorch-")
        cls.folder = pathlib.Path(cls.temporary.name)
        # As the wheel has it: the library in the package.
        site = cls.folder / "site"
        shutil.copytree(SOURCE / "python/trainyard", site / "trainyard", ignore=shutil.ignore_patterns("*.pyc"))
        (site / "trainyard/libtrainyard.so").symlink_to((BIN.parent / "lib/libtrainyard.so").resolve())
        cls.environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "STEPS": str(STEPS),
                           "PYTHONDONTWRITEBYTECODE": "1"}
        cls.gloo = cls.weights_of(cls("test_one_line_of_ddp_changes").by_hand("ddp_gloo.py", "gloo"))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @staticmethod
    def weights_of(checkpoint):
        return torch.load(checkpoint)["net"]

    def expect_gloos(self, checkpoint):
        weights = self.weights_of(checkpoint)
        for name, expected in self.gloo.items():
            self.assertLessEqual((weights[name] - expected).abs().max().item(), 1e-6, name)

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
        folder = self.folder / name
        folder.mkdir()
        port = free_port()
        ranks = []
        for rank in range(2):
            environment = {**self.environment, "CHECKPOINT": str(folder / "fashion.pt"), "RANK": str(rank),
                           "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            ranks.append(subprocess.Popen([sys.executable, script], cwd=EXAMPLES, env=environment, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        try:
            for rank in ranks:
                output = rank.communicate(timeout=LIMIT)[0]
                self.assertEqual(rank.returncode, 0, output)
        finally:
            for rank in ranks:
                rank.kill()
        return folder / "fashion.pt"

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
        self.assertEqual(torch.load(folder / "fashion.pt")["step"], steps)
        self.assertIn("worker-1 is restarted", output)
        # The other one lost its peer and is started again with it: one disruption.
        self.assertIn("Succeeded, restarts 1", output)


if __name__ == "__main__":
    if not DATA.exists():
        print(f"{DATA} is missing (Debian: dataset-fashion-mnist)")
        sys.exit(77)
    unittest.main(verbosity=2)
