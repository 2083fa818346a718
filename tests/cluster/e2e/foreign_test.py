#!/usr/bin/env python3
"""Images of users as ps and worker: a shell, and an image that holds one static program."""
import os
import pathlib
import sys
import unittest

from world import shell_image, static_image, world

SPACE = "foreign"
STATIC = "registry.test/static:1"
SECURITY = {"securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]}}}


def job(name, image, ps, worker, replicas=2):
    def template(container):
        return {"spec": {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
                         "containers": [{"name": "task", **SECURITY, **container}]}}

    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"image": image, "ps": {"replicas": replicas, "template": template(ps)},
                     "worker": {"replicas": replicas, "template": template(worker)},
                     "runPolicy": {"successPolicy": "AllWorkers", "cleanPodPolicy": "None"}}}


class Foreign(unittest.TestCase):
    world = None

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
        task = {"command": ["/program"], "args": arguments}
        self.world.apply(job("static", STATIC, task, task), namespace=SPACE)
        self.world.wait_state("static", SPACE, "Succeeded")
        for index in (0, 1):
            self.assertIn(f"worker-{index}: 2 parameter servers answered", self.logs(f"static-worker-{index}"))


if __name__ == "__main__":
    program = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "static_task"
    with world(SPACE, lambda folder: [static_image(folder, STATIC, program)]) as made:
        Foreign.world = made
        outcome = unittest.main(exit=False, verbosity=2)
    sys.exit(not outcome.result.wasSuccessful())
