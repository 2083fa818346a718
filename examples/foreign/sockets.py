#!/usr/bin/env python3
"""A parameter-server program as one would write it by hand: flags, sockets, the standard library.

Workers fit y = w.x; each ps holds a part of w, gives it out and takes gradients. As TensorFlow's
`server.join()`, a ps never returns: who starts it has to end it.
"""
import argparse
import array
import random
import socket
import socketserver
import sys
import threading
import time

SIZE = 20_000  # numbers on each ps


def receive(connection, count):
    data = bytearray()
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the other side is gone")
        data += more
    return bytes(data)


def serve(address):
    weights = array.array("f", [0.0] * SIZE)
    lock = threading.Lock()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            while True:
                try:
                    gradient = array.array("f", receive(self.request, 4 * SIZE))
                except ConnectionError:
                    return
                with lock:
                    for i, g in enumerate(gradient):
                        weights[i] -= g
                    reply = weights.tobytes()
                self.request.sendall(reply)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    host, port = address.rsplit(":", 1)
    print(f"serving on {address}", flush=True)
    Server((host, int(port)), Handler).serve_forever()


def connect(address):
    host, port = address.rsplit(":", 1)
    for _ in range(600):  # a ps may start later than a worker
        try:
            return socket.create_connection((host, int(port)), timeout=60)
        except OSError:
            time.sleep(0.1)
    sys.exit(f"no ps at {address}")


def work(ps_hosts, index, steps):
    rng = random.Random(index)
    servers = [connect(address) for address in ps_hosts]
    target = [((7 * i) % 13) / 13 for i in range(SIZE)]
    gradients = [bytes(4 * SIZE) for _ in servers]
    for step in range(steps + 1):
        loss = 0.0
        for at, server in enumerate(servers):
            server.sendall(gradients[at])
            weights = array.array("f", receive(server, 4 * SIZE))
            noise = 1 + 0.1 * rng.random()
            error = [w - t for w, t in zip(weights, target)]
            loss += sum(e * e for e in error) / SIZE
            gradients[at] = array.array("f", [0.05 * noise * e for e in error]).tobytes()
        if step % 10 == 0 or step == steps:
            print(f"step {step} loss {loss / len(servers):.6f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", choices=["ps", "worker"], required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--steps", type=int, default=50)
    flags = parser.parse_args()
    ps_hosts = flags.ps_hosts.split(",")
    if flags.job_name == "ps":
        serve(ps_hosts[flags.task_index])
    work(ps_hosts, flags.task_index, flags.steps)


if __name__ == "__main__":
    main()
