#!/usr/bin/env python3
"""The test cluster itself: a pod runs, names and services are found, and a killed runner leaves nothing."""
import pathlib
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from rig import namespaces, shell_image, testing, traces  # noqa: E402

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


class Smoke(unittest.TestCase):
    def test_pods_names_and_services_and_nothing_is_left(self):
        before = traces.machine()
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            with testing.start(folder) as cluster:
                cluster.load(shell_image.write(folder))
                cluster.kubectl("apply", "-f", "-", input=POD.replace("IMAGE", shell_image.NAME))
                cluster.kubectl("wait", "pod/client", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
                self.assertEqual("hello\n", cluster.kubectl("logs", "client"))
                # From inside, as an operator outside of pods would reach them.
                address = cluster.kubectl("get", "pod", "server", "-o", "jsonpath={.status.podIP}")
                self.assertEqual("hello\n", cluster.fetch(f"http://{address}:8000/"))
                first = cluster.published.first_process()
                cluster.runner.send_signal(signal.SIGKILL)
                cluster.runner.wait()
                traces.wait_for_cleaner(folder, first)
            self.assertFalse(namespaces.process_exists(first), "the first process lives on")
            self.assertFalse((folder / "kubeconfig").exists())
        self.assertEqual([], traces.groups(cluster.runner.pid))
        self.assertEqual(before, traces.machine())


if __name__ == "__main__":
    testing.require()  # it is about a cluster of its own
    unittest.main()
