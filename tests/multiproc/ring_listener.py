#!/usr/bin/env python3
"""Somebody listens between the workers of a job with strategy AllReduce.

ring_listener.py TRAINYARD RUNTIME: all connections between 2 workers, which share no memory, lead through relays
that keep every byte. Neither the token nor a call of control is in what was heard. Gradients are, with
network.encryption None; with TLS they are not, nor is a rank's name.
"""
import json
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
import threading

from hand_tasks import HandTasks
from listener import RELAYS, TLS, Relay

STEPS = 40
PATIENCE = 200
# The workers listen at an address that nobody else does, and are told and known by another: the relays'.
WORKERS = "127.0.0.77"
# How a rank begins (runtime/transport/handshake.cc), and how every message that carries data does (frame.h).
HELLO, MESSAGE = b"TYMESH", b"TYD1\x02\x00\x01\x00"
JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: heard}
spec:
  strategy: AllReduce
  network: {encryption: ENCRYPTION}
  worker: {replicas: 2}
  training:
    model: {name: mlp, hidden: [32]}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 1000, evalSamples: 10}
    batchSize: 16
    steps: STEPS
    sharedMemory: Never
    optimizer: {name: SGD, learningRate: 0.01}
    checkpoint: {everySeconds: 600}
"""


def listening(address):
    """The ports at `address` (IPv4) where somebody listens."""
    wanted = "".join(f"{int(part):02X}" for part in reversed(address.split(".")))
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        host, port = local.split(":")
        if host == wanted and state == "0A":
            yield int(port, 16)


class Relays:
    """One for each port of the workers, as soon as there is one: a rank that is early calls again."""

    def __init__(self):
        self.by_port = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        while not self.over.wait(0.02):
            for port in listening(WORKERS):
                if port not in self.by_port:
                    self.by_port[port] = Relay(WORKERS, port)

    def end(self):
        self.over.set()
        self.thread.join()


def free_port():
    with socket.create_server((RELAYS, 0)) as free:
        return free.getsockname()[1]


class Job(HandTasks):
    def __init__(self, programs, folder, encryption):
        super().__init__(folder, PATIENCE)
        self.runtime = programs[1]
        text = JOB.replace("ENCRYPTION", encryption).replace("STEPS", str(STEPS))
        (self.folder / "job.yaml").write_text(text)
        resolved = subprocess.run([programs[0], "validate", "-o", "json", "-f", self.folder / "job.yaml"],
                                  capture_output=True, text=True, check=True)
        job = json.loads(resolved.stdout)
        job["metadata"]["uid"] = "heard"
        (self.folder / "job.json").write_text(json.dumps(job))
        self.token = secrets.token_hex(32)
        (self.folder / "token").write_text(self.token + "\n")
        self.coordinator = free_port()
        tasks = [{"id": {"role": "ROLE_WORKER", "index": index}, "created": 1, "ip": RELAYS,
                  "port": self.coordinator if index == 0 else free_port()} for index in range(2)]
        (self.folder / "membership.json").write_text(json.dumps(
            {"job": "heard", "uid": "heard", "strategy": "AllReduce", "revision": 1, "tasks": tasks}))

    def start(self, index):
        task = self.folder / "run/tasks" / f"worker-{index}"
        task.mkdir(parents=True)
        self.launch(f"worker-{index}", [
            self.runtime, "worker", "--job", self.folder / "job.json", "--job-dir", self.folder / "run",
            "--task-dir", task, "--index", str(index), "--created", "1", "--start", "1", "--bind", WORKERS,
            "--port", str(self.coordinator if index == 0 else 0), "--token", self.folder / "token",
            "--membership", self.folder / "membership.json"], step_ms=5)


def check(job, relays):
    """How many connections between ranks were heard in plain and encrypted, and in how many a gradient was."""
    found = set()
    plain = encrypted = gradients = 0
    for port, relay in relays.by_port.items():
        for to_server, to_client in list(relay.heard):
            said, all_bytes = bytes(to_server), bytes(to_server) + bytes(to_client)
            for secret in (job.token.encode(), b"trainyard.v1.Coordinator"):
                if secret in all_bytes:
                    found.add(f"{secret.decode()} was heard")
            gradients += MESSAGE in all_bytes
            if port == job.coordinator:
                if said and not said.startswith(TLS):
                    found.add(f"control without TLS: {said[:16]!r}")
            elif said.startswith(HELLO):
                plain += 1
            elif said.startswith(TLS):
                encrypted += 1
                if HELLO in all_bytes:
                    found.add("a rank's greeting was heard")
            elif said:
                found.add(f"a connection of no kind: {said[:16]!r}")
    assert not found, "\n".join(sorted(found))
    return plain, encrypted, gradients


def listen_to(programs, encryption):
    relays = Relays()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(programs, folder, encryption)
        try:
            for index in range(2):
                job.start(index)
            for name in job.processes:
                assert job.wait(name) == 0, (name, job.logs())
            heard = check(job, relays)
        finally:
            job.end()
            relays.end()
    print("encryption {}: heard {} connections between ranks, {} encrypted, gradients in {}".format(encryption, *heard))
    return heard


def main():
    # One connection for each direction; more where a rank was early.
    plain, encrypted, gradients = listen_to(sys.argv[1:], "None")
    assert plain >= 2 and encrypted == 0 and gradients == 2, (plain, encrypted, gradients)
    plain, encrypted, gradients = listen_to(sys.argv[1:], "TLS")
    assert plain == 0 and encrypted >= 2 and gradients == 0, (plain, encrypted, gradients)
    return 0


if __name__ == "__main__":
    sys.exit(main())
