#!/usr/bin/env python3
"""Jobs whose tasks have volumes of their own: what a pod has written its replacement finds; and one of which a single
task has the volume for all."""
import json
import pathlib
import sys
import unittest

from world import inside, shell_image, world

SPACE = "volumes"
NAME = "own"
ONE = "one-disk"
CLASS = "by-hand"
# Each life of a task adds a line.
LIVES = "echo life >> /data/lives; exec sleep 1000000"


def storage(count, first=0, mode="ReadWriteOnce"):
    """A class whose claims the scheduler binds, and as many volumes of it, with the folders of the node that they are."""
    made = [{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
             "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}]
    for i in range(first, first + count):
        folder = inside.HOME / "volumes" / f"{SPACE}-{i}"
        made.append({"apiVersion": "v1", "kind": "PersistentVolume",
                     "metadata": {"name": f"{SPACE}-{i}", "labels": {"made-for": SPACE}},
                     "spec": {"accessModes": [mode], "storageClassName": CLASS,
                              "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)}}})
    return made


def job(workers):
    claim = {"metadata": {"name": "data"},
             "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
                      "resources": {"requests": {"storage": "1Gi"}}}}
    container = {"name": "task", "image": shell_image.NAME, "command": ["sh", "-c", LIVES],
                 "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    worker = {"replicas": workers, "onMembershipChange": "Ignore", "volumeClaimTemplates": [claim],
              "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
              "template": {"spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}}}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": NAME},
            "spec": {"strategy": "AllReduce", "worker": worker}}


def one_disk():
    """A claim that the scheduler gives one pod at a time, and a job of three processes that goes by it."""
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
             "spec": {"accessModes": ["ReadWriteOncePod"], "storageClassName": CLASS,
                      "resources": {"requests": {"storage": "1Gi"}}}}
    spec = {"storage": {"access": "Coordinator", "volume": {"persistentVolumeClaim": {"claimName": "disk"}}},
            "ps": {"replicas": 2}, "worker": {"replicas": 1},
            "training": {"model": {"name": "mlp", "hidden": [32], "simulatedStepSeconds": 0.1},
                         "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096},
                         "batchSize": 8, "steps": 100000, "optimizer": {"name": "Adam", "learningRate": 0.01},
                         "checkpoint": {"everySeconds": 2, "keep": 2}}}
    return claim, {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": ONE}, "spec": spec}


class Volumes(unittest.TestCase):
    world = None

    def claims(self):
        """{claim: the folder of the node that it is bound to, or None}"""
        volumes = {v["metadata"]["name"]: pathlib.Path(v["spec"]["hostPath"]["path"])
                   for v in self.world.find("persistentvolumes", selector=f"made-for={SPACE}")}
        return {c["metadata"]["name"]: volumes.get(c["spec"].get("volumeName"))
                for c in self.world.find("persistentvolumeclaims", SPACE, f"trainyard.dev/job-name={NAME}")}

    def lives(self, folder):
        return self.world.cluster.inside("cat", folder / "lives").stdout.split()

    def running(self):
        return self.world.status(NAME, SPACE).get("state") == "Running"

    def checkpoint(self):
        return self.world.status(ONE, SPACE).get("checkpoint", {}).get("step", -1)

    def test_all_pods_go_and_one_of_them_had_the_disk(self):
        made = storage(1, first=2, mode="ReadWriteOncePod")
        folder = made[1]["spec"]["hostPath"]["path"]
        self.world.cluster.inside("mkdir", "-p", "-m", "0777", folder, check=True)
        self.world.apply(*made, *one_disk(), namespace=SPACE)
        self.world.wait("a checkpoint", lambda: self.checkpoint() > 0)
        self.assertIs(True, self.world.status(ONE, SPACE)["checkpoint"]["durable"])
        files = self.world.cluster.inside("ls", f"{folder}/checkpoints").stdout
        for server in ("ps-0", "ps-1"):
            self.assertRegex(files, rf"{server}\.step-\d+")

        kept = self.checkpoint()
        killed = {pod["metadata"]["uid"] for pod in self.world.pods(ONE, SPACE).values()}
        self.world.cluster.kubectl("delete", "pods", "-n", SPACE, "-l", f"trainyard.dev/job-name={ONE}", "--force",
                                   "--grace-period=0")
        seen = []
        self.world.wait("the others to go on", lambda: not killed & {
            pod["metadata"]["uid"] for pod in self.world.pods(ONE, SPACE).values()})
        # A job that began anew would tell of earlier checkpoints first: one is due every 2 s.
        self.world.wait(f"a checkpoint after step {kept}", lambda: seen.append(self.checkpoint()) or seen[-1] > kept)
        self.assertGreaterEqual(min(seen), kept)
        self.world.cluster.kubectl("delete", f"tj/{ONE}", "-n", SPACE)

    def test_each_task_has_its_own(self):
        made = storage(2)
        for volume in made[1:]:
            self.world.cluster.inside("mkdir", "-p", "-m", "0777", volume["spec"]["hostPath"]["path"], check=True)
        self.world.apply(*made, namespace=SPACE)
        self.world.apply(job(2), namespace=SPACE)
        self.world.wait("the job to run", self.running)
        folders = self.claims()
        self.assertEqual({f"data-{NAME}-worker-0", f"data-{NAME}-worker-1"}, set(folders))
        for folder in folders.values():
            self.world.wait(f"a life in {folder}", lambda folder=folder: self.lives(folder) == ["life"])
        self.assertEqual(2, len(set(folders.values())))

        before = self.world.pods(NAME, SPACE)[f"{NAME}-worker-1"]["metadata"]["uid"]
        self.world.cluster.kubectl("delete", "pod", f"{NAME}-worker-1", "-n", SPACE, "--wait=false")
        self.world.wait("another pod that writes there", lambda: self.lives(
            folders[f"data-{NAME}-worker-1"]) == ["life", "life"])
        after = self.world.pods(NAME, SPACE)[f"{NAME}-worker-1"]["metadata"]["uid"]
        self.assertNotEqual(before, after)
        self.assertEqual(folders, self.claims())
        self.assertEqual(["life"], self.lives(folders[f"data-{NAME}-worker-0"]))

        self.world.wait("the job to run", self.running)
        self.world.cluster.kubectl("patch", f"tj/{NAME}", "-n", SPACE, "--type=merge", "-p",
                                   json.dumps({"spec": {"worker": {"replicas": 1}}}))
        self.world.wait("the claim of worker-1 to go", lambda: set(self.claims()) == {f"data-{NAME}-worker-0"})
        self.world.cluster.kubectl("delete", f"tj/{NAME}", "-n", SPACE)
        self.world.wait("the other claim to go with the job", lambda: not self.claims())


if __name__ == "__main__":
    with world(SPACE) as made:
        Volumes.world = made
        outcome = unittest.main(exit=False, verbosity=2)
    sys.exit(not outcome.result.wasSuccessful())
