#!/usr/bin/env python3
"""The test cluster itself: a pod runs, names and services are found, and a killed runner leaves nothing."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from rig import namespaces, shell_image, testing  # noqa: E402

POD = """apiVersion: v1
kind: Pod
metadata: {name: server, labels: {app: server}}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: server
    image: IMAGE
    command: [sh, -c, "mkdir /tmp/www && echo hello > /tmp/www/index.html && exec httpd -f -p 8000 -h /tmp/www"]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Service
metadata: {name: server}
spec: {selector: {app: server}, ports: [{port: 80, targetPort: 8000}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: client
    image: IMAGE
    command: [sh, -c, "until wget -q -O - http://server.default.svc.cluster.local/ 2>/dev/null; do sleep 0.2; done"]
"""
# What must be the same on the machine before and after.
SETTINGS = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"]


def machine():
    """What a cluster could leave on this machine."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    groups = [line for _, mount, own in namespaces.hierarchies()
              for line in os.listdir(mount + own) if line.startswith("trainyard-cluster")]
    return {
        "links": sorted(line.split(":")[1] for line in links.splitlines()),
        "mounts": sorted(pathlib.Path("/proc/self/mounts").read_text().splitlines()),
        "settings": [pathlib.Path("/proc/sys", name).read_text() for name in SETTINGS],
        "folders": [sorted(os.listdir(place)) for place in ("/run", "/var/lib", "/etc", "/opt", "/var/log")],
        "groups": groups,
    }


class Smoke(unittest.TestCase):
    def test_pods_names_and_services_and_nothing_is_left(self):
        before = machine()
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            with testing.start(folder) as cluster:
                cluster.load(shell_image.write(folder))
                cluster.kubectl("apply", "-f", "-", input=POD.replace("IMAGE", shell_image.NAME))
                cluster.kubectl("wait", "pod/client", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
                self.assertEqual("hello\n", cluster.kubectl("logs", "client"))
                # From inside, as an operator outside of pods would reach them.
                address = cluster.kubectl("get", "pod", "server", "-o", "jsonpath={.status.podIP}")
                answer = cluster.inside("busybox", "wget", "-q", "-O", "-", f"http://{address}:8000/")
                self.assertEqual("hello\n", answer.stdout, answer.stderr)
                first = cluster.published.first_process()
                cleaner_done = folder / "runner"
                cluster.runner.send_signal(signal.SIGKILL)
                cluster.runner.wait()
                end = time.monotonic() + 60
                while (namespaces.process_exists(first) or cleaner_done.exists()) and time.monotonic() < end:
                    time.sleep(0.05)
            self.assertFalse(namespaces.process_exists(first), "the first process lives on")
            self.assertFalse((folder / "kubeconfig").exists())
        self.assertEqual(before, machine())


if __name__ == "__main__":
    if testing.reused(control_plane=False):
        os.environ.pop("TRAINYARD_CLUSTER", None)  # this one is about a cluster of its own
    unittest.main()
