#!/usr/bin/env python3
"""A training job from `kubectl apply` to its result, in a restricted namespace with a quota.

Then a longer one: workers come and go, the operator is killed, the apiserver is away; training goes on.
"""
import json
import subprocess
import sys
import time
import unittest

from world import ROOT, SYSTEM, world

DATA = "/usr/share/datasets/fashion-mnist"
SPACE = "training"
QUOTA = """apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec: {hard: {pods: "12", requests.cpu: "4", requests.memory: 12Gi}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: defaults}
spec: {limits: [{type: Container, defaultRequest: {cpu: 50m, memory: 64Mi}}]}
"""
# Every step takes at least so long, so that the job outlives what is done to it.
LONG = {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "long"},
        "spec": {"storage": {"volume": {"persistentVolumeClaim": {"claimName": "long-job"}}},
                 "ps": {"replicas": 2}, "worker": {"replicas": 2, "maxReplicas": 4},
                 "training": {"model": {"name": "mlp", "hidden": [32], "simulatedStepSeconds": 0.1},
                              "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096},
                              "batchSize": 8, "steps": 100000,
                              "optimizer": {"name": "SGD", "learningRate": 0.01},
                              "checkpoint": {"everySeconds": 10}}}}


def identity(pod):
    """What stays the same while neither the pod nor its program has been started anew."""
    status = pod["status"]["containerStatuses"][0]
    return pod["metadata"]["uid"], status["restartCount"], status["state"].get("running", {}).get("startedAt")


class Fashion(unittest.TestCase):
    world = None

    def setUp(self):
        self.kubectl = self.world.cluster.kubectl

    def step(self, name):
        return int(self.world.status(name, SPACE).get("progress", {}).get("step", 0))

    def wait_steps(self, name, more):
        """Waits until `more` steps have been made since now."""
        before = self.step(name)
        self.world.wait(f"{name} beyond step {before + more}", lambda: self.step(name) >= before + more)

    def test_1_fashion_mnist(self):
        self.kubectl("apply", "-n", SPACE, "-f", str(ROOT / "examples/fashion-mnist/ps-sync.yaml"))
        seen = []

        def ended():
            line = self.kubectl("get", "tj", "fashion", "-n", SPACE, "--no-headers").split()
            seen.append(line)
            status = self.world.status("fashion", SPACE)
            self.assertNotEqual("Failed", status.get("state"), self.world.describe(SPACE))
            return status if status.get("state") == "Succeeded" else None

        status = self.world.wait("fashion to succeed", ended)
        self.assertGreaterEqual(float(status["progress"]["accuracy"]), 0.85)
        self.assertEqual(700, status["progress"]["step"])
        # NAME STATE PS WORKERS STEP STEPS AGE
        steps = {row[4] for row in seen if len(row) >= 7 and row[1] == "Running"}
        self.assertGreater(len(steps), 1, f"kubectl get tj shows no progress: {seen}")
        self.assertEqual("True", {c["type"]: c["status"] for c in status["conditions"]}["Succeeded"])
        self.kubectl("delete", "tj", "fashion", "-n", SPACE, "--wait", "--timeout=120s")
        self.world.wait("the pods to go", lambda: not self.world.pods("fashion", SPACE), 120)

    def test_2_scaled_while_operator_and_apiserver_fail(self):
        self.world.volume(SPACE, "long-job")
        self.world.apply(LONG, namespace=SPACE)
        self.world.wait("the first steps", lambda: self.step("long") > 5)
        before = {name: identity(pod) for name, pod in self.world.pods("long", SPACE).items()}
        self.assertEqual({"long-ps-0", "long-ps-1", "long-worker-0", "long-worker-1"}, set(before))

        self.kubectl("scale", "tj/long", "-n", SPACE, "--replicas=3")
        self.world.wait("a third worker", lambda: self.world.status("long", SPACE)["worker"].get("ready") == 3)
        self.wait_steps("long", 20)

        self.kill_operators()
        self.wait_steps("long", 20)
        self.without_apiserver()
        self.wait_steps("long", 20)

        self.kubectl("scale", "tj/long", "-n", SPACE, "--replicas=1")
        self.world.wait("two workers to leave", lambda: set(self.world.pods("long", SPACE)) == {
            "long-ps-0", "long-ps-1", "long-worker-0"})
        self.wait_steps("long", 20)
        after = {name: identity(pod) for name, pod in self.world.pods("long", SPACE).items()}
        for name in after:
            self.assertEqual(before[name], after[name], f"{name} did not stay as it was")
        status = self.world.status("long", SPACE)
        self.assertEqual(0, status.get("restarts", 0))
        self.assertEqual(0, status.get("lostSteps", 0))
        self.kubectl("delete", "tj", "long", "-n", SPACE, "--wait", "--timeout=120s")

    def kill_operators(self):
        old = {pod["metadata"]["uid"] for pod in self.world.operator_pods()}
        self.kubectl("delete", "pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator",
                     "--grace-period=0", "--force")
        self.world.wait("new operators", lambda: any(
            pod["metadata"]["uid"] not in old and all(c["ready"] for c in pod["status"]["containerStatuses"])
            for pod in self.world.operator_pods() if pod["status"].get("containerStatuses")), 300)

    def without_apiserver(self):
        """Half a minute; what the chief says of its steps is read from the node, for lack of an API."""
        pods = self.world.pods("long", SPACE)
        address = pods["long-worker-0"]["status"]["podIP"]
        port = LONG["spec"].get("network", {}).get("metricsPort", 2231)
        from rig import testing
        away = subprocess.Popen([sys.executable, "-B", testing.SCRIPT, "kill", self.world.cluster.folder,
                                 "kube-apiserver", "--seconds", "30"])
        try:
            time.sleep(2)
            counts = []
            while away.poll() is None:
                page = self.world.cluster.inside("busybox", "wget", "-q", "-T", "5", "-O", "-",
                                                 f"http://{address}:{port}/metrics").stdout
                counts += [float(line.split()[-1]) for line in page.splitlines()
                           if line.startswith(("trainyard_worker_steps_total ", "trainyard_worker_steps_total{"))]
                time.sleep(1)
        finally:
            away.wait()
        self.assertGreater(len(counts), 5, "the worker's metrics were not read")
        self.assertGreater(counts[-1], counts[0], f"no step was made without an apiserver: {counts}")


if __name__ == "__main__":
    with world(SPACE) as made:
        made.apply(QUOTA, namespace=SPACE)
        made.volume(SPACE, "fashion-mnist", DATA, read_only=True)
        made.volume(SPACE, "fashion-job")
        Fashion.world = made
        program = unittest.main(exit=False, verbosity=2)
    sys.exit(not program.result.wasSuccessful())
