#!/usr/bin/env python3
"""Jobs that start as a whole or not at all: with the real coscheduling, and as the definition of Volcano's PodGroup
has it."""
import contextlib
import json
import pathlib
import sys
import tempfile
import unittest

import gangs
from world import world
from rig import unavailable

SPACE = "gangs"
TASKS = 8
ROOM = TASKS * 3 // 2
GANG = {"schedulingPolicy": {}}


def job(name, tasks, milli, policy):
    """One parameter server, the others are workers; each task asks for so much."""
    template = {"spec": {"containers": [{"name": "task", "resources": {"requests": {"cpu": f"{milli}m"}}}]}}
    spec = {"ps": {"replicas": 1, "template": template}, "worker": {"replicas": tasks - 1, "template": template},
            "runPolicy": policy,
            "training": {"model": {"name": "mlp", "hidden": [8], "simulatedStepSeconds": 0.5},
                         "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096},
                         "batchSize": 8, "steps": 100000, "optimizer": {"name": "SGD", "learningRate": 0.01}}}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


class Gangs(unittest.TestCase):
    world = None

    @classmethod
    def setUpClass(cls):
        cls.kubectl = cls.world.cluster.kubectl
        for what in (gangs.GROUPS, gangs.VOLCANO_GROUPS):
            cls.addClassCleanup(cls.kubectl, "delete", "crd", what, "--ignore-not-found", "--timeout=120s")
            cls.kubectl("delete", "crd", what, "--ignore-not-found", "--timeout=120s")
        cls.milli = gangs.free_cpu(cls.world) // ROOM
        cls.after = contextlib.ExitStack()
        cls.addClassCleanup(cls.after.close)

    def start(self, *jobs):
        """All in one request of kubectl's."""
        self.world.apply(*jobs, namespace=SPACE)
        for one in jobs:
            self.addCleanup(self.delete, one["metadata"]["name"])

    def delete(self, name):
        self.kubectl("delete", "tj", name, "-n", SPACE, "--ignore-not-found", "--timeout=300s")
        self.world.wait(f"the pods of {name} to go", lambda: not self.world.pods(name, SPACE))

    def scale(self, name, workers):
        self.kubectl("patch", f"tj/{name}", "-n", SPACE, "--type=merge", "-p",
                     json.dumps({"spec": {"worker": {"replicas": workers}}}))

    def placed(self, name):
        return sum(map(gangs.holds, self.world.pods(name, SPACE).values()))

    def reconciling(self, name):
        found = {c["type"]: c for c in self.world.status(name, SPACE).get("conditions", [])}
        return found.get("Reconciling", {})

    def group(self, name, version="scheduling.x-k8s.io/v1alpha1"):
        """The job's PodGroup, or None."""
        status, group = self.world.cluster.api.get(f"/apis/{version}/namespaces/{SPACE}/podgroups/{name}")
        return group if status == 200 else None

    def wait_whole(self, name, tasks):
        self.world.wait(f"all of {name} to be placed", lambda: self.placed(name) == tasks)
        self.world.wait_state(name, SPACE, "Running")
        self.world.wait(f"all of {name} to be ready", lambda: self.world.status(
            name, SPACE)["worker"].get("ready") == tasks - 1)

    def wait_refused(self, name, tasks):
        """The scheduler has looked at it, and placed none."""
        self.world.wait(f"{name} to be told that it has no room", lambda: self.reconciling(name).get("reason") ==
                        "Unschedulable" and len(self.world.pods(name, SPACE)) == tasks)
        self.assertEqual(0, self.placed(name))

    def history(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        history = gangs.History(self.world, SPACE, folder / "events")
        self.addCleanup(history.stop)
        return history

    def test_1_without_the_definition(self):
        self.start(job("early", 3, self.milli, GANG))
        told = self.world.wait("the condition", lambda: self.reconciling("early").get(
            "reason") == "GangSchedulerMissing" and self.reconciling("early"))
        self.assertEqual("True", told["status"])
        self.assertIn(f"the cluster has no {gangs.GROUPS}", told["message"])
        self.assertEqual({}, self.world.pods("early", SPACE))
        self.world.define(gangs.definition("scheduler-plugins", "scheduling.x-k8s.io"), gangs.GROUPS)
        self.after.enter_context(gangs.scheduler(self.world.cluster))
        self.wait_whole("early", 3)
        self.assertEqual({"minMember": 3}, self.group("early")["spec"])

    def test_2_two_of_which_one_has_room(self):
        history = self.history()
        self.start(*(job(name, TASKS, self.milli, GANG) for name in ("one", "two")))
        first = self.world.wait("one of them to be placed", lambda: next(
            (name for name in ("one", "two") if self.placed(name) == TASKS), None))
        other = "two" if first == "one" else "one"
        self.wait_refused(other, TASKS)
        self.wait_whole(first, TASKS)
        self.world.wait_steps(first, SPACE, 5)
        self.assertEqual(0, self.placed(other))
        self.assertEqual([TASKS, TASKS], [self.group(name)["spec"]["minMember"] for name in (first, other)])
        self.without_a_group_half_of_it_runs()
        self.delete(first)
        self.wait_whole(other, TASKS)
        gone = [(first, -1)]
        turns = [turn for turn in history.turns() if turn[0] in (first, other)]
        self.assertEqual([(first, +1)] * TASKS, turns[:TASKS], turns)
        self.assertEqual(gone, turns[TASKS:TASKS + 1], "nothing of the other is placed while the first is whole")
        rest = [turn for turn in turns if turn not in gone]
        self.assertEqual([(first, +1)] * TASKS + [(other, +1)] * TASKS, rest)

    def without_a_group_half_of_it_runs(self):
        """What a job is spared by a group; and that one which asks for none is left alone."""
        self.start(job("plain", TASKS, self.milli, {}))
        self.world.wait("half of it to be placed", lambda: self.placed("plain") == ROOM - TASKS and self.reconciling(
            "plain").get("reason") == "Unschedulable")
        self.assertIsNone(self.group("plain"))
        for pod in self.world.pods("plain", SPACE).values():
            self.assertEqual("default-scheduler", pod["spec"]["schedulerName"])
            self.assertNotIn("scheduling.x-k8s.io/pod-group", pod["metadata"]["labels"])
        self.delete("plain")

    def test_3_scaled_until_it_fits(self):
        history = self.history()
        self.start(job("large", ROOM + 2, self.milli, GANG))
        self.wait_refused("large", ROOM + 2)
        self.scale("large", TASKS - 2)
        self.wait_whole("large", TASKS - 1)
        self.assertEqual(TASKS - 1, self.group("large")["spec"]["minMember"])
        self.scale("large", ROOM - 1)
        self.wait_whole("large", ROOM)
        self.assertEqual(ROOM, self.group("large")["spec"]["minMember"])
        self.assertEqual([("large", +1)] * ROOM, history.turns())

    def test_4_volcano(self):
        """Its scheduler is not here: the apiserver takes the group as its definition says, and pods wait for it."""
        self.world.define(gangs.definition("volcano", "scheduling.volcano.sh"), gangs.VOLCANO_GROUPS)
        self.world.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5,
                          "metadata": {"name": SPACE}})
        self.addCleanup(self.kubectl, "delete", "priorityclass", SPACE)
        self.world.install("gangScheduler.kind=Volcano")
        policy = {"queue": "default", "priorityClass": SPACE, "minAvailable": 3, "scheduleTimeoutSeconds": 60}
        self.start(job("minimal", 4, self.milli, {"schedulingPolicy": policy}), job("all", 4, self.milli, GANG))
        for name in ("minimal", "all"):
            self.world.wait(f"the pods of {name}", lambda: len(self.world.pods(name, SPACE)) == 4)
            for pod in self.world.pods(name, SPACE).values():
                self.assertEqual("volcano", pod["spec"]["schedulerName"])
                self.assertEqual(name, pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"])
                self.assertEqual(5 if name == "minimal" else 0, pod["spec"]["priority"])
        self.assertEqual({"minMember": 3, "queue": "default", "priorityClassName": SPACE}, self.volcano_spec("minimal"))
        self.scale("all", 1)
        self.world.wait("the group to shrink", lambda: self.volcano_spec("all")["minMember"] == 2)
        self.scale("all", 5)
        self.world.wait("the group to grow", lambda: self.volcano_spec("all")["minMember"] == 6)

    def volcano_spec(self, name):
        """Of the group, of which the apiserver knows every field."""
        version = "scheduling.volcano.sh/v1beta1"
        group = self.group(name, version)
        copy = {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "copy"}, "spec": group["spec"]}
        status, answer = self.world.cluster.api.request(
            "POST", f"/apis/{version}/namespaces/{SPACE}/podgroups?dryRun=All&fieldValidation=Strict", copy)
        self.assertEqual(201, status, answer)
        return group["spec"]


if __name__ == "__main__":
    try:
        gangs.build.find("scheduler-plugins")
    except unavailable.Unavailable as error:
        unavailable.end(error)
    with world(SPACE, "gangScheduler.kind=Coscheduling") as made:
        Gangs.world = made
        outcome = unittest.main(exit=False, verbosity=2)
    sys.exit(not outcome.result.wasSuccessful())
