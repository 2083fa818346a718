#!/usr/bin/env python3
"""Debian's Prometheus scrapes real jobs of this machine and a real operator: what they export is the catalogue,
and every query of every dashboard and alert returns series."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))

import asking  # noqa: E402
import programs  # noqa: E402
import queries  # noqa: E402
from programs import until  # noqa: E402
from rig import testing  # noqa: E402

JOB = """apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: NAME}
spec:
  SPEC
  worker: {replicas: 2}
  training:
    model: {name: mlp, hidden: [64], simulatedStepSeconds: 0.05}
    data: {format: synthetic, shape: [16, 16, 1], classes: 10, samples: 4096, evalSamples: 64}
    batchSize: 16
    steps: 1000000
    evaluateEverySteps: 40
    checkpoint: {everySeconds: 2, keep: 2}
    optimizer: {name: SGD, learningRate: 0.01}
"""
SERVERS = "ps: {replicas: 2}"
JOB, RING = JOB.replace("SPEC", SERVERS), JOB.replace("SPEC", "strategy: AllReduce")
TABLES = """apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: tables}
spec:
  ps: {replicas: 2}
  worker: {replicas: 2}
  training:
    model: {name: wide_and_deep, hidden: [8]}
    data:
      format: synthetic_ctr
      columns: [{name: user, kind: Id, ids: 100000}, {name: item, kind: Id, ids: 500}, {name: click, kind: Label}]
      samples: 100000
      evalSamples: 64
    tables:
    - {name: user, features: [user], dim: 4, rows: {max: 200000}}
    - {name: wide, features: [user, item], dim: 1, rows: {max: 200000}}
    batchSize: 16
    steps: 1000000
    evaluateEverySteps: 40
    checkpoint: {everySeconds: 2, keep: 2}
    optimizer: {name: Adagrad, learningRate: 0.05}
"""
# Jobs whose model cannot be simulated are slowed down, for they are not alone.
SLOWLY = {"TRAINYARD_FAILPOINTS": "worker.compute=delay(50)"}
FOREIGN = """apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: foreign}
spec:
  ps:
    replicas: 1
    template: {spec: {containers: [{name: task, command: [python3, -B, SCRIPT]}]}}
  worker:
    replicas: 1
    template: {spec: {containers: [{name: task, command: [python3, -B, SCRIPT]}]}}
"""
# Both serve their port; the worker sends to the server for ever, and tells how it gets on.
FOREIGN_PROGRAM = """
import json, os, socket, threading, time
role = os.environ["TRAINYARD_ROLE"]
hosts = {"ps": os.environ["PS_HOSTS"], "worker": os.environ["WORKER_HOSTS"]}
host, port = hosts[role].rsplit(":", 1)
server = socket.create_server((host, int(port)))

def serve():
    while True:
        peer, _ = server.accept()
        threading.Thread(target=echo, args=(peer,), daemon=True).start()

def echo(peer):
    while data := peer.recv(65536):
        peer.sendall(data)

threading.Thread(target=serve, daemon=True).start()
while role == "ps":
    time.sleep(1)
ends = []
for name in ("ps", "worker"):
    address, to = hosts[name].rsplit(":", 1)
    while True:
        try:
            ends.append(socket.create_connection((address, int(to))))
            break
        except OSError:
            time.sleep(0.1)
tell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
tell.connect(os.environ["TRAINYARD_REPORT"])
step = 0
while True:
    for end in ends:
        end.sendall(b"x" * 1000)
        end.recv(65536)
    step += 1
    tell.send(json.dumps({"step": step, "steps": 10**9, "examples": 8 * step, "loss": 1, "accuracy": 0.5,
                          "epoch": 1}).encode())
    time.sleep(0.01)
"""


class ScrapeTest(unittest.TestCase):
    cluster = None
    busy = 0

    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(shutil.rmtree, folder := pathlib.Path(tempfile.mkdtemp()), True)
        cls.namespace = f"monitoring-{uuid.uuid4().hex[:8]}"
        cls.make_namespace()
        script = folder / "program.py"
        script.write_text(FOREIGN_PROGRAM)
        start = cls.enterClassContext if hasattr(cls, "enterClassContext") else cls.enter
        cls.operator = start(programs.Operator(folder / "operator", cls.cluster, cls.namespace))
        cls.trained = start(programs.LocalJob(folder, "trained", JOB.replace("NAME", "trained")))
        cls.ring = start(programs.LocalJob(folder, "ring", RING.replace("NAME", "ring")))
        cls.tables = start(programs.LocalJob(folder, "tables", TABLES, env={**os.environ, **SLOWLY}))
        cls.foreign = start(programs.LocalJob(folder, "foreign", FOREIGN.replace("SCRIPT", str(script))))
        until("the operator serves", cls.operator.address)
        cls.operator.publish()
        cls.prometheus = start(programs.Prometheus(folder / "prometheus", {
            "trainyard-operator": [cls.operator.targets],
            "trainyard-tasks": [job.directory / "prometheus.json" for job in cls.local()]}))
        until("Prometheus is ready", cls.prometheus.ready)
        cls.make_history()

    @classmethod
    def local(cls):
        return cls.trained, cls.ring, cls.tables, cls.foreign

    @classmethod
    def enter(cls, program):
        cls.addClassCleanup(program.__exit__)
        return program

    @classmethod
    def make_namespace(cls):
        api = cls.cluster.api
        definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.trainyard.dev"
        status, answer = api.apply(definition, (queries.ROOT / "deploy/crds.yaml").read_text())
        assert status in (200, 201), answer
        jobs = f"/apis/trainyard.dev/v1alpha1/namespaces/{cls.namespace}/trainingjobs"
        until("the definition is served", lambda: api.get(jobs)[0] == 200)
        status, answer = api.request("POST", "/api/v1/namespaces", {"metadata": {"name": cls.namespace}})
        assert status == 201, answer
        cls.jobs = jobs
        cls.addClassCleanup(api.request, "DELETE", f"/api/v1/namespaces/{cls.namespace}")

    @classmethod
    def make_history(cls):
        """Steps, an evaluation, a checkpoint, a restart; in the cluster jobs with progress, that failed, that went."""
        api = cls.cluster.api
        late = JOB.replace("NAME", "late") + "  runPolicy: {activeDeadlineSeconds: 1}\n"
        status, answer = api.apply(f"{cls.jobs}/late", late)
        assert status in (200, 201), answer
        for name in ("fashion", "short"):
            status, answer = api.apply(f"{cls.jobs}/{name}", JOB.replace("NAME", name))
            assert status in (200, 201), answer
        until("the operator took up the jobs", lambda: all(
            api.get(f"{cls.jobs}/{name}")[1].get("status", {}).get("state") for name in ("fashion", "short")))
        progress = {"status": {"progress": {"step": 40, "steps": 1000000}}}
        status, answer = api.request("PATCH", f"{cls.jobs}/fashion/status", progress, "application/merge-patch+json")
        assert status == 200, answer
        api.request("DELETE", f"{cls.jobs}/short")
        until(lambda: f"all tasks are scraped: {cls.prometheus.query('trainyard_task_ready')}\n{cls.trained.text()}",
              lambda: all(job.alive() for job in cls.local()) and
              cls.prometheus.sum("trainyard_task_ready") == 12)
        # The program of the user's own tells an accuracy, and has no checkpoint.
        until("an evaluation and a checkpoint", lambda: len(cls.prometheus.query("trainyard_evaluation_accuracy")) == 4 and
              len(cls.prometheus.query("trainyard_checkpoint_last_step > 0")) == 3)
        worker = json.loads((cls.trained.directory / "tasks/worker-1/agent.json").read_text())
        os.kill(worker["childPid"], signal.SIGKILL)
        until("it was started again", lambda: cls.prometheus.sum("trainyard_task_restarts_total") == 1)
        until("it trains again", lambda: cls.prometheus.sum(
            'rate(trainyard_worker_steps_total{trainyard_job="trained",index="1"}[10s])') > 0)
        until("the jobs are known", lambda: cls.prometheus.query("trainyard_job_step == 40") and
              cls.prometheus.sum("trainyard_jobs_deleted_total") == 1)

    def test_programs_export_the_catalogue_and_nothing_else(self):
        pages = {"operator": [self.operator.metrics()]}
        for task in ("ps-0", "ps-1", "worker-0", "worker-1"):
            pages.setdefault(task.split("-")[0], []).extend([self.trained.metrics(task), self.tables.metrics(task)])
        pages["all-reduce"] = [self.ring.metrics(task) for task in ("worker-0", "worker-1")]
        pages["foreign"] = [self.foreign.metrics(task) for task in ("ps-0", "worker-0")]
        rows = {row["name"]: row for row in queries.catalogue()}
        for exporter, texts in pages.items():
            found = {}
            for page in texts:
                check = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True)
                self.assertEqual(0, check.returncode, f"{exporter}: {check.stdout}{check.stderr}")
                found |= programs.families(page)
                self.check_labels(page, rows, exporter)
            self.assertEqual(self.claimed(exporter, rows), found, exporter)

    @staticmethod
    def claimed(exporter, rows):
        """{name: type} of what a program of that kind says."""
        roles = {exporter} | ({"worker"} if exporter == "all-reduce" else set())
        claimed = {name: row["type"] for name, row in rows.items() if roles & set(row["exporters"])}
        if exporter == "all-reduce":  # nothing goes to a server and comes from there, and there are no tables
            del claimed["trainyard_worker_receive_bytes_total"], claimed["trainyard_worker_transmit_bytes_total"]
            claimed = {name: kind for name, kind in claimed.items() if not asking.TABLES.search(name)}
        return claimed

    def test_workers_of_all_reduce_say_what_it_moves(self):
        moved = self.prometheus.query('trainyard_collective_bytes_total{op="all_reduce"}')
        self.assertEqual({("0", "transmit"), ("0", "receive"), ("1", "transmit"), ("1", "receive")},
                         {(labels["index"], labels["direction"]) for labels, _ in moved})
        self.assertLess(0, min(value for _, value in moved))
        for labels, share in self.prometheus.query("trainyard_collective_overlap_ratio"):
            self.assertTrue(0 <= share <= 1, labels)

    def check_labels(self, page, rows, exporter):
        own = {"trainyard_job", "role", "index"} if exporter != "operator" else set()
        for line in page.splitlines():
            if line.startswith("#") or "{" not in line:
                continue
            name, rest = line.split("{", 1)
            labels = set(re.findall(r'(\w+)="', rest.rsplit("}", 1)[0]))
            wanted = set(rows[queries.family(name) if queries.family(name) in rows else name]["labels"]) | own
            if name == "trainyard_build_info":
                wanted -= own
            self.assertEqual(wanted, labels - {"le"}, line)

    @classmethod
    def keep_operator_busy(cls):
        """A job comes and one goes: rates of an operator without work are zero."""
        api = cls.cluster.api
        cls.busy += 1
        api.apply(f"{cls.jobs}/busy-{cls.busy}", JOB.replace("NAME", f"busy-{cls.busy}"))
        api.request("DELETE", f"{cls.jobs}/busy-{cls.busy - 1}")

    def answers(self, asked, positive=frozenset()):
        asking.answers(self.prometheus.query, asked, "trained", positive, self.keep_operator_busy,
                       ring="ring", tables="tables")

    def test_every_query_of_every_dashboard_returns_series(self):
        asked = asking.dashboard_questions()
        self.assertGreater(len(asked), 90)
        self.assertLessEqual(asking.KEY_PANELS, {where for where, _ in asked})
        self.answers(asked, asking.KEY_PANELS)

    def test_every_part_of_every_alert_returns_series(self):
        asked = asking.alert_questions()
        self.assertGreater(len(asked), 20)
        self.answers(asked)

    def test_scrapes_leave_nothing_behind(self):
        """10,000 while 20 tasks come and go: of the operator's page, and of a task's one of whose peers does."""
        api = self.cluster.api
        over = threading.Event()

        def come_and_go():
            for at in range(5):  # of four tasks each
                name = f"passing-{at}"
                api.apply(f"{self.jobs}/{name}", JOB.replace("NAME", name))
                until(f"{name} has tasks", lambda: len(api.get(
                    f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=trainyard.dev/job-name={name}")[1]
                    .get("items", [])) == 4)
                api.request("DELETE", f"{self.jobs}/{name}")
                worker = json.loads((self.trained.directory / "tasks/worker-0/agent.json").read_text())
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker["childPid"], signal.SIGKILL)
                over.wait(2)

        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            tasks = threads.submit(come_and_go)
            grown = [threads.submit(programs.scrape_often, address, 5000)
                     for address in (self.operator.address(), self.trained.targets()["ps-0"])]
            grown = [one.result() for one in grown]
            over.set()
            tasks.result()
        self.assertLess(max(grown), 5e6)

    def test_prometheus_takes_rules_and_targets(self):
        for group in self.prometheus.get("rules")["groups"]:
            for rule in group["rules"]:
                self.assertEqual("ok", rule["health"], rule)
        targets = self.prometheus.get("targets")["activeTargets"]
        self.assertEqual(13, len(targets))
        tasks = [one for one in targets if one["scrapePool"] == "trainyard-tasks"]
        self.assertEqual({"default"}, {one["labels"]["namespace"] for one in tasks})


if __name__ == "__main__":
    if shutil.which("prometheus") is None:
        print("skipped: there is no prometheus (deploy/install_packages.sh test)")
        sys.exit(77)
    with testing.cluster(control_plane=True) as ScrapeTest.cluster:
        unittest.main()
