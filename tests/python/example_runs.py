"""The scripts of examples/pytorch as a user starts them: by hand, under torchrun, under `trainyard run`, from a job
file, with a program killed in the middle; and the weights that they leave.

Importing this ends the process as a skipped test where torch or the data are missing.
"""
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
LIMIT = 180  # seconds; against hangs only

if not DATA.exists():
    print(f"{DATA} is missing (Debian: dataset-fashion-mnist)")
    sys.exit(77)


def library():
    return (BIN.parent / "lib/libtrainyard.so").resolve()


def environment(folder, steps):
    """Variables by which scripts find the package. It is put into the folder as the wheel has it: with the library."""
    site = folder / "site"
    shutil.copytree(SOURCE / "python/trainyard", site / "trainyard", ignore=shutil.ignore_patterns("*.pyc"))
    (site / "trainyard/libtrainyard.so").symlink_to(library())
    return {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "STEPS": str(steps),
            "PYTHONDONTWRITEBYTECODE": "1"}


def by_hand(script, folder, variables, count=2):
    """So many ranks of a script in a new folder. Returns the checkpoint's path; AssertionError: they did not end well.
    """
    folder.mkdir()
    port = free_port()
    ranks = []
    try:
        for rank in range(count):
            told = {**variables, "CHECKPOINT": str(folder / "fashion.pt"), "RANK": str(rank), "WORLD_SIZE": str(count),
                    "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port)}
            ranks.append(subprocess.Popen([sys.executable, script], cwd=EXAMPLES, env=told, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        for rank in ranks:
            output = rank.communicate(timeout=LIMIT)[0]
            if rank.returncode != 0:
                raise AssertionError(f"{script} ended with {rank.returncode}: {output}")
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return folder / "fashion.pt"


def saved(checkpoint):
    """What a script has written: net, optimizer, step."""
    return torch.load(checkpoint)


def largest_difference(weights, others):
    """Of any weight; 0.0 where all bits are the same."""
    assert weights.keys() == others.keys(), (weights.keys(), others.keys())
    return torch.stack([(weights[name] - others[name]).abs().max() for name in weights]).max().item()


def changed_lines(plain, ours):
    """Lines of `ours` that `plain` has not, but for what says how to start it."""
    lines = [(EXAMPLES / name).read_text(encoding="utf-8").splitlines()[1:] for name in (plain, ours)]
    return [line[2:] for line in difflib.ndiff(*lines) if line.startswith("+ ")]


class ExampleTest(unittest.TestCase):
    """Scripts whose weights must be those that `gloos`, a script over gloo, leaves after so many steps."""

    gloos = ""
    steps = 100

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="trainyard-pytorch-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.environment = environment(cls.folder, cls.steps)
        cls.expected = saved(by_hand(cls.gloos, cls.folder / "gloo", cls.environment))["net"]

    def expect_gloos(self, checkpoint, most=1e-6):
        self.assertLessEqual(largest_difference(saved(checkpoint)["net"], self.expected), most)

    def by_hand(self, script, name, count=2):
        return by_hand(script, self.folder / name, self.environment, count)

    def run_in(self, name, command):
        """The command in a folder of its own, of which the checkpoint's path is returned."""
        folder = self.folder / name
        folder.mkdir()
        told = {**self.environment, "CHECKPOINT": str(folder / "fashion.pt")}
        done = subprocess.run(list(map(str, command)), cwd=EXAMPLES, env=told, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stdout)
        return folder / "fashion.pt"

    def under_torchrun(self, script):
        # What torch 1.13 does by itself with their output is refused by Python 3.11: -r, -t.
        return self.run_in(f"torchrun-{script}", [
            sys.executable, "-m", "torch.distributed.run", "-r", "1", "-t", "1", "--nproc_per_node", "2",
            "--master_port", free_port(), script])

    def under_trainyard_run(self, script):
        return self.run_in(f"np-{script}", [BIN / "trainyard", "run", "-np", "2", "--dir",
                                            self.folder / f"run-{script}", "--", sys.executable, script])

    def start_job(self, name, script, steps):
        """examples/pytorch/ddp.yaml with the script; (its folder, the process of `trainyard run`)."""
        folder = self.folder / name
        folder.mkdir()
        text = (EXAMPLES / "ddp.yaml").read_text(encoding="utf-8")
        text = text.replace("[python3, ddp.py]", f"[{sys.executable}, {EXAMPLES}/{script}]")
        (folder / "job.yaml").write_text(text, encoding="utf-8")
        told = {**self.environment, "CHECKPOINT": str(folder / "fashion.pt"), "STEPS": str(steps)}
        return folder, subprocess.Popen([BIN / "trainyard", "run", "-f", folder / "job.yaml", "--dir", folder / "run"],
                                        cwd=folder, env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True)

    def from_a_job_file(self, script):
        folder, launcher = self.start_job("job", script, self.steps)
        try:
            output = launcher.communicate(timeout=LIMIT)[0]
        finally:
            launcher.kill()
        self.assertEqual(launcher.returncode, 0, output)
        return folder / "fashion.pt"

    def go_on_after_a_kill(self, script, steps):
        """A job whose program of worker-1 is killed after the first checkpoint; returns the last one."""
        folder, launcher = self.start_job("killed", script, steps)
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
        self.assertEqual(saved(folder / "fashion.pt")["step"], steps)
        self.assertIn("worker-1 is restarted", output)
        # The other one lost its peer and is started again with it: one disruption.
        self.assertIn("Succeeded, restarts 1", output)
        return folder / "fashion.pt"
