#!/usr/bin/env python3
"""The cluster of two nodes: pods reach each other across them, and a node that loses its network is given up and
comes back."""
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from rig import namespaces, node, shell_image, testing, traces  # noqa: E402

# Answers with the address that it was asked from. With no time to end it would not wait for its kubelet to say that
# it has ended.
POD = """apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME}}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 1
  tolerations:
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
  containers:
  - name: server
    image: IMAGE
    command:
    - sh
    - -c
    - |
      mkdir -p /tmp/www/cgi-bin && cd /tmp/www/cgi-bin
      printf '#!/bin/sh\\nprintf "Content-Type: text/plain\\\\n\\\\n$REMOTE_ADDR"\\n' > source
      chmod +x source && exec httpd -f -p 0.0.0.0:8000 -h /tmp/www
---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {selector: {app: NAME}, ports: [{port: 80, targetPort: 8000}]}
"""
LIMIT = 600  # against hangs
PODS = "/api/v1/namespaces/default/pods"
UNREACHABLE = ("node.kubernetes.io/unreachable", "NoExecute")


def wait(what, condition):
    """The first true value of condition()."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"timed out waiting for {what}")


class Pods:
    """One pod on each node, named as the node is."""

    def __init__(self, cluster):
        self.cluster = cluster
        for each in node.ALL:
            text = POD.replace("NAME", each.name).replace("NODE", each.name).replace("IMAGE", shell_image.NAME)
            cluster.kubectl("apply", "-f", "-", input=text)
        cluster.kubectl("wait", "--for=condition=Ready", "pod", "--all", f"--timeout={LIMIT}s")
        self.addresses = {each.name: self.get(each.name)["status"]["podIP"] for each in node.ALL}

    def get(self, name):
        """The pod, None without."""
        status, pod = self.cluster.api.get(f"{PODS}/{name}")
        return pod if status == 200 else None

    def run(self, name, command):
        """What a command in a pod prints, through the apiserver and its node's kubelet; tried until it prints
        something: a service may be known to the other node first."""
        loop = f"while true; do said=$({command}); test -n \"$said\" && break; sleep 0.2; done; echo \"$said\""
        return self.cluster.kubectl("exec", name, "--", "sh", "-c", loop).strip()

    def source(self, name, at):
        """The address that the pod at `at` sees when the pod `name` asks it."""
        return self.run(name, f"timeout 5 wget -q -O - http://{at}/cgi-bin/source 2>/dev/null")

    def answers(self, name, on):
        """Whether a pod's process is there for its node `on`, in whichever state the apiserver has it."""
        return self.cluster.fetch(f"http://{self.addresses[name]}:8000/cgi-bin/source", on=on) != ""


class Nodes(unittest.TestCase):
    def test_two_nodes(self):
        before = traces.machine()
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            with testing.start(folder, nodes=2) as self.cluster:
                self.cluster.load(shell_image.write(folder))
                self.check_nodes()
                self.pods = Pods(self.cluster)
                self.check_network()
                self.check_storage()
                self.check_loss()
                self.check_return()
                self.check_restart()
                first = self.cluster.published.first_process()
                self.cluster.runner.send_signal(signal.SIGKILL)
                self.cluster.runner.wait()
                traces.wait_for_cleaner(folder, first)
            self.assertFalse(namespaces.process_exists(first), "the first process lives on")
        self.assertEqual([], traces.groups(self.cluster.runner.pid))
        self.assertEqual(before, traces.machine())

    def ready(self, each):
        return node.is_ready(self.cluster.api, each)

    def taints(self, each):
        _, answer = self.cluster.api.get(f"/api/v1/nodes/{each.name}")
        return [(taint["key"], taint["effect"]) for taint in answer["spec"].get("taints", [])]

    def check_nodes(self):
        for each in node.ALL:
            # The controller may add the taint of a node that is not ready when the node just became so.
            wait(each.name, lambda each=each: self.ready(each))
            self.assertEqual(each.name, self.cluster.on_node(each.name, "hostname").stdout.strip())

    def check_network(self):
        addresses = self.pods.addresses
        for here, there in (("node1", "node2"), ("node2", "node1")):
            self.assertEqual(addresses[here], self.pods.source(here, f"{addresses[there]}:8000"))
            self.assertEqual(addresses[here], self.pods.source(here, f"{there}.default.svc.cluster.local"))
            # The apiserver by its service; the shell's wget and it have no cipher in common.
            said = self.pods.run(here, "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 5 nc 10.96.0.1 443")
            self.assertIn("to an HTTPS server", said)
            self.assertTrue(self.pods.answers(here, on=there), "the node itself has no answer")
            self.cluster.kubectl("logs", here)

    def check_storage(self):
        file = node.HOME / "volumes" / "shared"
        self.cluster.on_node("node2", "sh", "-c", f"echo there > {file}", check=True)
        self.assertEqual("there\n", self.cluster.inside("cat", file).stdout)

    def check_loss(self):
        self.cluster.cut("node2")
        wait("the taint", lambda: UNREACHABLE in self.taints(node.SECOND))
        wait("the eviction", lambda: self.pods.get("node2")["metadata"].get("deletionTimestamp"))
        self.assertTrue(self.pods.answers("node2", on="node2"), "the pod's process has ended")
        self.assertFalse(self.pods.answers("node2", on="node1"), "the node is not cut off")
        self.assertIsNotNone(self.pods.get("node2"), "the pod is gone")
        self.assertEqual([], self.taints(node.FIRST), "the other node is lost too")

    def check_return(self):
        self.cluster.join("node2")
        wait("the node", lambda: self.ready(node.SECOND))
        wait("the end of the pod", lambda: self.pods.get("node2") is None)
        self.assertFalse(self.pods.answers("node2", on="node2"), "the pod's process lives on")

    def check_restart(self):
        """A program of the second node that is killed comes back where it was. A kubelet is not ready at first: a
        pod whose eviction that has set in motion is not evicted sooner when the node is lost a moment later."""
        file = self.cluster.folder / "pids" / "node2-kubelet"
        before = file.read_text()
        subprocess.run([sys.executable, "-B", testing.SCRIPT, "kill", self.cluster.folder, "node2-kubelet"], check=True)
        after = wait("another kubelet", lambda: file.read_text() not in ("", before) and file.read_text())
        for kind in ("net", "mnt", "uts", "ipc", "cgroup"):
            owns = self.cluster.on_node("node2", "readlink", f"/proc/self/ns/{kind}").stdout
            self.assertEqual(owns, self.cluster.inside("readlink", f"/proc/{after}/ns/{kind}").stdout)
            self.assertNotEqual(owns, self.cluster.inside("readlink", f"/proc/self/ns/{kind}").stdout)
        wait("the kubelet", lambda: self.cluster.fetch("http://127.0.0.1:10248/healthz", on="node2") == "ok")


if __name__ == "__main__":
    testing.require()  # it is about a cluster of its own
    unittest.main()
