"""Peers from PyPI, and clusters of their tasks on this machine."""
import json
import pathlib
import socket
import subprocess
import sys

DEPLOY = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy"
sys.path.insert(0, str(DEPLOY))

from venv_of import make_venv  # noqa: E402

LIMIT = 300  # seconds for one training; against hangs only


def tensorflow(venv):
    """The Python of an environment with TensorFlow; None where the wheels cannot be had."""
    return make_venv(venv, DEPLOY / "wheels_tensorflow.txt")


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
            prints "serving", a worker "ready", and trains once it can read a line; the chief prints its measurement
            as JSON.
        hosts: of the `servers`, then of the workers.
        out: where the tasks' logs go.
        on: what starts a command where the task is to be.
    """
    common = ["--ps_hosts", ",".join(hosts[:servers]), "--worker_hosts", ",".join(hosts[servers:]), *arguments]

    def start(role, index):
        with open(out / f"{role}-{index}.log", "w") as log:
            return subprocess.Popen([*on(f"{role}-{index}"), *command, "--role", role, "--index", str(index), *common],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def hear(task, word):
        while word not in (said := task.stdout.readline()):  # PaddlePaddle prints other things, too
            if not said:
                raise RuntimeError(f"a task did not say that it is {word}: its log is in {out}")

    tasks = [start("ps", i) for i in range(servers)]
    workers = []
    try:
        for server in tasks:
            hear(server, "serving")
        # TensorFlow's others look for a model that the chief has made ready every 30 s only: it goes first.
        workers.append(start("worker", 0))
        hear(workers[0], "ready")
        workers += [start("worker", i) for i in range(1, len(hosts) - servers)]
        for worker in workers[1:]:
            hear(worker, "ready")
        # Together: without others that slow them down the chief's first steps are no measure of a cluster.
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        # The others go on until they are ended.
        printed = workers[0].communicate(timeout=limit)[0]
        if workers[0].returncode != 0:
            raise RuntimeError(f"the chief failed: its log is in {out}")
    finally:
        for task in tasks + workers:  # its servers never end by themselves
            task.kill()
            task.communicate()
    result = json.loads(printed.splitlines()[-1])
    return {"steps_per_second": result["steps"] / result["seconds"], **result}
