#!/usr/bin/env python3
"""Training jobs that are suspended: with a checkpoint that takes long, and while their agents cannot be reached."""
import contextlib
import json
import os
import pathlib
import re
import sys
import time
import unittest

import chaos
from world import oci, shell_image, side_by_side, world

SPACE = "stopping"
AGENT_PORT = 2230
STOP_SECONDS = 20
OPERATOR_METRICS = 8080
SLOW = "registry.test/slow-checkpoint:1"
# Longer than the four seconds that a stop once had.
CHECKPOINT_SECONDS = 20 if "TRAINYARD_LONG" in os.environ else 8


def slow_image(folder):
    """An image in which writing a checkpoint takes long."""
    archive = pathlib.Path(folder) / "slow.tar"
    delay = f"TRAINYARD_FAILPOINTS=ps.snapshot=delay({CHECKPOINT_SECONDS * 1000})"
    oci.write(archive, SLOW, [shell_image.entries()],
              {"Env": ["PATH=/bin", delay], "Cmd": ["sh"], "User": "1000:1000"})
    return archive


def job(name, stop_seconds, image=None):
    """No checkpoint is due before it stops."""
    spec = {"storage": {"volume": {"persistentVolumeClaim": {"claimName": name}}},
            "ps": {"replicas": 1}, "worker": {"replicas": 1}, "runPolicy": {"stopSeconds": stop_seconds},
            "training": {"model": {"name": "mlp", "hidden": [32], "simulatedStepSeconds": 0.1},
                         "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096},
                         "batchSize": 8, "steps": 100000, "optimizer": {"name": "SGD", "learningRate": 0.01},
                         "checkpoint": {"everySeconds": 600}}}
    if image:
        spec["image"] = image
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


class Stopping(unittest.TestCase):
    world = None

    @classmethod
    def setUpClass(cls):
        """All jobs are begun at once, and what takes long to be noticed happens to them: each test waits for its own."""
        jobs = [job("slow", 60, SLOW), job("unheard", STOP_SECONDS), job("hurry", 3600)]
        names = [one["metadata"]["name"] for one in jobs]
        for one, name in zip(jobs, names):
            cls.world.volume(SPACE, name)
            cls.world.apply(one, namespace=SPACE)
        for name in names:
            cls.world.wait_steps(name, SPACE, 20)
        cls.cuts = {}
        for name in ("unheard", "hurry"):
            cls.cuts[name] = contextlib.ExitStack()
            cls.addClassCleanup(cls.cuts[name].close)
            cls.cuts[name].enter_context(chaos.cut_control(cls.world, cls.world.pods(name, SPACE), AGENT_PORT))

    def suspend(self, name, suspend=True):
        self.world.cluster.kubectl("patch", f"tj/{name}", "-n", SPACE, "--type=merge", "-p",
                                   json.dumps({"spec": {"runPolicy": {"suspend": suspend}}}))

    def condition(self, name, kind):
        found = {c["type"]: c for c in self.world.status(name, SPACE).get("conditions", [])}
        return found.get(kind, {})

    def stopped_at(self, name):
        """The step at which the job says that it has stopped."""
        self.world.wait_state(name, SPACE, "Suspended")
        told = re.fullmatch(r"stopped at step (\d+)", self.condition(name, "Suspended")["message"])
        self.assertIsNotNone(told, self.condition(name, "Suspended"))
        return int(told[1])

    def goes_on_from(self, name, step):
        """Nothing is lost: it goes on where it stopped."""
        status = self.world.status(name, SPACE)
        self.assertEqual(step, status["checkpoint"]["step"])
        self.world.wait("the pods to go", lambda: not self.world.pods(name, SPACE))
        self.suspend(name, False)
        self.world.wait("more steps", lambda: self.world.global_step(name, SPACE) > step)
        self.assertEqual(0, self.world.status(name, SPACE).get("lostSteps", 0))

    def unreachable(self):
        """What the operators count."""
        pages = [self.world.cluster.fetch(f"http://{pod['status']['podIP']}:{OPERATOR_METRICS}/metrics")
                 for pod in self.world.operator_pods()]
        return [float(line.split()[-1]) for page in pages for line in page.splitlines()
                if line.startswith("trainyard_unreachable_agents ")]

    def test_who_cannot_wait(self):
        self.suspend("hurry")
        self.world.wait("the stop to begin", lambda: self.condition("hurry", "Suspended"))
        self.world.cluster.kubectl("annotate", "tj/hurry", "-n", SPACE, "trainyard.dev/stop-now=true")
        self.world.wait_state("hurry", SPACE, "Suspended", 300)
        self.assertIn("trainyard.dev/stop-now", self.condition("hurry", "Suspended")["message"])

    def test_a_checkpoint_that_takes_long(self):
        before, began = self.world.global_step("slow", SPACE), time.monotonic()
        self.suspend("slow")
        step = self.stopped_at("slow")
        took = time.monotonic() - began
        self.assertGreaterEqual(took, CHECKPOINT_SECONDS)
        self.assertGreaterEqual(step, before)
        print(f"stopped at step {step}, {took:.0f} s after it was suspended at step {before}", flush=True)
        self.goes_on_from("slow", step)

    def test_agents_that_cannot_be_reached(self):
        told = self.world.wait("the condition", lambda: self.condition("unheard", "AgentsReachable"), 300)
        self.assertEqual(("False", "NoAnswer"), (told["status"], told["reason"]), told)
        self.world.wait("both agents to be counted", lambda: 2 in self.unreachable(), 120)
        self.suspend("unheard")
        self.world.wait("the stop to begin", lambda: self.condition("unheard", "Suspended"))
        end = time.monotonic() + STOP_SECONDS + 8
        while time.monotonic() < end:  # longer than the job says
            self.assertEqual("Unknown", self.condition("unheard", "Suspended")["status"])
            time.sleep(1)
        self.cuts["unheard"].close()
        step = self.stopped_at("unheard")
        self.goes_on_from("unheard", step)
        self.world.wait("the agents to be reached", lambda: self.condition(
            "unheard", "AgentsReachable").get("status") == "True", 120)


if __name__ == "__main__":
    with world(SPACE, more_images=lambda folder: [slow_image(folder)]) as made:
        Stopping.world = made
        outcome = side_by_side.main(at_once=3, exit=False, verbosity=2)
    sys.exit(not outcome.result.wasSuccessful())
