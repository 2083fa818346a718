#!/usr/bin/env python3
"""Training jobs on two nodes, of which one is cut off from the network, or drained."""
import json
import pathlib
import sys
import unittest

from world import inside, oci, shell_image, world

SPACE = "nodes"
FIRST, SECOND = "node1", "node2"
JOB_FOLDER = "/job"
GRACE_SECONDS = 5
FREEZING = "registry.test/freezing:1"
# ps-0's first life stops between its look at who writes and its commit, once there is this file.
FREEZE = "freeze"

# Prints "pid state" of each process of that program whose pod is the one named.
PROCESSES = """
import glob, pathlib, sys
for process in map(pathlib.Path, glob.glob("/proc/[0-9]*")):
    try:
        name = (process / "cmdline").read_bytes().split(b"\\0")[0].decode()
        host = (process / "root/etc/hostname").read_text().strip()
        state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        continue
    if name.endswith(sys.argv[1]) and host == sys.argv[2]:
        print(process.name, state)
"""


def freezing_image(folder):
    archive = pathlib.Path(folder) / "freezing.tar"
    where = f"checkpoint.manifest.commit=pause,task=ps-0,life=1.1,while={JOB_FOLDER}/{FREEZE}"
    oci.write(archive, FREEZING, [shell_image.entries()],
              {"Env": ["PATH=/bin", f"TRAINYARD_FAILPOINTS={where}"], "Cmd": ["sh"], "User": "1000:1000"})
    return archive


def job(name, image=None):
    """Its parameter server goes to the second node where it can, its workers stay on the first."""
    second = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [SECOND]}]}
    gone = [{"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
            for what in ("unreachable", "not-ready")]
    spec = {"storage": {"mountPath": JOB_FOLDER, "volume": {"persistentVolumeClaim": {"claimName": name}}},
            "ps": {"replicas": 1, "template": {"spec": {
                "terminationGracePeriodSeconds": GRACE_SECONDS, "tolerations": gone,
                "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "preference": second}]}}}}},
            "worker": {"replicas": 2, "template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": FIRST}}}},
            "training": {"model": {"name": "mlp", "hidden": [32], "simulatedStepSeconds": 0.05},
                         "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096},
                         "batchSize": 8, "steps": 1000000, "optimizer": {"name": "SGD", "learningRate": 0.01},
                         "checkpoint": {"everySeconds": 1, "keep": 1}}}
    if image:
        spec["image"] = image
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


class Nodes(unittest.TestCase):
    world = None

    def start(self, name, image=None):
        """The folder of the job, once it has a checkpoint."""
        folder = self.world.volume(SPACE, name)
        self.world.apply(job(name, image), namespace=SPACE)
        self.world.wait(f"a checkpoint of {name}", lambda: self.manifests(folder))
        self.assertEqual(SECOND, self.server(name)["spec"]["nodeName"])
        return folder

    def server(self, name):
        return self.world.pods(name, SPACE).get(f"{name}-ps-0")

    def manifests(self, folder):
        """{name: content} of the checkpoints that are there."""
        script = "for f in \"$0\"/checkpoints/step-*.json; do [ -e \"$f\" ] && echo \"$f\"; done; true"
        found = {}
        for path in self.world.cluster.inside("sh", "-c", script, folder).stdout.split():
            text = self.world.cluster.inside("cat", path).stdout
            if text:  # not removed meanwhile
                found[pathlib.Path(path).name] = json.loads(text)
        return found

    def processes(self, pod, program="trainyard-runtime"):
        """{process id: state} of those of the pods of that name, on both nodes."""
        lines = self.world.cluster.inside(sys.executable, "-c", PROCESSES, program, pod).stdout.splitlines()
        return dict(line.split() for line in lines)

    def condition(self, name, kind):
        return next((c for c in self.world.status(name, SPACE).get("conditions", []) if c["type"] == kind), {})

    def lost_steps(self, name):
        return self.world.status(name, SPACE).get("lostSteps", 0)

    def freeze(self, folder, pod):
        """(agent, runtime) of the pod, process ids: the runtime stands still in the middle of a commit, and the
        agent, which would end it for that, stands still too."""
        self.world.cluster.inside("touch", folder / FREEZE, check=True)

        def frozen():
            return [pid for pid, state in self.processes(pod).items() if state == "T"]

        runtime = self.world.wait("the commit to stand still", frozen)[0]
        agent = next(iter(self.processes(pod, "trainyard-agent")))
        self.world.cluster.inside("kill", "-STOP", agent, check=True)
        return agent, runtime

    def wake(self, folder, agent, runtime):
        """The runtime goes on where it stood, and ends when it sees who writes now; so does the next one that its
        agent starts."""
        self.world.cluster.inside("rm", folder / FREEZE, check=True)
        self.world.cluster.inside("kill", "-CONT", runtime, check=True)
        self.world.wait("the former ps-0 to end", lambda: self.processes("silent-ps-0").get(runtime, "Z") == "Z")
        self.world.cluster.inside("kill", "-CONT", agent, check=True)
        self.world.wait("its next start to be refused", lambda: self.refusals() >= 2)

    def refusals(self):
        """How often the second node's pods have said that another one writes."""
        logs = inside.HOME / SECOND / "pod-logs"
        return len(self.world.cluster.inside("grep", "-rhF", "ps-0 (created 2, start 1) writes to", logs).stdout.splitlines())

    def test_1_a_node_that_is_silent(self):
        folder = self.start("silent", FREEZING)
        former = self.server("silent")["metadata"]["uid"]
        agent, runtime = self.freeze(folder, "silent-ps-0")
        self.addCleanup(self.world.cluster.join, SECOND)
        self.world.cluster.cut(SECOND)
        self.world.wait("Kubernetes to give the node up",
                        lambda: "deletionTimestamp" in self.server("silent")["metadata"])
        told = self.world.wait("the job to say what it waits for", lambda: self.condition("silent", "Reconciling").get(
            "message", "").endswith(f"on node {SECOND}"))
        self.assertTrue(told)
        self.assertEqual(former, self.server("silent")["metadata"]["uid"])

        self.world.cluster.kubectl("patch", "tj/silent", "-n", SPACE, "--type=merge", "-p",
                                   json.dumps({"spec": {"runPolicy": {"podReplacement": "WhenUnreachable"}}}))
        self.world.wait("another ps-0", lambda: (self.server("silent") or {"metadata": {"uid": former}})
                        ["metadata"]["uid"] != former)
        self.world.wait_steps("silent", SPACE, 50)
        self.assertEqual(FIRST, self.server("silent")["spec"]["nodeName"])
        self.assertEqual("T", self.processes("silent-ps-0")[runtime])
        self.assertEqual(0, self.lost_steps("silent"))
        events = {event["reason"] for event in self.world.find("events", SPACE)}
        self.assertIn("TaskForgotten", events)

        self.wake(folder, agent, runtime)
        # It has committed what it was about to, and removed nothing; the new one removes that.
        self.world.wait("checkpoints of the new ps-0 alone", lambda: {
            manifest["writer"] for manifest in self.manifests(folder).values()} == {2})
        self.world.wait_steps("silent", SPACE, 50)
        self.world.cluster.join(SECOND)
        self.world.wait("the former pod to end", lambda: agent not in self.processes("silent-ps-0", "trainyard-agent"))
        self.world.wait_steps("silent", SPACE, 50)
        self.assertEqual(0, self.lost_steps("silent"))
        self.world.cluster.kubectl("delete", "tj/silent", "-n", SPACE)

    def test_2_a_node_that_is_drained(self):
        self.world.wait("the second node", lambda: not self.world.get("nodes", SECOND, None)["spec"].get("taints"))
        self.start("drained")
        former = self.server("drained")["metadata"]["uid"]
        self.world.wait_steps("drained", SPACE, 20)
        self.world.cluster.kubectl("drain", SECOND, "--ignore-daemonsets", "--force", "--delete-emptydir-data",
                                   "--timeout=300s")
        self.world.wait("another ps-0", lambda: (self.server("drained") or {"metadata": {"uid": former}})
                        ["metadata"]["uid"] != former)
        self.world.wait_steps("drained", SPACE, 50)
        self.assertEqual(FIRST, self.server("drained")["spec"]["nodeName"])
        self.assertEqual(0, self.lost_steps("drained"))
        self.assertEqual(1, self.world.status("drained", SPACE)["disruptions"])


if __name__ == "__main__":
    with world(SPACE, nodes=2, more_images=lambda folder: [freezing_image(folder)]) as made:
        Nodes.world = made
        outcome = unittest.main(exit=False, verbosity=2)
    sys.exit(not outcome.result.wasSuccessful())
