"""TensorFlow from PyPI, and clusters of its tasks on this machine."""
import hashlib
import json
import pathlib
import shutil
import socket
import subprocess
import sys

WHEELS = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "wheels_tensorflow.txt"
LIMIT = 300  # seconds for one training; against hangs only


def make_environment(venv):
    """The Python of an environment with the pinned wheels, kept for the next time; None if there is
    no way to them."""
    python, stamp = venv / "bin" / "python", venv / "wheels.sha256"
    wanted = hashlib.sha256(WHEELS.read_bytes() + sys.version.encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                          "--only-binary", ":all:", "-r", WHEELS])
    if pip.returncode != 0:
        return None
    stamp.write_text(wanted)
    return python


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    finally:
        for one in sockets:
            one.close()


def train(command, hosts, servers, arguments, out, on=lambda task: [], limit=LIMIT):
    """What the chief has measured, and its global steps per second.

    Args:
        command: starts a task, which is told --role, --index, --ps_hosts, --worker_hosts and `arguments`. A server
            prints "serving", a worker "ready" before it trains, and the chief its measurement as JSON.
        hosts: of the `servers`, then of the workers.
        out: where the tasks' logs go.
        on: what starts a command where the task is to be.
    """
    common = ["--ps_hosts", ",".join(hosts[:servers]), "--worker_hosts", ",".join(hosts[servers:]), *arguments]

    def start(role, index):
        with open(out / f"{role}-{index}.log", "w") as log:
            return subprocess.Popen([*on(f"{role}-{index}"), *command, "--role", role, "--index", str(index), *common],
                                    stdout=subprocess.PIPE, stderr=log, text=True)
    tasks = [start("ps", i) for i in range(servers)]
    workers = []
    try:
        for server in tasks:
            if "serving" not in server.stdout.readline():
                raise RuntimeError("a TensorFlow server did not start")
        # The others look for a model that the chief has made ready every 30 s only: it goes first.
        workers.append(start("worker", 0))
        if "ready" not in workers[0].stdout.readline():
            raise RuntimeError("TensorFlow's chief did not start")
        workers += [start("worker", i) for i in range(1, len(hosts) - servers)]
        # The others go on until they are ended.
        printed = workers[0].communicate(timeout=limit)[0]
        if workers[0].returncode != 0:
            raise RuntimeError("a TensorFlow worker failed")
    finally:
        for task in tasks + workers:  # its servers never end by themselves
            task.kill()
            task.communicate()
    result = json.loads(printed.splitlines()[-1])
    return {"steps_per_second": result["steps"] / result["seconds"], **result}
