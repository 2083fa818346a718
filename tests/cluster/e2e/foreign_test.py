#!/usr/bin/env python3
"""Images of users as ps and worker: a shell, one static program, programs with musl or glibc of their own; and
TensorFlow's own parameter servers.

The operator looks after this one namespace and has rights nowhere else.
"""
import os
import pathlib
import sys
import unittest

import tensorflow_pods
from world import PLAIN, plain_image, shell_image, side_by_side, static_image, world

SPACE = "foreign"
STATIC = "registry.test/static:1"
SECURITY = {"securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]}}}


def job(name, image, ps, worker, replicas=2):
    """`ps` and `worker` are what their containers say; without `ps` a job of workers alone."""

    def template(container):
        return {"spec": {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
                         "containers": [{"name": "task", **SECURITY, **container}]}}

    servers = {"strategy": "AllReduce"} if ps is None else {"ps": {"replicas": replicas, "template": template(ps)}}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"image": image, **servers, "worker": {"replicas": replicas, "template": template(worker)},
                     "runPolicy": {"successPolicy": "AllWorkers", "cleanPodPolicy": "None"}}}


class Foreign(unittest.TestCase):
    world = None
    python = None  # with TensorFlow

    def logs(self, pod):
        return self.world.cluster.kubectl("logs", pod, "-n", SPACE, "-c", "task")

    def test_shell(self):
        say = ('echo "hosts $(PS_HOSTS)"; echo "env $PS_HOSTS"; echo "config $TF_CONFIG"; '
               'echo "index $TRAINYARD_ROLE $TRAINYARD_INDEX"; ! env | grep ^LD_')
        self.world.apply(job("shell", shell_image.NAME,
                             {"command": ["sh", "-c"], "args": [f"{say} && exec sleep 100000"]},
                             {"command": ["sh", "-c"], "args": [say]}), namespace=SPACE)
        self.world.wait_state("shell", SPACE, "Succeeded")
        for index in (0, 1):
            lines = dict(line.split(" ", 1) for line in self.logs(f"shell-worker-{index}").splitlines()
                         if line.startswith(("hosts ", "env ", "config ", "index ")))
            hosts = lines["hosts"].split(",")
            self.assertEqual(2, len(hosts), lines)
            self.assertTrue(hosts[0].startswith("shell-ps-0"), lines)
            self.assertEqual(lines["hosts"], lines["env"])
            self.assertIn(hosts[1], lines["config"])
            self.assertEqual(f"worker {index}", lines["index"])

    def test_static_program(self):
        arguments = ["--role=$(TRAINYARD_ROLE)", "--index=$(TRAINYARD_INDEX)", "--ps_hosts=$(PS_HOSTS)"]
        task = {"command": ["/bin/static_task"], "args": arguments}
        self.world.apply(job("static", STATIC, task, task), namespace=SPACE)
        self.world.wait_state("static", SPACE, "Succeeded")
        for index in (0, 1):
            self.assertIn(f"worker-{index}: 2 parameter servers answered", self.logs(f"static-worker-{index}"))
        # By names that the operator gave the cluster's DNS, and nobody else.
        slices = self.world.find("endpointslices", SPACE, "kubernetes.io/service-name=static")
        named = {endpoint["hostname"]: endpoint["addresses"] for one in slices for endpoint in one["endpoints"]}
        self.assertEqual({name: [pod["status"]["podIP"]] for name, pod in self.world.pods("static", SPACE).items()}, named)
        self.assertEqual(["trainyard-operator"],
                         [one["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] for one in slices])

    def test_images_with_libraries_of_their_own(self):
        for kind in PLAIN:
            arguments = {"command": ["/bin/plain_task", "$(TRAINYARD_ROLE)", "$(PS_HOSTS)"]}
            self.world.apply(job(kind, f"registry.test/{kind}:1", arguments, arguments, replicas=1), namespace=SPACE)
        for kind in PLAIN:
            with self.subTest(kind):
                self.world.wait_state(kind, SPACE, "Succeeded")
                self.assertRegex(self.logs(f"{kind}-worker-0"), rf"uid 1000 works with {kind}-ps-0\S*:\d+")

    def test_a_program_that_saves_for_long_is_not_killed(self):
        """Longer than any grace but the pod's own: what it wrote at its end is there."""
        folder = self.world.volume(SPACE, "saved")
        save = ('trap "sleep 20; echo saved > /keep/saved; exit 0" TERM; echo works > /keep/works; '
                'while true; do sleep 1; done')
        manifest = job("saves", shell_image.NAME, None, {
            "command": ["sh", "-c", save], "volumeMounts": [{"name": "keep", "mountPath": "/keep"}]}, replicas=1)
        spec = manifest["spec"]
        spec["worker"]["template"]["spec"].update(
            terminationGracePeriodSeconds=60,
            volumes=[{"name": "keep", "persistentVolumeClaim": {"claimName": "saved"}}])
        self.world.apply(manifest, namespace=SPACE)

        def is_there(name):
            return self.world.cluster.inside("test", "-s", folder / name).returncode == 0

        self.world.wait("the program to work", lambda: is_there("works"))
        self.world.cluster.kubectl("patch", "tj/saves", "-n", SPACE, "--type=merge", "-p",
                                   '{"spec": {"runPolicy": {"suspend": true}}}')
        self.world.wait_state("saves", SPACE, "Suspended")
        self.world.wait("its pod to go", lambda: not self.world.pods("saves", SPACE))
        self.assertTrue(is_there("saved"))

    def test_a_sidecar_does_not_keep_a_pod(self):
        """Of a job whose policy is the default, Running."""
        manifest = job("sidecar", shell_image.NAME, None, {"command": ["sh", "-c", "echo done"]}, replicas=1)
        spec = manifest["spec"]
        del spec["runPolicy"]["cleanPodPolicy"]
        spec["worker"]["template"]["spec"]["containers"].append(
            {"name": "sidecar", "image": shell_image.NAME, "command": ["sleep", "100000"], **SECURITY})
        self.world.apply(manifest, namespace=SPACE)
        self.world.wait_state("sidecar", SPACE, "Succeeded")
        self.world.wait("its pod to go", lambda: not self.world.pods("sidecar", SPACE), seconds=120)

    def test_rules_for_failures(self):
        """An exit code that ends jobs is passed over, and an eviction counts, because the job says so."""
        folder = self.world.volume(SPACE, "lives")
        program = ('echo x >> /keep/lives; case $(wc -l < /keep/lives) in '
                   '1) exit 42;; 2) touch /keep/waits; exec sleep 100000;; esac')
        manifest = job("rules", shell_image.NAME, None, {
            "command": ["sh", "-c", program], "volumeMounts": [{"name": "keep", "mountPath": "/keep"}]}, replicas=1)
        spec = manifest["spec"]
        spec["runPolicy"]["podFailurePolicy"] = {"rules": [
            {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]},
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}}]}
        spec["worker"]["template"]["spec"]["volumes"] = [
            {"name": "keep", "persistentVolumeClaim": {"claimName": "lives"}}]
        self.world.apply(manifest, namespace=SPACE)
        self.world.wait("the second life", lambda: self.world.cluster.inside("test", "-e", folder / "waits").returncode == 0)
        self.world.evict("rules-worker-0", SPACE)
        status = self.world.wait_state("rules", SPACE, "Succeeded")
        self.assertEqual((1, 1), (status.get("restarts"), status.get("disruptions")), status)

    def test_tensorflow(self):
        if self.python is None:
            self.skipTest("the Python package index cannot be reached, so there is no TensorFlow")
        self.world.apply(tensorflow_pods.job(self.world, SPACE, self.python, SECURITY), namespace=SPACE)
        steps = tensorflow_pods.steps(self.world, SPACE)
        counted = tensorflow_pods.traffic(self.world, SPACE)
        self.assertEqual({}, tensorflow_pods.misplaced(counted, steps), f"{counted} in {steps} steps")
        tensorflow_pods.end(self.world, SPACE)


if __name__ == "__main__":
    program = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "static_task"
    with world(SPACE, f"watchNamespace={SPACE}",
               more_images=lambda folder: [static_image(folder, STATIC, program),
                                           tensorflow_pods.image(folder),
                                           *(plain_image(folder, kind)[1] for kind in PLAIN)]) as made:
        Foreign.world = made
        Foreign.python = tensorflow_pods.python(pathlib.Path(sys.argv.pop(1)))
        outcome = side_by_side.main(at_once=6, exit=False, verbosity=2)
    sys.exit(not outcome.result.wasSuccessful())
