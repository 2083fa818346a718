#!/usr/bin/env python3
"""The scripts of examples/pytorch as jobs of pods: their weights are, bit for bit, those that gloo gives on one
machine, since a sum of two has one order; and they still are when a pod or a program is killed in the middle. Where the
job makes the update, they are those of the same job on one machine, whoever comes and goes.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(os.environ["TRAINYARD_SOURCE"]) / "tests" / "python"))

import chaos
import example_runs
import torch_pods
from world import world

SPACE = "pytorch"
STEPS = 100
CHECKPOINT = 50  # step at which a script first writes one
# Of a job that is disturbed after that: enough for it not to be over by then. A program whose pod is deleted may go on for
# some two seconds, in which a fast machine makes 600 steps.
LONG = 25 * STEPS
SERVED = 1500  # of a job whose steps the job makes: some 35 s
LIMIT = 600  # seconds; against hangs


class Torch(unittest.TestCase):
    world = None
    folder = None  # of this machine, for checkpoints
    variables = None  # of scripts that run on it
    gloo = {}  # steps: weights

    @classmethod
    def setUpClass(cls):
        torch_pods.claims(cls.world, SPACE)
        for steps in (STEPS, LONG):
            checkpoint = example_runs.by_hand("ddp_gloo.py", cls.folder / f"gloo-{steps}",
                                              {**cls.variables, "STEPS": str(steps)})
            cls.gloo[steps] = example_runs.saved(checkpoint)["net"]

    def start(self, name, script, steps):
        self.world.apply(torch_pods.job(self.world, SPACE, name, script, steps, self.folder / name), namespace=SPACE)

    def start_and_wait(self, name, script):
        """Starts a job of LONG steps, and returns its pods' identities when it has its first checkpoint."""
        self.start(name, script, LONG)
        checkpoint = self.folder / name / "fashion.pt"
        self.world.wait(f"the first checkpoint of {name}", checkpoint.exists, LIMIT)
        return self.identities(name)

    def identities(self, name):
        return {pod.removeprefix(f"{name}-"): made["metadata"]["uid"]
                for pod, made in self.world.pods(name, SPACE).items()}

    def log(self, name):
        """Of rank 0."""
        return self.world.cluster.kubectl("logs", f"{name}-worker-0", "-n", SPACE, "-c", "task")

    def finish(self, name, steps, restarts=0, disruptions=0, revisions=(1,)):
        """Waits for the end of the job, which has come to gloo's weights, by one of `revisions` of its membership."""
        status = self.world.wait_state(name, SPACE, "Succeeded", LIMIT)
        saved = example_runs.saved(self.folder / name / "fashion.pt")
        self.assertEqual(steps, saved["step"])
        self.assertEqual(0, example_runs.largest_difference(saved["net"], self.gloo[steps]), self.log(name))
        self.assertEqual((restarts, disruptions), (status["restarts"], status["disruptions"]), self.world.describe(SPACE))
        self.assertIn(status["membership"]["revision"], revisions, self.world.describe(SPACE))

    def expect_gone_on(self, name):
        """Rank 0's newest program has begun behind the first checkpoint."""
        life = self.log(name).rpartition("agent: start ")[2]
        steps = [int(step) for step in re.findall(r"(?m)^step (\d+): loss", life)]
        self.assertGreater(steps[0], CHECKPOINT, life)
        self.assertEqual(LONG, steps[-1], life)

    def test_ddp(self):
        self.start("ddp", "ddp.py", STEPS)
        self.finish("ddp", STEPS)

    def test_horovods_names(self):
        self.start("horovod", "horovod_names.py", STEPS)
        self.finish("horovod", STEPS)

    def test_killed_pod(self):
        before = self.start_and_wait("killed-pod", "ddp.py")
        self.world.cluster.kubectl("delete", "pod", "killed-pod-worker-1", "-n", SPACE, "--force", "--grace-period=0",
                                   "--wait=false")
        # The program that lost its peer is counted with the pod. Both begin by the same revision; but a deletion by force frees
        # the pod's name before the kubelet has ended its program, so the new one may be told of before the other knows its loss.
        self.finish("killed-pod", LONG, disruptions=1, revisions=(2, 3))
        self.expect_gone_on("killed-pod")
        after = self.identities("killed-pod")
        self.assertEqual(before.keys(), after.keys())
        self.assertEqual(set(), set(before.values()) & set(after.values()), "a program was not started again")

    def test_killed_program(self):
        """Of rank 0, where the others meet."""
        before = self.start_and_wait("killed-program", "horovod_names.py")
        self.assertEqual(1, chaos.act(self.world, "python3", "killed-program-worker-0", "signal", int(signal.SIGKILL)))
        self.finish("killed-program", LONG, restarts=1, revisions=(2,))
        self.expect_gone_on("killed-program")
        after = self.identities("killed-program")
        self.assertEqual(before["worker-0"], after["worker-0"], "its agent starts it again, in the same pod")
        self.assertNotEqual(before["worker-1"], after["worker-1"], "it was not started again")

    def digest(self, folder):
        return subprocess.run([example_runs.BIN / "trainyard", "checkpoint", "digest", folder], capture_output=True,
                              text=True, check=True, timeout=LIMIT).stdout.split()[0]

    def on_one_machine(self):
        """The digest of the job of SERVED steps, run here."""
        text = (example_runs.EXAMPLES / "parameter_server.yaml").read_text(encoding="utf-8")
        file = self.folder / "served.yaml"
        file.write_text(text.replace("[python3, parameter_server.py]",
                                     f"[{sys.executable}, {example_runs.EXAMPLES}/parameter_server.py]"))
        done = subprocess.run([example_runs.BIN / "trainyard", "run", "-f", file, "--dir", self.folder / "served-here",
                               "--set", f"training.steps={SERVED}", "--set", "training.deterministic=true"],
                              env=self.variables, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return self.digest(self.folder / "served-here")

    def serve(self, name):
        self.world.apply(torch_pods.program_job(self.world, SPACE, name, SERVED, self.folder / name), namespace=SPACE)
        self.world.wait_steps(name, SPACE, 20)

    def scale_ps(self, name, count):
        self.world.cluster.kubectl("patch", "tj", name, "-n", SPACE, "--type=merge", "-p",
                                   f'{{"spec": {{"ps": {{"replicas": {count}}}}}}}')

    def wait_served(self, name):
        """The status of a job that has come to its end without a lost step."""
        status = self.world.wait_state(name, SPACE, "Succeeded", LIMIT)
        self.assertEqual(SERVED, status["progress"]["step"])
        self.assertEqual(0, status.get("lostSteps", 0))
        return status

    def test_served_by_parameter_servers(self):
        """A pod is evicted and a server comes while it trains: no step is lost, and no bit."""
        expected = self.on_one_machine()
        self.serve("served")
        self.world.evict("served-worker-1", SPACE)
        self.world.wait_steps("served", SPACE, 20)
        self.scale_ps("served", 3)
        status = self.wait_served("served")
        self.assertEqual(1, status["disruptions"], self.world.describe(SPACE))
        self.assertEqual(expected, self.digest(self.folder / "served"))

    def test_scaled_while_served(self):
        self.serve("scaled")
        for workers in (3, 1):
            self.world.cluster.kubectl("scale", "tj/scaled", "-n", SPACE, f"--replicas={workers}")
            self.world.wait(f"{workers} workers", lambda: self.world.status("scaled", SPACE)["worker"].get("ready")
                            == workers)
            self.world.wait_steps("scaled", SPACE, 20)
        self.scale_ps("scaled", 1)
        status = self.wait_served("scaled")
        self.assertGreater(float(status["progress"]["accuracy"]), 0.8)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trainyard-pytorch-") as temporary:
        Torch.folder = pathlib.Path(temporary)
        Torch.folder.chmod(0o755)  # pods look into it
        Torch.variables = example_runs.environment(Torch.folder, STEPS)
        with world(SPACE, more_images=lambda folder: [torch_pods.image(folder)]) as made:
            Torch.world = made
            outcome = unittest.main(exit=False, verbosity=2)
    sys.exit(not outcome.result.wasSuccessful())
