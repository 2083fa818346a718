"""Certificates and kubeconfig files of a test cluster, good for two days, made with openssl."""
import base64
import json
import pathlib
import subprocess

DAYS = "2"
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def _openssl(*arguments, **more):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, **more)


class Authority:
    """A certificate authority in a folder; every certificate NAME is NAME.crt and NAME.key there."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        _openssl("req", "-x509", *KEY, "-keyout", self.path("ca.key"), "-out", self.path("ca.crt"),
                 "-days", DAYS, "-subj", "/CN=trainyard-test-ca")

    def path(self, name):
        return str(self.folder / name)

    def issue(self, name, subject, alternatives):
        request = self.path(f"{name}.csr")
        _openssl("req", *KEY, "-keyout", self.path(f"{name}.key"), "-out", request, "-subj", subject)
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternatives}\n")
        _openssl("x509", "-req", "-in", request, "-CA", self.path("ca.crt"), "-CAkey", self.path("ca.key"),
                 "-CAcreateserial", "-days", DAYS, "-extfile", str(extensions),
                 "-out", self.path(f"{name}.crt"))

    def service_account_key(self):
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.path("sa.key"))
        _openssl("ec", "-in", self.path("sa.key"), "-pubout", "-out", self.path("sa.pub"))

    def kubeconfig(self, name, server, path):
        """Writes a kubeconfig that needs no other file, for the user of certificate `name`."""

        def data(file):
            return base64.b64encode(pathlib.Path(self.path(file)).read_bytes()).decode()

        path = pathlib.Path(path)
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": server, "certificate-authority-data": data("ca.crt")}}],
            "users": [{"name": name, "user": {
                "client-certificate-data": data(f"{name}.crt"),
                "client-key-data": data(f"{name}.key")}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}]}, indent=1))
        path.chmod(0o600)
