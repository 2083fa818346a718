"""For tests of jobs that start as a whole: a scheduler that knows groups, and what it did one after the other."""
import contextlib
import json
import subprocess

import beside
from world import build, inside  # puts rig on the path
from rig import namespaces

SCHEDULER = "scheduler-plugins-scheduler"
GROUPS = "podgroups.scheduling.x-k8s.io"
VOLCANO_GROUPS = "podgroups.scheduling.volcano.sh"
UNITS = {"m": 1, "": 1000}


def definition(component, group):
    """The file with the definition of that group's PodGroup."""
    return build.kept(component) / f"{group}_podgroups.yaml"


@contextlib.contextmanager
def scheduler(cluster):
    """A second scheduler, with coscheduling as its README says, for the length of a `with`."""
    profile = {"schedulerName": SCHEDULER,
               "plugins": {"multiPoint": {"enabled": [{"name": "Coscheduling"}]},
                           "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}}}
    # Places are not held for longer than it takes to see who else has one.
    profile["pluginConfig"] = [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 5}}]
    config = inside.HOME / f"{SCHEDULER}.json"
    cluster.inside("tee", config, check=True, input=json.dumps({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False}, "profiles": [profile],
        "clientConnection": {"kubeconfig": f"{inside.HOME}/admin.kubeconfig", "qps": 1000, "burst": 1000}}))
    # What it has refused it looks at again when a pod or a group comes, which nothing here would make; otherwise after
    # this time (five minutes), each 30 s.
    command = [build.find("scheduler-plugins"), "--config", config, "--secure-port", "0",
               "--pod-max-in-unschedulable-pods-duration", "5s"]
    with beside.program(cluster, SCHEDULER, command) as process:
        yield process


def milli(quantity):
    """Thousandths of a CPU."""
    number = quantity.rstrip("m")
    return int(float(number) * UNITS[quantity[len(number):]])


def requested(pod):
    """What a pod keeps of a node's CPU, in thousandths."""
    def of(name):
        return [milli(c.get("resources", {}).get("requests", {}).get("cpu", "0")) for c in pod["spec"].get(name, [])]

    return max([sum(of("containers")), *of("initContainers")])


def holds(pod):
    """It has a place on a node."""
    return "nodeName" in pod["spec"] and pod["status"].get("phase") not in ("Succeeded", "Failed")


def free_cpu(world):
    """What nobody has asked for of the only node's CPU, in thousandths."""
    node = world.find("nodes")[0]
    return milli(node["status"]["allocatable"]["cpu"]) - sum(requested(p) for p in world.find("pods") if holds(p))


class History:
    """Every change of the pods of a namespace from now on, in the order in which the apiserver made them."""

    def __init__(self, world, namespace, path):
        self.path = path
        version = world.read("pods", namespace, "")["metadata"]["resourceVersion"]
        request = f"/api/v1/namespaces/{namespace}/pods?watch=1&timeoutSeconds=7200&resourceVersion={version}"
        with open(path, "wb") as output:
            self.reader = subprocess.Popen(
                [build.find("kubectl"), "--kubeconfig", world.cluster.kubeconfig, "get", "--raw", request],
                stdin=subprocess.DEVNULL, stdout=output, preexec_fn=namespaces.die_with_parent)

    def stop(self):
        self.reader.kill()
        self.reader.wait()

    def events(self):
        """(what happened, the pod after it)."""
        if self.reader.poll() is not None:
            raise AssertionError(f"nobody watches the pods any more: {self.path.read_text()[-500:]}")
        lines = self.path.read_text().split("\n")[:-1]
        return [(event["type"], event["object"]) for event in map(json.loads, lines)]

    def turns(self):
        """In which order pods of jobs got a node or began to leave it: [(job, +1 or -1)]."""
        turns, placed, left = [], set(), set()
        for kind, pod in self.events():
            meta = pod["metadata"]
            job = meta["labels"].get("trainyard.dev/job-name")
            if "nodeName" in pod["spec"] and meta["uid"] not in placed:
                placed.add(meta["uid"])
                turns.append((job, +1))
            leaves = kind == "DELETED" or "deletionTimestamp" in meta
            if leaves and meta["uid"] in placed and meta["uid"] not in left:
                left.add(meta["uid"])
                turns.append((job, -1))
        return turns
