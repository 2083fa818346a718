#!/usr/bin/env python3
"""`trainyard logs` of pods that a real node runs. No operator looks after the job: its pods are made here as it makes
them."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from rig import shell_image, testing  # noqa: E402

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.trainyard.dev"
PROGRAM = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "trainyard"
# An operator that an earlier test has left in the cluster would see a worker that failed, and end the job.
JOB = {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "chatty"},
       "spec": {"ps": {"replicas": 1}, "worker": {"replicas": 1}, "runPolicy": {"managedBy": "logs.test/nobody"}}}
SECONDS = 300  # against hangs only


def until(what, condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"timed out after {SECONDS} s waiting for {what}"
        time.sleep(0.1)


class Logs(unittest.TestCase):
    cluster = None

    def setUp(self):
        self.api = self.cluster.api
        status, answer = self.api.apply(DEFINITION, (ROOT / "deploy" / "crds.yaml").read_text(encoding="utf-8"))
        self.assertIn(status, (200, 201), answer)
        self.namespace = f"logs-{uuid.uuid4().hex[:8]}"
        self.must("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.addCleanup(self.api.request, "DELETE", f"/api/v1/namespaces/{self.namespace}")
        self.core = f"/api/v1/namespaces/{self.namespace}"
        self.jobs = f"/apis/trainyard.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs"
        until("the definition is served", lambda: self.api.get(self.jobs)[0] == 200)
        until("the namespace's account", lambda: self.api.get(f"{self.core}/serviceaccounts/default")[0] == 200)
        self.job = self.must("POST", self.jobs, JOB)

    def must(self, method, path, body, content_type="application/json"):
        status, answer = self.api.request(method, path, body, content_type)
        self.assertIn(status, (200, 201, 202), answer)
        return answer

    def add_pod(self, role, script, created=1):
        owner = {"apiVersion": self.job["apiVersion"], "kind": "TrainingJob", "name": "chatty",
                 "uid": self.job["metadata"]["uid"], "controller": True}
        labels = {"job-name": "chatty", "role": role, "index": "0", "created": str(created)}
        self.must("POST", f"{self.core}/pods", {
            "metadata": {"name": f"chatty-{role}-0", "ownerReferences": [owner],
                         "labels": {f"trainyard.dev/{key}": value for key, value in labels.items()},
                         "annotations": {"trainyard.dev/task-container": "task"}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                     "containers": [{"name": "task", "image": shell_image.NAME, "command": ["sh", "-c", script]},
                                    {"name": "other", "image": shell_image.NAME,
                                     "command": ["sh", "-c", "echo not asked for"]}]}})

    def command(self, *arguments):
        return [PROGRAM, "logs", "chatty", "--kubeconfig", self.cluster.kubeconfig, "-n", self.namespace, *arguments]

    def logs(self, *arguments):
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=SECONDS, check=True).stdout

    def phase(self, pod):
        return self.api.get(f"{self.core}/pods/{pod}")[1].get("status", {}).get("phase")

    def test_logs_are_put_together_and_followed(self):
        self.add_pod("ps", "for i in 1 2 3; do echo ps line $i; done; sleep 3600")
        self.add_pod("worker", "echo first life; until [ -e /tmp/go ]; do sleep 0.1; done; echo last words; exit 9")
        until("both run", lambda: {self.phase("chatty-ps-0"), self.phase("chatty-worker-0")} == {"Running"})
        until("both have logged", lambda: len(self.logs().splitlines()) == 4)
        self.assertEqual({"[ps-0] ps line 1", "[ps-0] ps line 2", "[ps-0] ps line 3", "[worker-0] first life"},
                         set(self.logs().splitlines()))
        self.assertEqual("ps line 2\nps line 3\n", self.logs("ps-0", "--tail", "2"))
        with tempfile.TemporaryFile("w+") as output:
            follower = subprocess.Popen(self.command("-f"), stdout=output, stderr=subprocess.STDOUT)
            try:
                self.follow(follower, output)
            finally:
                follower.kill()
                follower.wait()

    def follow(self, follower, output):
        def told():
            output.seek(0)
            return output.read()

        def heard(line):
            if follower.poll() is not None:
                raise AssertionError(f"it ended with {follower.poll()}: {told()}")
            return line in told()

        def until_heard(line):
            try:
                until(line, lambda: heard(line))
            except AssertionError as error:
                pods = self.cluster.kubectl("get", "pods", "-n", self.namespace, "-o", "yaml")
                raise AssertionError(f"{error}; told:\n{told()}\nby itself:\n{self.logs()}\n{pods}") from error

        until_heard("[worker-0] first life")
        self.cluster.kubectl("exec", "-n", self.namespace, "chatty-worker-0", "-c", "task", "--", "touch", "/tmp/go")
        until_heard("[worker-0] last words")
        # Another pod takes its place, as after a failure.
        self.cluster.kubectl("delete", "pod", "-n", self.namespace, "chatty-worker-0", "--wait")
        self.add_pod("worker", "echo second life", created=2)
        until_heard("[worker-0] second life")
        self.must("PATCH", f"{self.jobs}/chatty/status", {"status": {"state": "Succeeded"}},
                  "application/merge-patch+json")
        # The ps runs on, and says nothing: nobody waits for it.
        self.assertEqual(0, follower.wait(timeout=SECONDS), told())
        lines = told().splitlines()
        self.assertEqual(sorted(set(lines)), sorted(lines), "no line twice")
        self.assertEqual(["[worker-0] first life", "[worker-0] last words", "[worker-0] second life"],
                         [line for line in lines if "worker" in line])


if __name__ == "__main__":
    with testing.cluster() as running, tempfile.TemporaryDirectory() as temporary:
        running.load(shell_image.write(temporary))
        Logs.cluster = running
        program = unittest.main(exit=False)
    sys.exit(not program.result.wasSuccessful())
