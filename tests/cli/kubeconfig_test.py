#!/usr/bin/env python3
"""`trainyard get` at a real apiserver, by a kubeconfig as managed clusters have it: the user is a plugin that is
a program of the test's own, and the way is a proxy of its own."""
import base64
import json
import os
import pathlib
import select
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from rig import testing  # noqa: E402

PROGRAM = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "trainyard"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.trainyard.dev"
SECONDS = 120  # against hangs only
PLUGIN = """#!/bin/sh
echo run >> runs
printf '%s' "$KUBERNETES_EXEC_INFO" > info
cat credential
"""


class Connect(socketserver.StreamRequestHandler):
    """A proxy of HTTP's CONNECT."""

    def handle(self):
        words = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        self.server.targets.append(" ".join(words[:2]))
        host, port = words[1].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=SECONDS) as there:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ways = {self.connection: there, there: self.connection}
            while True:
                for ready in select.select(list(ways), [], [], SECONDS)[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    ways[ready].sendall(data)


class KubeconfigTest(unittest.TestCase):
    cluster = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.config = json.loads(self.cluster.kubeconfig.read_text())
        status, answer = self.cluster.api.apply(DEFINITION, (ROOT / "deploy" / "crds.yaml").read_text("utf-8"))
        self.assertIn(status, (200, 201), answer)

    def plugin(self, status):
        """The user is known by what a program says."""
        version = "client.authentication.k8s.io/v1"
        (self.home / "credential").write_text(
            json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
        program = self.home / "known-by"
        program.write_text(PLUGIN.replace("\n", f"\ncd {self.home}\n", 1))
        program.chmod(0o755)
        self.config["users"][0]["user"] = {
            "exec": {"apiVersion": version, "command": "./known-by", "interactiveMode": "Never",
                     "provideClusterInfo": True}}

    def certificate(self):
        user = self.config["users"][0]["user"]
        return {to: base64.b64decode(user[name]).decode() for to, name in (
            ("clientCertificateData", "client-certificate-data"), ("clientKeyData", "client-key-data"))}

    def get(self, code=0):
        path = self.home / "config"
        path.write_text(json.dumps(self.config))
        done = subprocess.run([PROGRAM, "get", "-n", "default", "--kubeconfig", path], capture_output=True, text=True,
                              timeout=SECONDS, cwd=self.home,
                              env={"HOME": str(self.home), "PATH": os.environ["PATH"]})
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_a_plugin_that_gives_a_certificate(self):
        self.plugin(self.certificate())
        self.assertIn("No jobs found", self.get())
        self.assertEqual("run\n", (self.home / "runs").read_text())
        told = json.loads((self.home / "info").read_text())["spec"]["cluster"]
        self.assertEqual(self.config["clusters"][0]["cluster"]["server"], told["server"])

    def test_a_plugin_that_gives_a_wrong_token(self):
        self.plugin({"token": "nonsense"})
        self.assertIn("does not accept this user's certificate or token", self.get(code=1))
        self.assertEqual("run\nrun\n", (self.home / "runs").read_text(), "asked once more after a 401")

    def test_a_plugin_that_fails(self):
        self.plugin({})
        told = self.get(code=1)
        self.assertIn("].exec: ", told)
        self.assertIn("neither a token nor a client certificate", told)
        self.assertNotIn("does not accept", told)

    def test_a_proxy(self):
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connect) as proxy:
            proxy.daemon_threads, proxy.block_on_close, proxy.targets = True, False, []
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            self.plugin(self.certificate())
            cluster = self.config["clusters"][0]["cluster"]
            cluster["proxy-url"] = f"http://127.0.0.1:{proxy.server_address[1]}"
            self.assertIn("No jobs found", self.get())
            proxy.shutdown()
        self.assertEqual({f"CONNECT {cluster['server'].split('//')[1]}"}, set(proxy.targets))


if __name__ == "__main__":
    with testing.cluster(control_plane=True) as running:
        KubeconfigTest.cluster = running
        program = unittest.main(exit=False)
    sys.exit(not program.result.wasSuccessful())
