"""Requests to the apiserver of a test cluster, with the certificate of a kubeconfig."""
import base64
import http.client
import json
import os
import pathlib
import ssl
import tempfile
import urllib.parse

# What has not been answered by then counts as not answered.
TIMEOUT = 20


class Api:
    """The client of one kubeconfig (as pki.Authority.kubeconfig() writes them)."""

    def __init__(self, kubeconfig):
        config = json.loads(pathlib.Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        server = urllib.parse.urlsplit(cluster["server"])
        self.address = (server.hostname, server.port)
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=authority)
        handle, path = tempfile.mkstemp()
        try:
            with os.fdopen(handle, "wb") as pair:
                pair.write(base64.b64decode(user["client-certificate-data"]))
                pair.write(base64.b64decode(user["client-key-data"]))
            self.tls.load_cert_chain(path)
        finally:
            os.unlink(path)

    def request(self, method, path, body=None, content_type="application/json"):
        """(HTTP status, parsed answer or text)."""
        connection = http.client.HTTPSConnection(*self.address, timeout=TIMEOUT, context=self.tls)
        try:
            data = None if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
            connection.request(method, path, data, {"Content-Type": content_type})
            answer = connection.getresponse()
            text = answer.read()
            is_json = answer.getheader("Content-Type", "").startswith("application/json")
            return answer.status, json.loads(text) if is_json else text.decode(errors="replace")
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def apply(self, path, manifest):
        """Server-side apply of one object, as text (YAML or JSON) or dict."""
        body = manifest.encode() if isinstance(manifest, str) else manifest
        return self.request("PATCH", f"{path}?fieldManager=tests&force=true", body,
                            "application/apply-patch+yaml")
