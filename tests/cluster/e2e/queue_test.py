#!/usr/bin/env python3
"""Jobs that wait for quota in a queue of the real Kueue."""
import contextlib
import json
import re
import sys
import unittest

import beside
from world import build, world
from rig import unavailable

SPACE = "queues"
QUEUE = "team-a"
WORKLOADS = "workloads.kueue.x-k8s.io"
KUEUE = "kueue.x-k8s.io/v1beta1"
POOL = {"trainyard.dev/pool": "training"}
MILLI = 50  # of a CPU, for each task
TASKS = 4  # for which there is quota
PREEMPTION = {"withinClusterQueue": "LowerPriority"}


def of_kueue(kind, name, **fields):
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, **fields}


# What an administrator and a team have before the first job.
ADMINISTRATION = [
    of_kueue("ResourceFlavor", "training", spec={"nodeLabels": POOL}),
    of_kueue("ClusterQueue", "all", spec={
        "namespaceSelector": {}, "preemption": PREEMPTION,
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "training", "resources": [{"name": "cpu", "nominalQuota": f"{TASKS * MILLI}m"}]}]}]}),
    of_kueue("LocalQueue", QUEUE, spec={"clusterQueue": "all"}),
    of_kueue("WorkloadPriorityClass", "urgent", value=100)]


def job(name, workers=1, least=None, **labels):
    template = {"spec": {"containers": [{"name": "task", "resources": {"requests": {"cpu": f"{MILLI}m"}}}]}}
    worker = {"replicas": workers, "template": template}
    if least:
        worker["minReplicas"] = least
    spec = {"storage": {"volume": {"persistentVolumeClaim": {"claimName": name}}},
            "ps": {"replicas": 1, "template": template}, "worker": worker,
            "training": {"model": {"name": "mlp", "hidden": [8], "simulatedStepSeconds": 0.1},
                         "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096},
                         "batchSize": 8, "steps": 100000, "optimizer": {"name": "SGD", "learningRate": 0.01},
                         "checkpoint": {"everySeconds": 600}}}
    labels = {"kueue.x-k8s.io/queue-name": QUEUE, **labels}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": name, "labels": labels}, "spec": spec}


class Queues(unittest.TestCase):
    world = None

    @classmethod
    def setUpClass(cls):
        cls.kubectl = cls.world.cluster.kubectl
        cls.addClassCleanup(cls.kubectl, "delete", "--ignore-not-found", "--timeout=120s", "-f", build.kept("kueue"))
        cls.after = contextlib.ExitStack()
        cls.addClassCleanup(cls.after.close)
        node = cls.world.find("nodes")[0]["metadata"]["name"]
        cls.kubectl("label", "node", node, "--overwrite", *(f"{name}={value}" for name, value in POOL.items()))

    def start(self, *jobs):
        for one in jobs:
            name = one["metadata"]["name"]
            self.world.volume(SPACE, name)
            self.world.apply(one, namespace=SPACE)
            self.addCleanup(self.delete, name)

    def delete(self, name):
        self.kubectl("delete", "tj", name, "-n", SPACE, "--ignore-not-found", "--timeout=300s")
        self.world.wait(f"the pods of {name} to go", lambda: not self.world.pods(name, SPACE))

    def patch(self, name, **spec):
        self.kubectl("patch", f"tj/{name}", "-n", SPACE, "--type=merge", "-p", json.dumps({"spec": spec}))

    def condition(self, name, kind):
        found = {c["type"]: c for c in self.world.status(name, SPACE).get("conditions", [])}
        return found.get(kind, {})

    def wait_waiting(self, name, words):
        """It rests for want of quota, says so, and has no pod."""
        self.world.wait(f"{name} to wait", lambda: (found := self.condition(name, "Suspended")).get(
            "reason") == "WaitsForQuota" and re.search(words, found["message"]))
        self.assertEqual("Suspended", self.world.status(name, SPACE)["state"])
        self.assertEqual({}, self.world.pods(name, SPACE))

    def wait_running(self, *names):
        for name in names:
            self.world.wait_state(name, SPACE, "Running")
            self.world.wait_steps(name, SPACE, 3)

    def workload(self, name):
        """Of the job, or None."""
        _, answer = self.world.cluster.api.get(f"/apis/{KUEUE}/namespaces/{SPACE}/workloads")
        return next((one for one in answer.get("items", [])
                     if one["metadata"]["ownerReferences"][0]["name"] == name), None)

    def says(self, name, kind):
        """Whether its Workload has that condition."""
        conditions = (self.workload(name) or {}).get("status", {}).get("conditions", [])
        return any(c["type"] == kind and c["status"] == "True" for c in conditions)

    def test_1_without_kueue(self):
        self.start(job("early"))
        self.wait_waiting("early", f"the cluster has no {WORKLOADS}: is Kueue installed")
        self.world.define(build.kept("kueue"), WORKLOADS)
        self.world.wait("a Workload", lambda: self.workload("early"))
        self.after.enter_context(beside.program(self.world.cluster, "kueue", [build.find("kueue")]))
        # Kueue itself lets them go.
        self.after.callback(self.kubectl, "delete", "--timeout=120s", "-n", SPACE, "-f", "-", input=json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": ADMINISTRATION}))
        self.world.apply(*ADMINISTRATION, namespace=SPACE)
        self.wait_running("early")
        self.world.wait("Kueue to know", lambda: self.says("early", "PodsReady"))
        for pod in self.world.pods("early", SPACE).values():
            self.assertEqual(POOL, pod["spec"]["nodeSelector"])

    def test_2_three_jobs_and_quota_for_two(self):
        self.start(job("one"), job("two"))
        self.wait_running("one", "two")
        self.start(job("three"))
        self.wait_waiting("three", "insufficient unused quota for cpu in flavor training")
        self.an_operator_that_starts_leaves_them_alone()
        self.patch("one", training={"steps": self.world.global_step("one", SPACE) + 5})
        self.world.wait_state("one", SPACE, "Succeeded")
        self.wait_running("three")
        self.assertTrue(self.says("one", "Finished"))
        self.one_of_higher_priority_goes_first("two", "three")
        self.who_is_suspended_leaves_the_queue("three")

    def an_operator_that_starts_leaves_them_alone(self):
        """What its caches do not show yet is not taken for a quota that is gone."""
        def lives():
            return {pod["metadata"]["uid"] for name in ("one", "two") for pod in self.world.pods(name, SPACE).values()}

        before, old = lives(), {pod["metadata"]["uid"] for pod in self.world.operator_pods()}
        self.kubectl("delete", "pod", "-n", "trainyard-system", "-l", "app.kubernetes.io/component=operator")
        self.world.wait("another operator", lambda: any(
            pod["metadata"]["uid"] not in old and all(c["ready"] for c in pod["status"].get("containerStatuses", []))
            and pod["status"].get("phase") == "Running" for pod in self.world.operator_pods()))
        self.patch("two", training={"steps": 99999})
        generation = self.world.job("two", SPACE)["metadata"]["generation"]
        self.world.wait("it to have looked", lambda: self.world.status("two", SPACE)["observedGeneration"] == generation)
        self.assertEqual(before, lives())

    def one_of_higher_priority_goes_first(self, *running):
        self.start(job("high", **{"kueue.x-k8s.io/priority-class": "urgent"}))
        self.wait_running("high")
        self.assertEqual(100, self.workload("high")["spec"]["priority"])
        loser = next(name for name in running if self.world.status(name, SPACE)["state"] == "Suspended")
        self.wait_waiting(loser, "Preempted|insufficient unused quota")
        stopped = re.match(r"stopped at step (\d+); it loses its quota", self.condition(loser, "Running")["message"])
        self.assertIsNotNone(stopped, self.condition(loser, "Running"))
        step = int(stopped[1])
        self.assertEqual(step, self.world.status(loser, SPACE)["checkpoint"]["step"])
        self.delete("high")
        self.world.wait_state(loser, SPACE, "Running")
        self.assertGreaterEqual(self.world.wait("its step", lambda: self.world.global_step(loser, SPACE)), step)
        self.world.wait_steps(loser, SPACE, 5)
        self.assertEqual(0, self.world.status(loser, SPACE).get("lostSteps", 0))

    def who_is_suspended_leaves_the_queue(self, name):
        self.patch(name, runPolicy={"suspend": True})
        self.world.wait("the Workload to be gone", lambda: self.workload(name) is None)
        self.assertEqual("JobSuspended", self.condition(name, "Suspended")["reason"])
        self.patch(name, runPolicy={"suspend": False})
        self.world.wait("another Workload", lambda: self.workload(name))

    def test_3_as_many_workers_as_there_is_quota_for(self):
        self.start(job("wide", workers=3))
        self.wait_running("wide")
        self.start(job("next"))
        self.wait_waiting("next", "insufficient unused quota")
        self.patch("wide", worker={"replicas": 1})
        self.wait_running("next")
        self.delete("wide")
        self.start(job("elastic", workers=3, least=1))
        self.wait_running("elastic")
        self.assertEqual(2, len(self.world.pods("elastic", SPACE)))
        self.assertEqual("FewerGranted", self.condition("elastic", "QuotaLimited")["reason"])


if __name__ == "__main__":
    try:
        build.find("kueue")
    except unavailable.Unavailable as error:
        unavailable.end(error)
    with world(SPACE, "kueue.enabled=true") as made:
        Queues.world = made
        outcome = unittest.main(exit=False, verbosity=2, failfast=True)
    sys.exit(not outcome.result.wasSuccessful())
