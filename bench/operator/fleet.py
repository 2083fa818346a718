"""What both operators are measured on: a control plane of tests/cluster, with a scheduler, and with nodes
whose kubelets are fake: pods are Running as soon as they have a node, nothing runs."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

import kubelet  # noqa: E402
from rig import build, testing  # noqa: E402
from rig.unavailable import Unavailable  # noqa: E402

NODES = 16
NAMESPACE = "bench"
TICKS = os.sysconf("SC_CLK_TCK")


def used_seconds(place):
    """Of one process, by its folder in /proc."""
    fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def program(place):
    """What a process runs; a script counts, not its interpreter."""
    words = [word.rsplit("/", 1)[-1] for word in (place / "cmdline").read_text().split("\0")]
    scripts = [word for word in words[1:] if word.endswith(".py")]
    return scripts[0] if words[0].startswith("python") and scripts else words[0]


class Process:
    """A program inside the cluster's namespaces; its output goes to a file."""

    def __init__(self, cluster, log, *command):
        with open(log, "wb") as output:
            self.entry = subprocess.Popen(cluster.published.command([str(part) for part in command]),
                                          stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        self.log = pathlib.Path(log)

    def pid(self):
        """The program's, on this side: nsenter waits for it as its only child."""
        own = self.entry.pid
        return int(pathlib.Path(f"/proc/{own}/task/{own}/children").read_text().split()[0])

    def memory(self):
        """Resident bytes: now, at most."""
        lines = pathlib.Path(f"/proc/{self.pid()}/status").read_text().splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Vm")}
        return values["VmRSS"], values["VmHWM"]

    def cpu_seconds(self):
        return used_seconds(pathlib.Path(f"/proc/{self.pid()}"))

    def check(self):
        if self.entry.poll() is not None:
            tail = self.log.read_text(errors="replace").strip().splitlines()[-3:]
            raise RuntimeError(f"{self.log.name} ended with code {self.entry.returncode}: " + " / ".join(tail))

    def stop(self):
        """The program ends with the cluster at the latest."""
        if self.entry.poll() is None:
            with contextlib.suppress(OSError, IndexError):
                subprocess.run(["kill", "-9", str(self.pid())], check=False)
        self.entry.wait()


class Fleet:
    """A running cluster with nodes."""

    def __init__(self, cluster, out, pipes=()):
        self.cluster = cluster
        self.api = cluster.api
        self.out = out
        self.pipes = pipes  # who reads them must be told of pods: ours does that
        self.kubelets = OURS if pipes else kubelets()
        self.processes = []

    def start(self, name, *command):
        process = Process(self.cluster, self.out / f"{name}.log", *command)
        self.processes.append(process)
        return process

    def cpu_seconds(self):
        """Processor time so far by program, of the rig itself and of this side; "all": of the machine."""
        inside = os.readlink(f"/proc/{self.processes[0].pid()}/ns/pid")
        result = {"observer": time.process_time()}
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError):
                if os.readlink(place / "ns" / "pid") != inside:
                    continue
                name = program(place)
                result[name] = result.get(name, 0.0) + used_seconds(place)
        ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        result["all"] = (sum(ticks) - ticks[3] - ticks[4]) / TICKS
        return result

    def must(self, method, path, body=None):
        status, answer = self.api.request(method, path, body)
        if status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {status} {str(answer)[:400]}")
        return answer

    def apply(self, path, manifest):
        status, answer = self.api.apply(path, manifest)
        if status not in (200, 201):
            raise RuntimeError(f"apply {path}: {status} {str(answer)[:400]}")

    def wait(self, what, condition, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for process in self.processes:
                process.check()
            with contextlib.suppress(OSError):
                if condition():
                    return
            time.sleep(0.05)
        raise RuntimeError(f"gave up waiting for {what} after {seconds} s")

    def define(self, text):
        """A CustomResourceDefinition, until it is served."""
        name = next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("  name:"))
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        self.apply(path, text)

        def served():
            conditions = self.api.get(path)[1].get("status", {}).get("conditions") or []
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
        self.wait(f"the definition of {name}", served)

    def namespace(self, name):
        self.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self.wait(f"the account of namespace {name}", lambda: self.api.get(account)[0] == 200)

    def add_nodes(self, nodes=NODES):
        self.start("scheduler", build.find("kube-scheduler"), "--kubeconfig", "/run/cluster/admin.kubeconfig",
                   "--leader-elect=false", "--kube-api-qps", 1000, "--kube-api-burst", 1000)
        if self.kubelets == "kwok":
            self.start("kwok", build.find("kwok"), "--kubeconfig", "/run/cluster/admin.kubeconfig",
                       "--manage-all-nodes=true", "--node-lease-duration-seconds", 200)
        else:
            self.start("kubelet", sys.executable, "-B", HERE / "kubelet.py", "/run/cluster/admin.kubeconfig",
                       *self.pipes)
        for index in range(nodes):
            if self.kubelets == "kwok":
                self.must("POST", "/api/v1/nodes", {"metadata": {"name": f"node-{index}"}})
            else:
                kubelet.register(self.api, f"node-{index}")

        def ready():
            found = self.api.get("/api/v1/nodes")[1]["items"]
            return len(found) == nodes and all(is_ready(node) for node in found)
        self.wait("the nodes", ready)


OURS = "our fake kubelet"


def kubelets():
    """Whose fake kubelets there are: kwok's where it is built, else ours."""
    try:
        build.find("kwok")
    except Unavailable:
        return OURS
    return "kwok"


def is_ready(node):
    conditions = node.get("status", {}).get("conditions", [])
    return not node["spec"].get("taints") and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@contextlib.contextmanager
def fleet(out, pipes=(), nodes=NODES):
    """For the length of a `with`; logs go to the folder `out`. `pipes`: see kubelet.py."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with testing.start(pathlib.Path(folder), control_plane=True) as cluster:
            started = Fleet(cluster, out.resolve(), pipes)
            try:
                started.namespace(NAMESPACE)
                started.add_nodes(nodes)
                yield started
            finally:
                for process in reversed(started.processes):
                    process.stop()


def dump(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
