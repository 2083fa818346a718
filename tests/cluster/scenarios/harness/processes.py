"""The programs under test as processes of a case: operators, and proxies before the apiserver."""
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request

from rig import namespaces

AGENT_IMAGE = "registry.test/agent:1"
RUNTIME_IMAGE = "registry.test/runtime:1"
LIMIT = 300  # against hangs: a machine with other work takes many times the usual


class Operator:
    """One operator process after the other, all with the same flags and one log."""

    def __init__(self, folder, kubeconfig, flags=()):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "operator.log"
        secret = self.folder / "root-secret"
        if "--root-secret-name" not in flags:
            secret.write_bytes(b"0123456789abcdef" * 4)
        self.kubeconfig = kubeconfig
        self.flags = ["--agent-image", AGENT_IMAGE, "--runtime-image", RUNTIME_IMAGE, "--root-secret", str(secret),
                      "--metrics-address", "127.0.0.1", "--metrics-port", "0", "--log-format", "text",
                      "--log-level", "debug", *map(str, flags)]
        if "--unreachable-after" not in flags:
            # No agent answers here. Half a minute into a case that would be told of, at a moment that depends on the
            # machine, among what the case looks at.
            self.flags += ["--unreachable-after", "3600"]
        self.process = None
        self.begun = 0  # where in the log the process in hand began

    def start(self):
        program = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "trainyard-operator"
        self.begun = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([program, "--kubeconfig", str(self.kubeconfig), *self.flags],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=namespaces.die_with_parent)
        return self

    @property
    def pid(self):
        return self.process.pid

    def text(self):
        """What the process in hand has logged."""
        return self.log.read_bytes()[self.begun:].decode(errors="replace") if self.log.exists() else ""

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(LIMIT)

    def stop(self):
        """SIGTERM; its exit code."""
        self.process.terminate()
        return self.process.wait(LIMIT)

    def restart(self):
        self.kill()
        return self.start()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def wait_exit(self, seconds=LIMIT):
        return self.process.wait(seconds)

    def close(self):
        if self.alive():
            self.resume()
        self.kill()

    def address(self):
        """Where it serves /metrics and health."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            for line in self.text().splitlines():
                if "metrics and health at " in line:
                    return line.split("metrics and health at ")[1].split()[0]
            if not self.alive():
                raise AssertionError(f"the operator does not serve:\n{self.text()[-2000:]}")
            time.sleep(0.05)
        raise AssertionError(f"timed out after {LIMIT} s waiting for the operator to serve:\n{self.text()[-2000:]}")

    def fetch(self, path):
        """(HTTP status, text)."""
        try:
            with urllib.request.urlopen(f"http://{self.address()}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self):
        """{"name{labels}": value} of /metrics."""
        found = {}
        for line in self.fetch("/metrics")[1].splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found


class Proxy:
    """The fault-injecting proxy (fault_proxy.cc) before an apiserver; .kubeconfig leads to it."""

    def __init__(self, folder, upstream):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.kubeconfig = folder / "proxy.kubeconfig"
        program = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "fault_proxy"
        self.process = subprocess.Popen([program, str(upstream), str(self.kubeconfig)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        preexec_fn=namespaces.die_with_parent)
        first = self.process.stdout.readline().strip()
        assert first == "ready", f"the proxy did not start: {first}"

    def tell(self, **command):
        """Sends a command; its answer."""
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer
        return answer

    def inject(self, kind, **fault):
        """kind: answer, dropRequest, loseReply, dropStream, silence, hold; method, target (a part of it),
        times (-1: until heal()), status, headers, body, afterMs."""
        self.tell(do="inject", kind=kind, **fault)

    def heal(self):
        self.tell(do="heal")

    def release(self):
        self.tell(do="release")

    def drop(self):
        """Closes all connections."""
        self.tell(do="drop")

    def requests(self, start=0):
        """What reached the apiserver: [{"method", "target", "body"}], from number `start`."""
        return self.tell(do="requests", **{"from": start})["requests"]

    def writes(self, start=0):
        """Those that are no GET and no lease."""
        return [r for r in self.requests(start) if r["method"] != "GET" and "/leases" not in r["target"]]

    def kill_at(self, pid, write):
        """kill -9 of the process once the apiserver has carried out the `write`-th write from now."""
        self.tell(do="kill", pid=pid, after=write)

    def killed(self):
        return self.tell(do="killed")["killed"]

    def close(self):
        self.process.kill()
        self.process.communicate()
