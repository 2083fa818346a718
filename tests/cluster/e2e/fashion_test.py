#!/usr/bin/env python3
"""A training job from `kubectl apply` to its result, in a restricted namespace with a quota.

Then a longer one: workers come and go, the operator is killed and frozen, the apiserver is away, pods are cut off;
training goes on.
And one that is looked after by the command line alone, and two without parameter servers.
"""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import chaos
import monitored
from world import METRICS_PORT, ROOT, SYSTEM, shell_image, testing, world

sys.path.insert(0, str(ROOT / "tests" / "python"))

import made_up_flights  # noqa: E402

DATA = "/usr/share/datasets/fashion-mnist"
LONG_RUN = "TRAINYARD_LONG" in os.environ
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
                              "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096,
                                       "evalSamples": 64},
                              "batchSize": 8, "steps": 100000, "evaluateEverySteps": 40,
                              "optimizer": {"name": "SGD", "learningRate": 0.01},
                              "checkpoint": {"everySeconds": 10}}}}
# Fails at once.
LATE = {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "late"},
        "spec": {"strategy": "AllReduce", "image": shell_image.NAME, "runPolicy": {"activeDeadlineSeconds": 1},
                 "worker": {"template": {"spec": {"containers": [{"name": "task", "command": ["sleep", "1000"]}]}}}}}


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
        self.world.wait_steps(name, SPACE, more)

    def test_1_fashion_mnist(self):
        """The example; for a fourth of its steps, except in make test-long."""
        example = (ROOT / "examples/fashion-mnist/ps-sync.yaml").read_text()
        steps = 700 if LONG_RUN else 160
        self.world.apply(example.replace("steps: 700", f"steps: {steps}"), namespace=SPACE)
        self.assertIn("all others run beside it",
                      self.kubectl("explain", "tj.spec.worker.template.spec.containers").replace("\n    ", " "))
        seen = []

        def ended():
            line = self.kubectl("get", "tj", "fashion", "-n", SPACE, "--no-headers").split()
            seen.append(line)
            status = self.world.status("fashion", SPACE)
            self.assertNotEqual("Failed", status.get("state"), self.world.describe(SPACE))
            return status if status.get("state") == "Succeeded" else None

        status = self.world.wait("fashion to succeed", ended)
        self.assertGreaterEqual(float(status["progress"]["accuracy"]), 0.85 if LONG_RUN else 0.75)
        self.assertEqual(steps, status["progress"]["step"])
        # NAME STATE PS WORKERS RESTARTS STEP STEPS AGE
        running = [row for row in seen if len(row) >= 8 and row[1] == "Running"]
        self.assertGreater(len({row[5] for row in running}), 1, f"kubectl get tj shows no progress: {seen}")
        self.assertIn(["2/2", "2/2", "0"], [row[2:5] for row in running])
        self.assertEqual("True", {c["type"]: c["status"] for c in status["conditions"]}["Succeeded"])
        self.kubectl("delete", "tj", "fashion", "-n", SPACE, "--wait", "--timeout=120s")
        self.world.wait("the pods to go", lambda: not self.world.pods("fashion", SPACE), 120)

    def test_2_scaled_while_operator_and_apiserver_fail(self):
        self.world.volume(SPACE, "long-job")
        self.world.apply(LONG, namespace=SPACE)
        self.world.wait_steps("long", SPACE, 5)
        before = {name: identity(pod) for name, pod in self.world.pods("long", SPACE).items()}
        self.assertEqual({"long-ps-0", "long-ps-1", "long-worker-0", "long-worker-1"}, set(before))

        self.world.apply(LATE, namespace=SPACE)  # alerts speak of failures too
        self.begin_flights()
        monitored.check(self.world, SPACE, "long", 4, self.keep_operators_busy, tables="flights")
        self.end_flights()
        self.until_first_step("2 -> 3 workers",
                              lambda: self.kubectl("scale", "tj/long", "-n", SPACE, "--replicas=3"))
        self.world.wait("a third worker", lambda: self.world.status("long", SPACE)["worker"].get("ready") == 3)
        self.storm()
        self.wait_steps("long", 20)

        self.kill_operators()
        self.wait_steps("long", 20)
        self.without_apiserver()
        self.wait_steps("long", 20)
        self.with_frozen_operators()
        self.wait_steps("long", 20)
        self.without_network("long-worker-2")
        self.without_network("long-ps-1")
        self.wait_steps("long", 20)

        self.kubectl("scale", "tj/long", "-n", SPACE, "--replicas=1")
        self.world.wait("two workers to leave", lambda: set(self.world.pods("long", SPACE)) == {
            "long-ps-0", "long-ps-1", "long-worker-0"})
        self.wait_steps("long", 20)
        self.until_first_step("2 -> 3 parameter servers", lambda: self.servers(3))
        self.wait_steps("long", 20)
        self.until_first_step("3 -> 1 parameter servers", lambda: self.servers(1))
        self.world.wait("two servers to leave", lambda: set(self.world.pods("long", SPACE)) == {
            "long-ps-0", "long-worker-0"})
        self.wait_steps("long", 20)
        after = {name: identity(pod) for name, pod in self.world.pods("long", SPACE).items()}
        for name in after:
            self.assertEqual(before[name], after[name], f"{name} did not stay as it was")
        status = self.world.status("long", SPACE)
        self.assertEqual(0, status.get("restarts", 0))
        self.assertEqual(0, status.get("lostSteps", 0))
        self.kubectl("delete", "tj", "long", "-n", SPACE, "--wait", "--timeout=120s")

    def test_3_command_line(self):
        job = copy.deepcopy(LONG)
        job["metadata"]["name"] = "typed"
        job["spec"]["storage"]["volume"]["persistentVolumeClaim"]["claimName"] = "typed-job"
        self.world.volume(SPACE, "typed-job")
        self.assertIn("typed", self.trainyard("submit", "-f", "-", input=json.dumps(job)))
        self.world.wait_steps("typed", SPACE, 5)
        log = subprocess.Popen(self.command("logs", "typed", "-f"), stdout=subprocess.PIPE, text=True)
        self.addCleanup(log.kill)

        self.trainyard("scale", "typed", "--workers", "3")  # returns when they run
        self.assertEqual(3, self.world.status("typed", SPACE)["worker"]["ready"])
        self.trainyard("suspend", "typed")
        self.world.wait("the pods to go", lambda: not self.world.pods("typed", SPACE))
        rested = self.step("typed")
        self.assertRegex(self.trainyard("get", "typed"), r"(?m)^typed\s+Suspended\s")
        last = rested + 30
        self.kubectl("patch", "tj", "typed", "-n", SPACE, "--type=merge", "-p",
                     json.dumps({"spec": {"training": {"steps": last}}}))
        self.trainyard("resume", "typed")
        self.world.wait_state("typed", SPACE, "Succeeded")
        self.assertGreater(rested, 0)

        text = self.trainyard("doctor")
        self.assertRegex(text, rf"(?m)^  ok +operator {SYSTEM}/trainyard: (\d+) of \1 ready$")
        self.assertRegex(text, r"(?m)^  ok +trainyard-\S+ leads$")
        self.assertRegex(text, rf"(?m)^  ok +ServiceAccount {SYSTEM}/trainyard may do its work in {SPACE}$")
        self.assertIn(": no problems", text)

        text = self.trainyard("describe", "typed")
        self.assertRegex(text, rf"{last}\s*(/|of)\s*{last}")  # who succeeded has told its last step
        self.assertRegex(text, r"(?i)state:?\s+Succeeded")
        written, _ = log.communicate(timeout=300)  # it ends with the job
        tasks = set(re.findall(r"(?m)^\S*((?:ps|worker)-\d+)", written))
        self.assertLessEqual({"ps-0", "ps-1", "worker-0", "worker-1", "worker-2"}, tasks, written[-2000:])
        self.trainyard("delete", "typed", "--yes")
        self.assertEqual({}, self.world.pods("typed", SPACE))

    def test_4_all_reduce(self):
        """The example with three workers: two are killed, one leaves, and no step is lost."""
        self.world.volume(SPACE, "ring-job")
        self.trainyard("submit", "-f", str(ROOT / "examples/fashion-mnist/allreduce.yaml"), "--set", "worker.replicas=3",
                       "--set", "training.batchSize=32", "--set", "storage.volume.persistentVolumeClaim.claimName=ring-job")
        name = "fashion-ring"
        workers = [f"{name}-worker-{index}" for index in range(3)]
        self.wait_steps(name, 2)
        before = {pod: identity(found) for pod, found in self.world.pods(name, SPACE).items()}
        self.assertEqual(set(workers), set(before))

        for rank in (1, 0):  # 0 has the coordinator
            begun = self.epochs(workers[0])
            self.assertEqual(1, chaos.kill(self.world, workers[rank]))
            # By one of them: who hears of the next epoch first has nothing to say of this one's end.
            others = set(workers) - {workers[rank]}
            self.world.wait("the killed one to be named", lambda: any(
                f"rank {rank} is worker-{rank}" in self.kubectl("logs", other, "-n", SPACE) for other in others))
            # What is told of steps is half a second old: those of before it died could be the five.
            self.world.wait("the next epoch", lambda: self.epochs(workers[0]) > begun)
            self.wait_steps(name, 5)
        self.assertEqual(before, {pod: identity(found) for pod, found in self.world.pods(name, SPACE).items()},
                         "agents start their programs again, in the same pods")

        self.kubectl("scale", f"tj/{name}", "-n", SPACE, "--replicas=2")
        self.world.wait("a worker to leave", lambda: set(self.world.pods(name, SPACE)) == set(workers[:2]))
        self.wait_steps(name, 5)
        # Of which some are made before the coordinator hears of it: a step takes a tenth of a second.
        last = self.world.global_step(name, SPACE) + 120
        self.kubectl("patch", "tj", name, "-n", SPACE, "--type=merge", "-p",
                     json.dumps({"spec": {"training": {"steps": last}}}))
        status = self.world.wait_state(name, SPACE, "Succeeded")
        self.assertEqual(last, status["progress"]["step"])
        self.assertEqual(0, status.get("lostSteps", 0))
        self.assertGreater(float(status["progress"]["accuracy"]), 0.3)
        self.kubectl("delete", "tj", name, "-n", SPACE, "--wait", "--timeout=120s")

    def epochs(self, chief):
        """How many the coordinator in that pod has begun, in all of its lives."""
        return len(re.findall(r"epoch \d+ starts at step", self.kubectl("logs", chief, "-n", SPACE)))

    def test_5_processes_of_one_pod(self):
        """The example with one pod of three processes."""
        self.world.volume(SPACE, "pod-job")
        name, pod = "fashion-pod", "fashion-pod-worker-0"
        example = (ROOT / "examples/fashion-mnist/allreduce.yaml").read_text().replace("name: fashion-ring", "name: " + name)
        self.trainyard("submit", "-f", "-", "--set", "worker.replicas=1", "--set", "worker.processesPerPod=3",
                       "--set", "training.batchSize=32", "--set", "training.steps=60",
                       "--set", "storage.volume.persistentVolumeClaim.claimName=pod-job", input=example)
        status = self.world.wait_state(name, SPACE, "Succeeded")
        self.assertEqual(60, status["progress"]["step"])
        self.assertEqual(0, status.get("restarts", 0))
        self.assertEqual(1, status["worker"]["desired"])
        self.assertGreater(float(status["progress"]["accuracy"]), 0.3)
        self.assertEqual({pod}, set(self.world.pods(name, SPACE)))
        log = self.kubectl("logs", pod, "-n", SPACE)
        for process in ("worker-0.0", "worker-0.1", "worker-0.2"):
            self.assertIn(process, log)
        self.assertIn("with 3 workers", log)
        self.assertNotIn("go over TCP", log)  # they share memory
        self.kubectl("delete", "tj", name, "-n", SPACE, "--wait", "--timeout=120s")

    def begin_flights(self):
        """The example with embedding tables on two servers, with flights that are made up."""
        where = self.world.volume(SPACE, "flights")
        with tempfile.TemporaryDirectory() as temporary:
            for name, count in {"train.csv": 4000, "eval.csv": 1000}.items():
                made = pathlib.Path(temporary) / name
                made_up_flights.write(made, count)
                self.world.cluster.inside("tee", where / name, input=made.read_text(), check=True)
        example = (ROOT / "examples/ctr/flights.yaml").read_text()
        example = example.replace("passes: 2", "steps: 1000000")
        # As the others have something else to do on this machine.
        slow = "template: {spec: {containers: [{name: task, resources: {limits: {cpu: 100m}}}]}}"
        example, edits = re.subn(r"(  (?:ps|worker):\n    replicas: 2\n)", rf"\1    {slow}\n", example)
        self.assertEqual(2, edits)
        self.world.apply(example, namespace=SPACE)
        self.world.wait_steps("flights", SPACE, 5)

    def end_flights(self):
        row = self.kubectl("get", "tj", "flights", "-n", SPACE, "--no-headers").split()
        self.assertEqual(["flights", "Running", "2/2", "2/2", "0"], row[:5])
        last = self.world.global_step("flights", SPACE) + 200
        self.kubectl("patch", "tj", "flights", "-n", SPACE, "--type=merge", "-p",
                     json.dumps({"spec": {"training": {"steps": last}}}))
        status = self.world.wait_state("flights", SPACE, "Succeeded")
        self.assertGreaterEqual(status["progress"]["step"], last)  # beyond, where the edit came later
        self.assertEqual(0, status.get("lostSteps", 0))
        # Four of five are in time.
        self.assertGreater(float(status["progress"]["accuracy"]), 0.6)
        self.kubectl("delete", "tj", "flights", "-n", SPACE, "--wait", "--timeout=120s")

    def command(self, *words):
        return [pathlib.Path(os.environ["TRAINYARD_BIN"]) / "trainyard", *words, "-n", SPACE,
                "--kubeconfig", self.world.cluster.kubeconfig]

    def trainyard(self, *words, **more):
        timeout = [] if words[0] in ("submit", "get", "describe", "doctor") else ["--timeout", "1800"]
        done = subprocess.run(self.command(*words, *timeout), capture_output=True, text=True, timeout=2000, **more)
        self.assertEqual(0, done.returncode, f"{words}: {done.stderr}")
        return done.stdout

    def servers(self, number):
        self.kubectl("patch", "tj", "long", "-n", SPACE, "--type=merge", "-p",
                     json.dumps({"spec": {"ps": {"replicas": number}}}))

    def until_first_step(self, what, edit):
        """Edits the long job, and prints how long it is to the first step of those whom it is to have then."""

        def steps():
            return re.findall(r"has taken its first step (\S+) s after", self.kubectl("logs", "long-ps-0", "-n", SPACE))

        before, began = len(steps()), time.monotonic()
        edit()
        found = self.world.wait(f"the first step with {what}", lambda: steps()[before:])
        print(f"{what}: {time.monotonic() - began:.1f} s from the edit to the first step, {found[0]} s of them "
              "since the membership came", flush=True)

    def storm(self):
        """Twenty edits at once: the last one counts, and who was always wanted stays as it is."""
        before = {name: identity(pod) for name, pod in self.world.pods("long", SPACE).items()}
        path = f"/apis/trainyard.dev/v1alpha1/namespaces/{SPACE}/trainingjobs/long/scale"
        began = time.monotonic()
        for size in [4, 2, 3, 4] * 4 + [2, 4, 2, 3]:
            status, answer = self.world.cluster.api.request("PATCH", path, {"spec": {"replicas": size}},
                                                            "application/merge-patch+json")
            self.assertEqual(200, status, answer)
        print(f"20 edits of replicas in {time.monotonic() - began:.2f} s", flush=True)
        stayers = {"long-ps-0", "long-ps-1", "long-worker-0", "long-worker-1"}
        self.world.wait("three workers", lambda: self.three_workers(stayers | {"long-worker-2"}))
        self.wait_steps("long", 5)
        after = {name: identity(pod) for name, pod in self.world.pods("long", SPACE).items()}
        self.assertEqual(stayers | {"long-worker-2"}, set(after))
        self.assertEqual({name: before[name] for name in stayers}, {name: after[name] for name in stayers})

    def three_workers(self, pods):
        status = self.world.status("long", SPACE)
        settled = status["observedGeneration"] == self.world.job("long", SPACE)["metadata"]["generation"]
        return settled and status["worker"].get("ready") == 3 and set(self.world.pods("long", SPACE)) == pods

    def keep_operators_busy(self):
        """Rates of an operator without work are zero."""
        self.kubectl("annotate", "tj", "long", "-n", SPACE, "--overwrite", f"looked-at={time.monotonic()}")

    def kill_operators(self):
        old = {pod["metadata"]["uid"] for pod in self.world.operator_pods()}
        self.kubectl("delete", "pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator",
                     "--grace-period=0", "--force")
        self.world.wait("new operators", lambda: any(
            pod["metadata"]["uid"] not in old and all(c["ready"] for c in pod["status"]["containerStatuses"])
            for pod in self.world.operator_pods() if pod["status"].get("containerStatuses")), 300)

    def chief(self):
        """Where the chief's metrics are; asked for while there is an API."""
        address = self.world.pods("long", SPACE)["long-worker-0"]["status"]["podIP"]
        return f"http://{address}:{METRICS_PORT}/metrics"

    def goes_on(self, page, while_):
        """What the chief says of its steps is read from the node, as long as `while_` says."""
        counts = []
        while while_():
            counts += [float(line.split()[-1]) for line in self.world.cluster.fetch(page).splitlines()
                       if line.startswith(("trainyard_worker_steps_total ", "trainyard_worker_steps_total{"))]
            time.sleep(1)
        self.assertGreater(len(counts), 2, "the worker's metrics were not read")
        self.assertGreater(counts[-1], counts[0], f"no step was made: {counts}")

    def without_apiserver(self):
        """For a while."""
        page = self.chief()
        away = subprocess.Popen([sys.executable, "-B", testing.SCRIPT, "kill", self.world.cluster.folder,
                                 "kube-apiserver", "--seconds", "12"])
        try:
            time.sleep(2)
            self.goes_on(page, lambda: away.poll() is None)
        finally:
            away.wait()

    def with_frozen_operators(self):
        """Longer than the lease of the one that leads, 15 s."""
        page, end = self.chief(), time.monotonic() + 18
        with chaos.frozen_operators(self.world):
            self.goes_on(page, lambda: time.monotonic() < end)

    def without_network(self, pod):
        """Until the others miss it; then it comes back with what it holds."""

        def missed():
            told = f"{pod.removeprefix('long-')} has not been heard of"
            return self.kubectl("logs", "long-ps-0", "-n", SPACE).count(told)

        before = missed()
        with chaos.cut_network(self.world, pod):
            self.world.wait(f"{pod} to be missed", lambda: missed() > before)
        self.wait_steps("long", 5)


if __name__ == "__main__":
    with world(SPACE) as made:
        made.apply(QUOTA, namespace=SPACE)
        made.volume(SPACE, "fashion-mnist", DATA, read_only=True)
        made.volume(SPACE, "fashion-job")
        Fashion.world = made
        program = unittest.main(exit=False, verbosity=2)
    sys.exit(not program.result.wasSuccessful())
