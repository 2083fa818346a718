"""An object store of the tests' own: MinIO with one bucket."""
import datetime
import hashlib
import hmac
import http.client
import json
import pathlib
import socket
import ssl
import subprocess
import sys
import time

from rig import build, identity, namespaces, pki

BUCKET = "lab"
REGION = "us-east-1"
USER = "trainyard"
PASSWORD = "not-a-secret"
LIMIT = 60
FETCH = """
import json, sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers=json.loads(sys.argv[2]))
sys.stdout.buffer.write(urllib.request.urlopen(request, timeout=60).read())
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def signed(method, host, path, content, now):
    """The headers of a request, by the "Signature Version 4" of AWS's General Reference."""
    headers = {"host": host, "x-amz-content-sha256": hashlib.sha256(content).hexdigest(),
               "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ")}
    names = ";".join(headers)
    canonical = "\n".join([method, path, "", *(f"{name}:{value}" for name, value in headers.items()), "", names,
                           headers["x-amz-content-sha256"]])
    scope = [now.strftime("%Y%m%d"), REGION, "s3", "aws4_request"]
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{PASSWORD}".encode()
    for part in (*scope, text):
        key = hmac.digest(key, part.encode(), "sha256")
    headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={USER}/{'/'.join(scope)}, SignedHeaders={names}, "
                                f"Signature={key.hex()}")
    return headers


class ObjectStore:
    """Runs while `start()` and `stop()` say so; what is in it stays. Over TLS."""

    def __init__(self, folder, host="127.0.0.1", port=None, wrapped=lambda command: command, settings=None):
        """`folder` and `host` as the server sees them; `wrapped` makes a command one that runs where it does;
        `settings`: more of its environment."""
        self.folder = pathlib.Path(folder)
        self.address = f"{host}:{port or free_port()}"
        self.wrapped = wrapped
        self.settings = settings or {}
        self.process = None
        certificates = self.folder / "certificates"
        self.authority = pki.Authority(certificates)
        self.authority.issue("server", "/CN=object-store", f"IP:{host}")
        # By the names that it looks for.
        (certificates / "server.crt").rename(certificates / "public.crt")
        (certificates / "server.key").rename(certificates / "private.key")
        (self.folder / "data" / BUCKET).mkdir(parents=True)

    def environment(self):
        """What a client needs."""
        return {"AWS_ENDPOINT_URL_S3": f"https://{self.address}", "AWS_ACCESS_KEY_ID": USER,
                "AWS_SECRET_ACCESS_KEY": PASSWORD, "AWS_CA_BUNDLE": self.ca()}

    def trust(self, name, certificate):
        """Another authority, which has signed for whom it asks; before it starts."""
        folder = self.folder / "certificates" / "CAs"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.crt").write_text(certificate)

    def environment_of_role(self, token):
        """What a client needs that has nothing but a token in a file; see identity.py."""
        return {"AWS_ENDPOINT_URL": f"https://{self.address}", "AWS_ROLE_ARN": identity.ROLE,
                "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_CA_BUNDLE": self.ca()}

    def ca(self):
        return self.authority.path("ca.crt")

    def put(self, key, content):
        """One object of plain name, from here."""
        path = f"/{BUCKET}/{key}"
        connection = http.client.HTTPSConnection(self.address, timeout=60, context=ssl.create_default_context(cafile=self.ca()))
        headers = signed("PUT", self.address, path, content, datetime.datetime.now(datetime.timezone.utc))
        connection.request("PUT", path, content, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise AssertionError(f"PUT {path}: {answer.status} {answer.read().decode()}")
        connection.close()

    def get(self, key):
        """An object's content, seen from where the server runs; None: there is none."""
        path = f"/{BUCKET}/{key}"
        headers = signed("GET", self.address, path, b"", datetime.datetime.now(datetime.timezone.utc))
        ask = self.wrapped(["env", f"SSL_CERT_FILE={self.ca()}", sys.executable, "-c", FETCH, f"https://{self.address}{path}",
                            json.dumps(headers)])
        done = subprocess.run(ask, capture_output=True)
        if done.returncode == 0:
            return done.stdout
        if b"HTTP Error 404" in done.stderr:
            return None
        raise AssertionError(f"GET {path}: {done.stderr.decode()}")

    def start(self):
        command = self.wrapped(["setpriv", "--pdeathsig", "KILL", "env", f"MINIO_ROOT_USER={USER}",
                                f"MINIO_ROOT_PASSWORD={PASSWORD}", f"HOME={self.folder}",
                                *(f"{name}={value}" for name, value in self.settings.items()), str(build.find("minio")), "server",
                                "--quiet", "--address", self.address, "--console-address", "127.0.0.1:0",
                                "--certs-dir", str(self.folder / "certificates"), str(self.folder / "data")])
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=namespaces.die_with_parent)
        return self

    def wait(self):
        """Until it answers, where it can be reached."""
        code = "import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=5)"
        ask = self.wrapped(["env", f"SSL_CERT_FILE={self.ca()}", sys.executable, "-c", code,
                            f"https://{self.address}/minio/health/ready"])
        end = time.monotonic() + LIMIT
        while subprocess.run(ask, capture_output=True).returncode != 0:
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(f"the object store does not answer: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def stop(self):
        """Kills it."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self.start().wait()

    def __exit__(self, *_):
        self.stop()
