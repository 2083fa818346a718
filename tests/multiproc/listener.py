#!/usr/bin/env python3
"""Somebody listens between the tasks of a job that are started by hand with a token in a file.

listener.py RUNTIME: all connections to 2 ps lead through relays that keep every byte, while a worker trains and
a ps is killed and comes back. Neither the token, nor the key of data, nor a call of control is in what was heard;
what was heard of control, sent again to the servers themselves, is not answered, and what was heard of a lane not
beyond the server's challenge. Once more with --encryption=TLS: then neither a push nor a fetch is heard.
"""
import hashlib
import hmac
import secrets
import socket
import sys
import tempfile
import threading

from hand_tasks import HandTasks

STEPS = 120
PATIENCE = 200
# The servers listen at one address of this machine, and are told and known by another: the relays'.
RELAYS, SERVERS = "127.0.0.1", "127.0.0.2"
TLS = b"\x16"
# How a lane begins (runtime/lanes/greeting.h), and the lengths of what is said before its first frame: the caller's
# preamble, Hello and Intro, and the server's Challenge.
LANE, ENCRYPTED_LANE = b"TYLANE--", b"TYLANETS"
GREETING, CHALLENGE = 8 + 40 + 68, 72


class Relay:
    """Passes on to `servers` what comes, and keeps it: `heard` is a list of (to the server, to the client)."""

    def __init__(self, servers=SERVERS, port=0):
        self.listener = socket.create_server((RELAYS, port))
        self.servers = servers
        self.port = self.listener.getsockname()[1]
        self.heard = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                server = socket.create_connection((self.servers, self.port))
            except OSError:
                client.close()
                continue
            both = (bytearray(), bytearray())
            self.heard.append(both)
            for source, target, record in ((client, server, both[0]), (server, client, both[1])):
                threading.Thread(target=self.pump, args=(source, target, record), daemon=True).start()

    @staticmethod
    def pump(source, target, record):
        try:
            while data := source.recv(1 << 16):
                record += data
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def data_key(token):
    """RuntimeKeys::data: HKDF with SHA-256, 32 bytes."""
    secret = hmac.new(b"trainyard.dev", token.encode(), hashlib.sha256).digest()
    return hmac.new(secret, b"data/runtime\x01", hashlib.sha256).hexdigest().encode()


class Job(HandTasks):
    def __init__(self, runtime, folder, relays, encryption):
        super().__init__(folder, PATIENCE)
        self.runtime, self.relays, self.encryption = runtime, relays, encryption
        with socket.create_server((RELAYS, 0)) as free:
            self.worker_port = free.getsockname()[1]
        self.token = secrets.token_hex(32)
        (self.folder / "token").write_text(self.token + "\n")

    def start(self, role, index):
        hosts = ",".join(f"{RELAYS}:{relay.port}" for relay in self.relays)
        flags = [role, f"--task_index={index}", f"--ps_hosts={hosts}",
                 f"--worker_hosts={RELAYS}:{self.worker_port}", "--issync=1", "--model=mlp",
                 "--hidden_units=32", "--synthetic_data=1000", "--batch_size=16",
                 f"--train_steps={STEPS}", "--optimizer=SGD", f"--token_file={self.folder}/token",
                 f"--checkpoint_dir={self.folder}/run", f"--encryption={self.encryption}"]
        if role == "ps":
            flags.append(f"--bind={SERVERS}")
        self.launch(f"{role}-{index}", [self.runtime, *flags], step_ms=20)


def answer_to(port, data):
    """What a server says to these bytes until it closes, or says nothing more."""
    answer = bytearray()
    try:
        with socket.create_connection((SERVERS, port), timeout=3) as own:
            own.sendall(data)
            while more := own.recv(1 << 16):
                answer += more
    except OSError:
        pass
    return bytes(answer)


def check_lane(port, said, found):
    """A lane's bytes are somebody's who has proved himself, and prove nothing on another connection."""
    if len(said) <= GREETING:
        return
    answer = answer_to(port, said[:GREETING + 4096])
    if not answer.startswith(b"TYLANE"):
        found.add("a server does not challenge who repeats a lane")
    if len(answer) > CHALLENGE:
        found.add("what was heard of a lane is answered when it is repeated")


def check(relays, token, encryption, found):
    """How many connections were heard: of control, of lanes, and of lanes that are encrypted."""
    controls = lanes = encrypted = 0
    for number, relay in enumerate(relays):
        for to_server, to_client in list(relay.heard):
            said, all_bytes = bytes(to_server), bytes(to_server) + bytes(to_client)
            for secret, name in ((token.encode(), "token"), (data_key(token), "key of data")):
                if secret in all_bytes:
                    found.add(f"ps-{number}: the {name} was heard")
            if b"trainyard.v1.Coordinator" in all_bytes:
                found.add(f"ps-{number}: a call of control was heard")
            if said.startswith(LANE):
                lanes += 1
                check_lane(relay.port, said, found)
                continue
            if said.startswith(ENCRYPTED_LANE):
                encrypted += 1
                if len(said) > len(LANE) and not said[len(LANE):].startswith(TLS):
                    found.add(f"ps-{number}: a lane that says it encrypts does not")
            elif said.startswith(TLS):
                controls += 1
            elif len(said) >= len(LANE):
                found.add(f"ps-{number}: a connection of no kind: {said[:16]!r}")
            answer = answer_to(relay.port, said)
            if f"{RELAYS}:".encode() in answer:  # a view says where the servers are
                found.add(f"ps-{number}: what was heard of control is answered when it is repeated")
    if encryption == "TLS" and lanes:
        found.add(f"{lanes} lanes without TLS")
    return controls, lanes, encrypted


def train(job):
    found = set()
    job.start("ps", 0)
    job.start("ps", 1)
    job.start("worker", 0)
    job.reach("worker-0", 20)
    job.processes["ps-1"].kill()
    job.processes["ps-1"].wait()
    job.start("ps", 1)  # fetches what it had from ps-0
    job.reach("worker-0", 50)
    heard = check(job.relays, job.token, job.encryption, found)
    assert not found, "\n".join(sorted(found))
    for name in job.processes:
        assert job.wait(name) == 0, (name, job.logs())
    assert "chunks taken over from other servers" in job.logs(), job.logs()
    return heard


def listen_to(runtime, encryption):
    relays = [Relay(), Relay()]
    with tempfile.TemporaryDirectory() as folder:
        job = Job(runtime, folder, relays, encryption)
        try:
            heard = train(job)
        finally:
            job.end()
    print("encryption {}: heard {} connections of control, {} lanes, {} encrypted lanes".format(encryption, *heard))
    return heard


def main():
    controls, lanes, encrypted = listen_to(sys.argv[1], "None")
    assert controls >= 4 and lanes >= 2 and encrypted == 0, (controls, lanes, encrypted)
    controls, lanes, encrypted = listen_to(sys.argv[1], "TLS")
    assert controls >= 4 and lanes == 0 and encrypted >= 2, (controls, lanes, encrypted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
