"""Programs that the tests of monitoring run: Prometheus, local jobs, an operator."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import queries

# Against hangs only: machines are shared and slow.
SECONDS = 300


def until(what, condition, seconds=SECONDS, every=0.2):
    """What `condition` returns once it is true."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"timed out after {seconds} s waiting for {what() if callable(what) else what}")
        time.sleep(every)


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def die_with_parent():
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Program:
    """A child process with its output in a file; ended with the `with`. `more`: of Popen."""

    def __init__(self, command, log, end=signal.SIGTERM, **more):
        self.log, self.end = log, end
        with log.open("wb") as output:
            more = {"stdout": output, "stderr": output, **more}
            self.child = subprocess.Popen([str(part) for part in command], preexec_fn=die_with_parent, **more)

    def text(self):
        return self.log.read_text(errors="replace")

    def alive(self):
        if self.child.poll() is not None:
            raise AssertionError(f"{self.child.args[0]} ended with {self.child.returncode}: {self.text()[-3000:]}")
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.send_signal(self.end)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(60)
        self.child.kill()
        self.child.wait()


class Prometheus(Program):
    def __init__(self, folder, jobs, prefix=(), **more):
        """`jobs`: {name: files of file_sd_configs}. `prefix`: of the command, puts it where it is to run."""
        folder.mkdir()
        self.url = f"http://127.0.0.1:{free_port()}"
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                  "rule_files": [str(queries.ALERTS)],
                  "scrape_configs": [
                      {"job_name": name, "file_sd_configs": [{"files": [str(one) for one in files],
                                                              "refresh_interval": "1s"}]}
                      for name, files in jobs.items()]}
        (folder / "prometheus.yml").write_text(json.dumps(config))
        super().__init__([*prefix, "prometheus", f"--config.file={folder / 'prometheus.yml'}",
                          f"--storage.tsdb.path={folder / 'data'}",
                          f"--web.listen-address={self.url.removeprefix('http://')}"], folder / "log", **more)

    def fetch(self, url):
        return fetch(url)

    def get(self, path, **parameters):
        text = self.fetch(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}")
        return json.loads(text)["data"]

    def ready(self):
        self.alive()
        try:
            return "Ready" in self.fetch(f"{self.url}/-/ready")
        except OSError:
            return False

    def query(self, expr):
        """[(labels, value)] at this moment."""
        return [(one["metric"], float(one["value"][1])) for one in self.get("query", query=expr)["result"]]

    def sum(self, expr):
        return sum(value for _, value in self.query(expr))


class LocalJob(Program):
    """`trainyard run` of a job file's text, with more `flags`."""

    def __init__(self, folder, name, text, flags=(), **more):
        folder.mkdir(parents=True, exist_ok=True)
        self.directory = folder / "runs" / name
        file = folder / f"{name}.yaml"
        file.write_text(text)
        super().__init__([queries.BIN / "trainyard", "run", "-f", file, "--dir", self.directory, *flags],
                         folder / f"{name}.log", end=signal.SIGINT, cwd=folder, **more)

    def targets(self):
        """{task: address of its metrics}, as its file for Prometheus says."""
        try:
            listed = json.loads((self.directory / "prometheus.json").read_text())
        except FileNotFoundError:
            return {}
        return {one["labels"]["pod"]: one["targets"][0] for one in listed}

    def metrics(self, task):
        return fetch(f"http://{self.targets()[task]}/metrics")


class Operator(Program):
    """The operator for one namespace of a test cluster, with a file for Prometheus beside it."""

    def __init__(self, folder, cluster, namespace, *flags):
        folder.mkdir()
        secret = folder / "root"
        secret.write_bytes(secrets.token_bytes(32))
        self.targets = folder / "prometheus.json"
        super().__init__([queries.BIN / "trainyard-operator", "--kubeconfig", cluster.kubeconfig, "--namespace",
                          namespace, "--root-secret", secret, "--agent-image", "trainyard-agent:test",
                          "--runtime-image", "trainyard-runtime:test", "--metrics-address", "127.0.0.1",
                          "--metrics-port", "0", "--leader-elect", "--lease-namespace", namespace,
                          # It is alone: slow answers of a busy machine must not end it.
                          "--lease-duration", "600", "--renew-deadline", "500", "--retry-period", "5", *flags],
                         folder / "log")

    def address(self):
        self.alive()
        found = re.search(r"metrics and health at (127\.0\.0\.1:\d+)", self.text())
        return found and found[1]

    def publish(self):
        self.targets.write_text(json.dumps([{"targets": [self.address()]}]))

    def metrics(self):
        return fetch(f"http://{self.address()}/metrics")


def scrape_often(address, times):
    """Takes a page of metrics again and again over one connection; of every tenth is checked that it has no series
    twice. How much the resident memory of the program grew since a tenth of that."""
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    first = resident = None
    for at in range(times):
        try:
            connection.request("GET", "/metrics")
            page = connection.getresponse().read().decode()
        except (http.client.HTTPException, ConnectionError):  # the server ends a connection after some requests
            connection.close()
            continue
        if at % 10 == 0:
            families(page)
            resident = float(re.search(r"(?m)^process_resident_memory_bytes\S* (\S+)$", page)[1])
        if at >= times // 10 and first is None:
            first = resident
    connection.close()
    return resident - first


def families(page):
    """{name: type} of a page of metrics; a name that is there twice, and a series that is, fail."""
    types, series = {}, set()
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"{name} twice"
            types[name] = kind
        elif line and not line.startswith("#"):
            key = line.rsplit(" ", 1)[0]
            assert key not in series, f"{key} twice"
            series.add(key)
    return types
