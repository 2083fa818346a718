#!/usr/bin/env python3
"""examples/pytorch/fsdp.py as jobs of pods, also when a pod is killed in the middle: the weights are, bit for bit, those
of FSDP2 over gloo on one machine. For a torch that has FSDP2: with_newest.py foreign/fsdp_pods.py

torch weighs 5 GB and is not in the image: the pods see this Python's environment by a claim, at its own path.
"""
import os
import pathlib
import re
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
sys.path[:0] = [str(SOURCE / "tests/python"), str(SOURCE / "tests/cluster/e2e")]

import example_runs  # noqa: E402
import torch_pods  # noqa: E402
from world import world  # noqa: E402

SPACE = "fsdp"
STEPS, LONG = 100, 1000
CHECKPOINT = 50  # step at which a script first writes one
LIMIT = 600  # seconds; against hangs


def job(made_in, name, steps, folder):
    """The job of torch_pods with the Python of this environment."""
    made = torch_pods.job(made_in, SPACE, name, "fsdp.py", steps, folder)
    container = made["spec"]["worker"]["template"]["spec"]["containers"][0]
    container["command"][0] = sys.executable
    container["volumeMounts"].append({"name": "machine", "mountPath": sys.prefix, "subPath": sys.prefix[1:],
                                      "readOnly": True})
    return made


class FsdpPods(unittest.TestCase):
    world = None
    folder = None  # of this machine, for checkpoints
    variables = None  # of scripts that run on it

    @classmethod
    def setUpClass(cls):
        torch_pods.claims(cls.world, SPACE)

    def start(self, name, steps):
        self.world.apply(job(self.world, name, steps, self.folder / name), namespace=SPACE)

    def finish(self, name, steps, disruptions=0):
        """Waits for the end of the job, which has come to gloo's weights."""
        status = self.world.wait_state(name, SPACE, "Succeeded", LIMIT)
        gloos = example_runs.by_hand("fsdp_gloo.py", self.folder / f"{name}-gloo",
                                     {**self.variables, "STEPS": str(steps)})
        saved, expected = (example_runs.saved(each) for each in (self.folder / name / "fashion.pt", gloos))
        self.assertEqual(steps, saved["step"])
        self.assertEqual(0, example_runs.largest_difference(saved["net"], expected["net"]))
        self.assertEqual((0, disruptions), (status["restarts"], status["disruptions"]), self.world.describe(SPACE))

    def test_fsdp(self):
        self.start("fsdp", STEPS)
        self.finish("fsdp", STEPS)

    def test_killed_pod(self):
        self.start("killed", LONG)
        self.world.wait("the first checkpoint", (self.folder / "killed/fashion.pt").exists, LIMIT)
        self.world.cluster.kubectl("delete", "pod", "killed-worker-1", "-n", SPACE, "--force", "--grace-period=0",
                                   "--wait=false")
        # The program that lost its peer is counted with the pod.
        self.finish("killed", LONG, disruptions=1)
        log = self.world.cluster.kubectl("logs", "killed-worker-0", "-n", SPACE, "-c", "task")
        newest = re.findall(r"(?m)^step (\d+): loss", log.rpartition("agent: start ")[2])
        self.assertGreater(int(newest[0]), CHECKPOINT, "it began anew")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trainyard-pytorch-") as temporary:
        FsdpPods.folder = pathlib.Path(temporary)
        FsdpPods.folder.chmod(0o755)  # pods look into it
        FsdpPods.variables = example_runs.environment(FsdpPods.folder, STEPS)
        with world(SPACE, more_images=lambda folder: [torch_pods.image(folder)]) as made:
            FsdpPods.world = made
            outcome = unittest.main(exit=False, verbosity=2)
    sys.exit(not outcome.result.wasSuccessful())
