"""An identity provider of the tests' own (OpenID Connect): it signs tokens, and tells by which key."""
import base64
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import threading
import time

CLIENT = "trainyard"
POLICY = "readwrite"
# As MinIO names the role that whoever has a token for CLIENT may take.
ROLE = "arn:minio:iam:::role/" + base64.urlsafe_b64encode(hashlib.sha1(CLIENT.encode()).digest()).decode().rstrip("=")


def trusted_by(url):
    """The environment of a MinIO that trusts the provider there."""
    return {"MINIO_IDENTITY_OPENID_CONFIG_URL": f"{url}/.well-known/openid-configuration",
            "MINIO_IDENTITY_OPENID_CLIENT_ID": CLIENT, "MINIO_IDENTITY_OPENID_CLIENT_SECRET": "none",
            "MINIO_IDENTITY_OPENID_ROLE_POLICY": POLICY}


def encoded(content):
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


class Provider:
    def __init__(self, folder):
        self.key = str(pathlib.Path(folder) / "identity.key")
        subprocess.run(["openssl", "genrsa", "-out", self.key, "2048"], check=True, capture_output=True)
        told = subprocess.run(["openssl", "rsa", "-in", self.key, "-noout", "-modulus"], check=True, capture_output=True,
                              text=True).stdout
        modulus = bytes.fromhex(told.strip().partition("=")[2])
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.pages = {
            "/.well-known/openid-configuration": {
                "issuer": self.url, "jwks_uri": f"{self.url}/keys", "authorization_endpoint": f"{self.url}/none",
                "token_endpoint": f"{self.url}/none", "id_token_signing_alg_values_supported": ["RS256"],
                "response_types_supported": ["id_token"], "subject_types_supported": ["public"]},
            "/keys": {"keys": [{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": encoded(modulus),
                                "e": encoded(b"\x01\x00\x01")}]}}

    def handler(self):
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                page = provider.pages.get(self.path)
                content = json.dumps(page or {}).encode()
                self.send_response(200 if page else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        return Handler

    def token(self, seconds):
        """Of somebody, good for so long."""
        now = int(time.time())
        claims = {"iss": self.url, "sub": "worker", "aud": CLIENT, "iat": now, "exp": now + seconds}
        text = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT", "kid": "1"}, claims))
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=text.encode(), check=True,
                                   capture_output=True).stdout
        return f"{text}.{encoded(signature)}"

    def write_token(self, path, seconds):
        """As a kubelet does: it is there whole."""
        new = pathlib.Path(f"{path}.new")
        new.write_text(self.token(seconds))
        os.replace(new, path)

    @contextlib.contextmanager
    def renewed_token(self, path, seconds):
        """The file has one that is good for about so long, for as long as this lasts."""
        over = threading.Event()

        def renew():
            while not over.wait(1):
                self.write_token(path, seconds)

        self.write_token(path, seconds)
        thread = threading.Thread(target=renew)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
