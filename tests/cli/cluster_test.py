#!/usr/bin/env python3
"""`trainyard submit, get, describe, scale, suspend, resume, delete` against a real apiserver.

No operator and no node are there: what they would write into the objects is written here.
"""
import base64
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from rig import testing  # noqa: E402

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.trainyard.dev"
PROGRAM = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "trainyard"
JOB = """apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: fashion, labels: {team: vision}}
spec:
  ps: {replicas: 1}
  worker: {replicas: 2, maxReplicas: 4}
  training:
    model: {name: mlp, hidden: [8]}
    data: {format: synthetic, shape: [4, 4, 1], classes: 3, samples: 64, evalSamples: 16}
    batchSize: 8
    steps: 700
    optimizer: {name: SGD, learningRate: 0.1}
"""
SECONDS = 120  # against hangs only


def until(what, condition):
    end = time.monotonic() + SECONDS
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"timed out after {SECONDS} s waiting for {what}"
        time.sleep(0.05)


class ClusterTest(unittest.TestCase):
    cluster = None

    @classmethod
    def setUpClass(cls):
        cls.api = cls.cluster.api
        status, answer = cls.api.apply(DEFINITION, (ROOT / "deploy" / "crds.yaml").read_text(encoding="utf-8"))
        assert status in (200, 201), answer

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.file = self.home / "job.yaml"
        self.file.write_text(JOB)
        self.namespace = f"cli-{uuid.uuid4().hex[:8]}"
        self.must("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.addCleanup(self.api.request, "DELETE", f"/api/v1/namespaces/{self.namespace}")
        self.jobs = f"/apis/trainyard.dev/v1alpha1/namespaces/{self.namespace}/trainingjobs"
        self.core = f"/api/v1/namespaces/{self.namespace}"
        until("the definition is served", lambda: self.api.get(self.jobs)[0] == 200)
        # A context that names the namespace, as a user would have it.
        config = json.loads(self.cluster.kubeconfig.read_text())
        config["contexts"][0]["context"]["namespace"] = self.namespace
        self.config = self.write_config("config", config)
        # As with kubectl nobody has to say where it is.
        self.environment = {"HOME": str(self.home), "KUBECONFIG": str(self.config), "PATH": os.environ["PATH"]}

    def write_config(self, name, config):
        path = self.home / name
        path.write_text(json.dumps(config))
        return path

    def must(self, method, path, body=None, content_type="application/json"):
        status, answer = self.api.request(method, path, body, content_type)
        self.assertIn(status, (200, 201, 202), answer)
        return answer

    def run_cli(self, *arguments, code=0, stdin=None, **environment):
        # In an empty folder: nothing local is meant.
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=SECONDS * 2,
                              cwd=self.home, env={**self.environment, **environment}, input=stdin or "")
        self.assertEqual(code, done.returncode, f"{arguments}: {done.stdout}{done.stderr}")
        return done.stderr if code else done.stdout

    def submit(self, *more, **options):
        return self.run_cli("submit", "-f", self.file, *more, **options)

    def job(self):
        return self.must("GET", f"{self.jobs}/fashion")

    def set_status(self, status):
        self.must("PATCH", f"{self.jobs}/fashion/status", {"status": status}, "application/merge-patch+json")

    @contextlib.contextmanager
    def operator(self):
        """Brings the job's status up to its spec, as an operator whose tasks start at once."""
        stop = threading.Event()

        def work():
            while not stop.wait(0.05):
                with contextlib.suppress(OSError, AssertionError):
                    job = self.job()
                    spec, suspended = job["spec"], job["spec"]["runPolicy"].get("suspend", False)
                    ready = 0 if suspended else spec["worker"]["replicas"]
                    self.set_status({"state": "Suspended" if suspended else "Running",
                                     "observedGeneration": job["metadata"]["generation"],
                                     "worker": {"desired": ready, "ready": ready},
                                     "checkpoint": {"step": 40, "durable": True},
                                     "progress": {"step": 41, "steps": 700}})

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    # --- submit

    def test_submit_creates_changes_and_leaves_alone(self):
        out = self.submit()
        self.assertEqual(f"fashion created in namespace {self.namespace}\n"
                         f"follow it with: trainyard logs fashion -f -n {self.namespace}\n", out)
        job = self.job()
        self.assertEqual({"team": "vision"}, job["metadata"]["labels"])
        self.assertEqual("ParameterServer", job["spec"]["strategy"], "the server's default")
        owned = next(entry for entry in job["metadata"]["managedFields"] if entry["manager"] == "trainyard")
        self.assertEqual("Apply", owned["operation"])
        self.assertNotIn("f:strategy", owned["fieldsV1"]["f:spec"], "only what the file says")
        self.assertIn("fashion unchanged", self.submit())
        self.assertIn("fashion configured", self.submit("--set", "worker.replicas=3"))
        self.assertEqual(3, self.job()["spec"]["worker"]["replicas"])
        # A field that is named no more goes back to the server's default.
        self.assertIn("fashion configured", self.submit("--set", "runPolicy.backoffLimit=9"))
        self.assertEqual(9, self.job()["spec"]["runPolicy"]["backoffLimit"])
        self.submit()
        self.assertNotEqual(9, self.job()["spec"]["runPolicy"].get("backoffLimit"))

    def test_submit_leaves_to_controllers_what_they_hold(self):
        self.submit("--set", "worker.replicas=2")

        def scale(replicas, manager):
            self.must("PATCH", f"{self.jobs}/fashion/scale?fieldManager={manager}", {"spec": {"replicas": replicas}},
                      "application/merge-patch+json")

        scale(4, "kubectl")  # a person, as the file is
        self.assertIn("fashion configured", self.submit("--set", "worker.replicas=2"))
        scale(4, "kube-controller-manager")  # an autoscaler's
        told = self.submit("--set", "worker.replicas=2", code=1)
        self.assertIn('"kube-controller-manager"', told)
        self.assertIn(".spec.worker.replicas", told)
        self.assertIn("--force", told)
        self.assertEqual(4, self.job()["spec"]["worker"]["replicas"])
        self.assertIn("fashion configured", self.submit("--set", "worker.replicas=2", "--force"))
        self.assertEqual(2, self.job()["spec"]["worker"]["replicas"])

    def test_submit_from_standard_input_and_dry_run(self):
        self.assertIn("fashion created", self.run_cli("submit", "-f", "-", "--dry-run", stdin=JOB))
        self.assertEqual(404, self.api.get(f"{self.jobs}/fashion")[0])
        self.assertIn("fashion created", self.run_cli("submit", "-f", "-", stdin=JOB))

    def test_submit_refuses_what_validate_refuses(self):
        self.file.write_text(JOB.replace("batchSize: 8", "batchSise: 8"))
        told = self.submit(code=2)
        self.assertIn("job.yaml:10: spec.training.batchSise: unknown field", told)
        self.assertEqual(404, self.api.get(f"{self.jobs}/fashion")[0])

    def test_the_apiserver_refuses_by_field(self):
        told = self.submit("--set", 'metadata.annotations["no blanks"]=x', code=2)
        self.assertEqual(1, told.count("\n"), told)
        self.assertIn('TrainingJob.trainyard.dev "fashion" is invalid: metadata.annotations: Invalid value', told)
        self.submit()
        told = self.submit("--set", "training.batchSize=16", code=2)
        self.assertEqual(1, told.count("\n"), told)
        self.assertIn("spec.training.batchSize: ", told)
        self.assertIn("cannot change while the job runs: suspend it first", told)
        self.assertEqual(8, self.job()["spec"]["training"]["batchSize"])

    def test_namespace_of_file_and_flag_must_agree(self):
        self.file.write_text(JOB.replace("name: fashion", f"name: fashion, namespace: {self.namespace}"))
        told = self.submit("-n", "other", code=2)
        self.assertIn(f"metadata.namespace: the file says {self.namespace}, --namespace other", told)
        self.assertIn("fashion created", self.submit("-n", self.namespace))

    # --- get, describe

    def test_get(self):
        self.assertEqual("", self.run_cli("get", "--cluster"))
        self.submit()
        out = self.run_cli("get", "--cluster")
        self.assertRegex(out, r"(?m)^fashion +Pending +0/700 +0/2 +0/1 +- +- +- +\d+s$")
        self.set_status({"state": "Running", "ps": {"ready": 1}, "worker": {"ready": 1}, "restarts": 2,
                         "checkpoint": {"step": 100, "durable": True},
                         "progress": {"step": 120, "steps": 700, "loss": "0.47414", "accuracy": "0.8106",
                                      "examplesPerSecond": "1333"}})
        out = self.run_cli("get", "-n", self.namespace)
        self.assertEqual("NAME     STATE    STEP     WORKERS  PS   LOSS    ACCURACY  EXAMPLES/S  AGE\n"
                         "fashion  Running  120/700  1/2      1/1  0.4741  0.8106    1,333       AGE\n",
                         re.sub(r"\d+[ms]\d*s?$", "AGE", out, flags=re.M))
        self.assertIn("RESTARTS  CHECKPOINT  STRATEGY         REASON\n", self.run_cli("get", "--cluster", "-o", "wide"))
        self.assertEqual("fashion\n", self.run_cli("get", "-o", "name", "--kubeconfig", self.config))
        self.assertRegex(self.run_cli("get", "-A"), rf"(?m)^NAMESPACE .*\n(.*\n)*{self.namespace} +fashion +Running")
        shown = json.loads(self.run_cli("get", "fashion", "--cluster", "-o", "json"))
        self.assertEqual(self.job()["spec"], shown["spec"])
        self.assertNotIn("managedFields", shown["metadata"])
        # What was shown can be submitted again.
        self.file.write_text(self.run_cli("get", "fashion", "--cluster", "-o", "yaml"))
        self.submit()

    def test_describe(self):
        self.submit()
        job = self.job()
        self.set_status({"state": "Restarting", "ps": {"ready": 1}, "worker": {"ready": 0}, "restarts": 1,
                         "images": {"runtime": "r:1", "agent": "a:1"},
                         "checkpoint": {"step": 100, "durable": True, "time": "2026-01-01T00:00:00Z"},
                         "progress": {"step": 120, "steps": 700},
                         "tasks": [{"task": "worker-1", "created": 3, "restarts": 2}],
                         "conditions": [{"type": "Restarting", "status": "True", "reason": "TaskLost",
                                         "message": "worker-1 is created again",
                                         "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        until("the namespace's account", lambda: self.api.get(f"{self.core}/serviceaccounts/default")[0] == 200)
        self.add_pod(job, "ps", 0, {"phase": "Running", "containerStatuses": [self.container(
            {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True)]})
        self.add_pod(job, "worker", 0, {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]})
        self.add_event(job, "TaskLost", "worker-1: killed by signal 9", 3)
        out = self.run_cli("describe", "fashion", "--cluster")
        masked = re.sub(r"(?<![\w-])\d+[smhd][\dsmh]*\b", "AGE", re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", out))
        self.assertEqual(f"""Name:         fashion
Namespace:    {self.namespace}
State:        Restarting
Image:        r:1
Agent image:  a:1
Created:      TIME (AGE ago)
Spec:
  model      mlp
  data       synthetic
  optimizer  SGD, learning rate 0.1
  batch      8 per worker
  update     Sync
  seed       1
  tasks      1 parameter servers, 2 workers
Progress:
  step        120/700
  checkpoint  100
  restarts    1
Tasks:
  NAME      STATE                    POD               NODE    LIFE  RESTARTS  AGE
  ps-0      Ready                    fashion-ps-0      node-1  1     0         AGE
  worker-0  Waiting (Unschedulable)  fashion-worker-0  -       1     0         AGE
  worker-1  -                        -                 -       3     2         -
Checkpoints:
  STEP  DURABLE  AGE
  100   yes      AGE
Conditions:
  TYPE        STATUS  AGE   REASON    MESSAGE
  Restarting  True    AGE  TaskLost  worker-1 is created again
Events:
  AGE   TYPE     REASON    MESSAGE
  AGE  Warning  TaskLost  (x3) worker-1: killed by signal 9
""", masked)

    @staticmethod
    def container(state, ready=False):
        return {"name": "task", "state": state, "ready": ready, "restartCount": 0, "image": "r:1", "imageID": ""}

    def add_pod(self, job, role, index, status):
        owner = {"apiVersion": job["apiVersion"], "kind": "TrainingJob", "name": "fashion",
                 "uid": job["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
        name = f"fashion-{role}-{index}"
        labels = {"job-name": "fashion", "role": role, "index": str(index), "created": "1"}
        spec = {"containers": [{"name": "task", "image": "r:1"}]}
        if status["phase"] == "Running":
            spec["nodeName"] = "node-1"
        self.must("POST", f"{self.core}/pods", {
            "metadata": {"name": name, "ownerReferences": [owner],
                         "labels": {f"trainyard.dev/{key}": value for key, value in labels.items()},
                         "annotations": {"trainyard.dev/task-container": "task"}},
            "spec": spec})
        self.must("PATCH", f"{self.core}/pods/{name}/status", {"status": status}, "application/merge-patch+json")

    def add_event(self, job, reason, message, count):
        self.must("POST", f"{self.core}/events", {
            "metadata": {"name": f"fashion.{uuid.uuid4().hex[:8]}"}, "type": "Warning", "reason": reason,
            "message": message, "count": count, "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "trainyard-operator"},
            "involvedObject": {"apiVersion": job["apiVersion"], "kind": "TrainingJob", "name": "fashion",
                               "namespace": self.namespace, "uid": job["metadata"]["uid"]}})

    def test_logs_of_pods_that_have_not_started(self):
        self.submit()
        done = subprocess.run([PROGRAM, "logs", "fashion", "--cluster"], capture_output=True, text=True,
                              timeout=SECONDS, cwd=self.home, env=self.environment)
        self.assertEqual((0, "", "No log lines yet: 'fashion' is Pending.\n"),
                         (done.returncode, done.stdout, done.stderr))
        self.assertIn("has no task 'worker-9'", self.run_cli("logs", "fashion", "worker-9", "--cluster", code=2))

    # --- scale, suspend, resume, delete

    def test_scale(self):
        self.submit()
        with self.operator():
            self.assertEqual("fashion: workers 2 -> 4, step 41\n",
                             self.run_cli("scale", "fashion", "--workers", "4", "--cluster"))
            self.assertEqual(4, self.job()["spec"]["worker"]["replicas"])
            # A later submission of a file that says another number is a wish, too.
            self.assertIn("fashion configured", self.submit())
        self.set_status({"state": "Running", "worker": {"desired": 2, "ready": 2}})
        told = self.run_cli("scale", "fashion", "--workers", "5", "--cluster", code=2)
        self.assertIn("maxReplicas", told)
        told = self.run_cli("scale", "fashion", "--workers", "3", "--cluster", "--timeout", "1", code=1)
        self.assertIn("'fashion' does not run with 3 workers after 1 s: 2 are ready, it is Running", told)
        self.assertEqual("fashion: workers 3 -> 2\n",
                         self.run_cli("scale", "fashion", "--workers", "2", "--cluster", "--no-wait"))

    def test_suspend_and_resume(self):
        self.submit()
        with self.operator():
            self.assertEqual("fashion suspended at step 40\n", self.run_cli("suspend", "fashion", "--cluster"))
            self.assertTrue(self.job()["spec"]["runPolicy"]["suspend"])
            self.assertEqual("fashion is suspended already, at step 40\n",
                             self.run_cli("suspend", "fashion", "--cluster"))
            self.assertEqual("fashion: workers 2 -> 3, from its next start (it is Suspended)\n",
                             self.run_cli("scale", "fashion", "--workers", "3", "--cluster"))
            self.assertEqual("fashion goes on, step 41\n", self.run_cli("resume", "fashion", "--cluster"))
            self.assertEqual("fashion is not suspended, step 41\n", self.run_cli("resume", "fashion", "--cluster"))
        self.set_status({"state": "Succeeded"})
        self.assertIn("'fashion' has ended already: Succeeded", self.run_cli("suspend", "fashion", "--cluster", code=1))
        self.assertIn("'fashion' has ended already: Succeeded", self.run_cli("resume", "fashion", "--cluster", code=1))
        self.assertIn("it has ended already (Succeeded)", self.submit("--set", "worker.replicas=3"))
        self.assertIn("cannot change: the job has ended", self.submit(code=2))

    def test_delete(self):
        self.submit()
        told = self.run_cli("delete", "fashion", "--cluster", code=2)
        self.assertIn(f"give --yes to delete trainingjob fashion in namespace {self.namespace}", told)
        self.assertEqual("fashion deleted\n", self.run_cli("delete", "fashion", "--cluster", "--yes"))
        self.assertEqual(404, self.api.get(f"{self.jobs}/fashion")[0])
        self.assertIn("there is no job 'fashion'", self.run_cli("delete", "fashion", "--cluster", "--yes", code=2))

    def test_delete_waits_for_what_holds_the_job(self):
        self.submit()
        held = {"metadata": {"finalizers": ["example.org/held"]}}
        self.must("PATCH", f"{self.jobs}/fashion", held, "application/merge-patch+json")
        try:
            self.assertEqual("fashion is being deleted\n",
                             self.run_cli("delete", "fashion", "--cluster", "--yes", "--no-wait"))
            told = self.run_cli("delete", "fashion", "--cluster", "--yes", "--timeout", "1", code=1)
            self.assertIn("'fashion' is still there after 1 s", told)
            self.assertIn("Terminating", self.run_cli("get", "--cluster"))
            self.assertIn("'fashion' is being deleted", self.submit(code=1))
            self.assertIn("'fashion' is being deleted", self.run_cli("suspend", "fashion", "--cluster", code=1))
        finally:
            self.must("PATCH", f"{self.jobs}/fashion", {"metadata": {"finalizers": None}},
                      "application/merge-patch+json")

    # --- what goes wrong

    def test_unknown_names(self):
        self.submit()
        self.assertEqual(f"trainyard get: there is no job 'fashon' in namespace {self.namespace}: did you mean "
                         "'fashion'?\n", self.run_cli("get", "fashon", "--cluster", code=2))
        self.assertIn("no 'lab' among contexts", self.run_cli("get", "--context", "lab", code=2))
        told = self.submit("-n", "nowhere-at-all", code=2)
        self.assertIn('namespaces "nowhere-at-all" not found', told)

    def test_no_cluster(self):
        told = self.run_cli("get", "--cluster", code=2, KUBECONFIG="")
        self.assertEqual(1, told.count("\n"), told)
        self.assertIn("no cluster is known", told)
        self.assertIn("nowhere", self.run_cli("get", "--kubeconfig", "nowhere", code=2))
        # ~/.kube/config, as kubectl.
        (self.home / ".kube").mkdir()
        (self.home / ".kube" / "config").write_text(self.config.read_text())
        self.assertIn("fashion created", self.submit(KUBECONFIG=""))

    def test_unreachable(self):
        config = json.loads(self.config.read_text())
        config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
        path = self.write_config("unreachable", config)
        told = self.run_cli("get", "--kubeconfig", path, code=1)
        self.assertEqual(1, told.count("\n"), told)
        self.assertIn("trainyard get: cannot reach https://127.0.0.1:1: ", told)

    def config_with_token(self, token):
        config = json.loads(self.config.read_text())
        config["users"][0]["user"] = {"token": token}
        return self.write_config("token", config)

    def test_a_token_that_is_not_accepted(self):
        told = self.run_cli("get", "--kubeconfig", self.config_with_token("nonsense"), code=1)
        self.assertEqual(1, told.count("\n"), told)
        self.assertIn("does not accept this user's certificate or token", told)

    def token_without_rights(self):
        until("the namespace's account", lambda: self.api.get(f"{self.core}/serviceaccounts/default")[0] == 200)
        granted = self.must("POST", f"{self.core}/serviceaccounts/default/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}})
        token = granted["status"]["token"]
        self.assertEqual("default", json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
                         ["kubernetes.io"]["serviceaccount"]["name"])
        return token

    def test_a_user_without_rights(self):
        path = self.config_with_token(self.token_without_rights())
        told = self.run_cli("get", "--kubeconfig", path, code=1)
        self.assertEqual(1, told.count("\n"), told)
        self.assertIn("trainingjobs.trainyard.dev is forbidden: User", told)
        self.assertIn("is forbidden", self.submit("--kubeconfig", path, code=1))

    # --- doctor

    def doctor(self, *arguments):
        """Exit code and text."""
        done = subprocess.run([PROGRAM, "doctor", "--cluster", *arguments], capture_output=True, text=True,
                              timeout=SECONDS, cwd=self.home, env=self.environment)
        self.assertEqual("", done.stderr)
        return done.returncode, done.stdout

    def apply_definition(self):
        status, answer = self.api.apply(DEFINITION, (ROOT / "deploy" / "crds.yaml").read_text(encoding="utf-8"))
        self.assertIn(status, (200, 201), answer)
        until("the definition is served", lambda: self.api.get(self.jobs)[0] == 200)

    def test_doctor_says_what_is_not_installed(self):
        if "TRAINYARD_CLUSTER" in os.environ:
            self.skipTest("with the definition somebody's jobs would go")
        self.addCleanup(self.apply_definition)
        self.must("DELETE", DEFINITION)
        until("the definition to go", lambda: self.api.get(DEFINITION)[0] == 404)
        code, text = self.doctor()
        self.assertEqual(1, code, text)
        self.assertRegex(text, r"(?m)^  ok +https://\S+ answers: Kubernetes v1\.")
        missing = r"(?m)^  problem  the cluster knows no TrainingJobs: .*\n(  problem .*\n)? +helm install trainyard"
        self.assertRegex(text, missing)
        self.apply_definition()
        code, text = self.doctor()
        self.assertIn("  ok       the definition of TrainingJob has the fields of this release\n", text)
        self.assertIn("  problem  no operator is installed: jobs stay Pending\n", text)
        self.assertIn(f"  ok       all that the commands need in namespace {self.namespace}\n", text)
        self.assertIn(f"  ok       none in namespace {self.namespace}\n", text)
        self.assertEqual((1, 1), (code, json.loads(self.doctor("-o", "json")[1])["problems"]))

    def test_doctor_of_a_user_without_rights(self):
        published = "/openapi/v3/apis/trainyard.dev/v1alpha1"
        until("the definition is published", lambda: self.api.get(published)[0] == 200)
        code, text = self.doctor("--kubeconfig", self.config_with_token(self.token_without_rights()))
        self.assertEqual(1, code)
        # What everybody may read of a definition is enough.
        self.assertIn("  ok       the definition of TrainingJob has the fields of this release\n", text)
        self.assertRegex(text, r"(?m)^  problem  not allowed in namespace \S+: get trainingjobs \(trainyard describe\), ")
        for what in ("operator", "quotas", "claims", "nodes and GPUs", "jobs"):
            self.assertRegex(text, rf"(?m)^  unknown  {what}: .* is forbidden: ")

    def test_doctor_of_a_cluster_that_cannot_be_asked(self):
        code, text = self.doctor("--kubeconfig", self.config_with_token("nonsense"))
        self.assertEqual((1, 1), (code, text.count("  problem  ")), text)
        self.assertIn("does not accept this user's certificate or token", text)
        code, text = self.doctor("--context", "nowhere")
        self.assertEqual((2, 1), (code, text.count("  problem  ")), text)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            config = json.loads(self.config.read_text())
            config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{silent.getsockname()[1]}"
            code, text = self.doctor("--kubeconfig", self.write_config("silent", config))
        self.assertEqual((1, 1), (code, text.count("  problem  ")), text)
        self.assertIn("not done within 5.0 s", text)

    def test_local_jobs_stay_local(self):
        self.submit()
        done = subprocess.run([PROGRAM, "get"], capture_output=True, text=True, timeout=SECONDS, cwd=self.home,
                              env=self.environment)
        self.assertEqual((0, "", "No jobs found in runs.\n"), (done.returncode, done.stdout, done.stderr))
        self.assertIn("there is no job 'fashion' in runs", self.run_cli("delete", "fashion", "--yes", code=2))
        self.assertIn("excludes", self.run_cli("get", "--cluster", "--runs", "runs", code=2))


if __name__ == "__main__":
    with testing.cluster(control_plane=True) as running:
        ClusterTest.cluster = running
        program = unittest.main(exit=False)
    sys.exit(not program.result.wasSuccessful())
