#!/usr/bin/env python3
"""The chart is upgraded, rolled back and uninstalled under a running job."""
import base64
import secrets
import sys
import unittest

from world import SYSTEM, build, image, static_image, world

SPACE = "upgrade"
NEXT = "0.1.1-test"
KUBECTL = "registry.test/kubectl:1"
JOB = {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "job"},
       "spec": {"storage": {"volume": {"persistentVolumeClaim": {"claimName": "job"}}},
                "ps": {"replicas": 1}, "worker": {"replicas": 2, "maxReplicas": 4},
                "training": {"model": {"name": "mlp", "hidden": [32], "simulatedStepSeconds": 0.1},
                             "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096},
                             "batchSize": 8, "steps": 100000,
                             "optimizer": {"name": "SGD", "learningRate": 0.01}}}}


class Upgrade(unittest.TestCase):
    world = None

    def identities(self):
        return {name: (pod["metadata"]["uid"], pod["status"]["startTime"],
                       pod["status"]["containerStatuses"][0]["restartCount"])
                for name, pod in self.world.pods("job", SPACE).items()}

    def goes_on(self):
        self.world.wait_steps("job", SPACE, 10)

    def operator_images(self):
        return {c["image"] for pod in self.world.operator_pods() for c in pod["spec"]["containers"]
                if "deletionTimestamp" not in pod["metadata"]}

    def root(self):
        return self.world.get("secrets", "trainyard-root", SYSTEM)

    def install(self, *settings):
        self.world.install(f"test.image={KUBECTL}", *settings)

    def test_1_the_charts_own_test(self):
        # Two operators have started at once; one made it.
        made = self.root()
        self.assertEqual({"app.kubernetes.io/part-of": "trainyard"}, made["metadata"]["labels"])
        self.world.helm("uninstall", "trainyard", "-n", SYSTEM, "--wait", "--timeout", "600s")
        self.assertEqual(made["metadata"]["uid"], self.root()["metadata"]["uid"])
        self.world.cluster.kubectl("delete", "secret", "trainyard-root", "-n", SYSTEM)
        # As the releases that rendered the root secret did it; what stands in extraObjects goes with its line.
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        old = {"apiVersion": "v1", "kind": "Secret", "metadata.name": "trainyard-root",
               r"metadata.annotations.helm\.sh/resource-policy": "keep", "data.root": key}
        self.install(*(f"extraObjects[0].{path}={value}" for path, value in old.items()))
        self.assertEqual(key, self.root()["data"]["root"])
        self.install()
        self.assertEqual(key, self.root()["data"]["root"])
        self.world.helm("test", "trainyard", "-n", SYSTEM, "--timeout", "600s")

    def test_2_job_outlives_the_chart(self):
        world = self.world
        world.apply(JOB, namespace=SPACE)
        world.wait_steps("job", SPACE, 5)
        before = self.identities()
        pinned = world.status("job", SPACE)["images"]

        root = self.root()["metadata"]["uid"]
        self.install(*(f"{image}.tag={NEXT}" for image in ("image", "agent.image", "runtime.image")))
        world.wait("the next version", lambda: self.operator_images() == {
            image("operator", NEXT)})
        self.goes_on()
        self.assertEqual(before, self.identities())
        self.assertEqual(pinned, world.status("job", SPACE)["images"])

        world.cluster.kubectl("scale", "tj/job", "-n", SPACE, "--replicas=3")
        world.wait("a third worker", lambda: world.status("job", SPACE)["worker"].get("ready") == 3)
        added = world.pods("job", SPACE)["job-worker-2"]
        self.assertEqual(image("runtime"), added["spec"]["containers"][0]["image"])

        world.helm("rollback", "trainyard", "-n", SYSTEM, "--wait", "--timeout", "600s")
        self.goes_on()
        after = self.identities()
        self.assertEqual(before, {name: after[name] for name in before})

        world.helm("uninstall", "trainyard", "-n", SYSTEM, "--wait", "--timeout", "600s")
        self.assertEqual(root, self.root()["metadata"]["uid"])
        # The definition and the jobs stay; nothing holds back what is deleted now.
        self.assertEqual("job", world.job("job", SPACE)["metadata"]["name"])
        world.cluster.kubectl("delete", "namespace", SPACE, "--wait", "--timeout=300s")


if __name__ == "__main__":
    with world(SPACE, more_images=lambda folder: [static_image(folder, KUBECTL, build.find("kubectl"))]) as made:
        for name in ("operator", "agent", "runtime"):  # the next version differs in its name alone
            made.cluster.inside("ctr", "-n", "k8s.io", "images", "tag", "--force", image(name), image(name, NEXT),
                                check=True)
        made.volume(SPACE, "job")
        Upgrade.world = made
        outcome = unittest.main(exit=False, verbosity=2)
    sys.exit(not outcome.result.wasSuccessful())
