"""Runs one program, or one group of them, and returns what it measured."""

import collections
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

LIMIT = 300  # seconds; against hangs only


def machine():
    model = "unknown CPU"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":")[1].strip()
            break
    cores = len([l for l in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                 if l.startswith("processor")])
    return f"{cores} cores ({model})"


@contextlib.contextmanager
def ended(running, patience=20):
    """Whatever is raised meanwhile, the process has ended afterwards: it is told to, and killed after `patience` seconds."""
    try:
        yield running
    except BaseException:
        running.terminate()
        try:
            running.wait(patience)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        raise


Ticks = collections.namedtuple("Ticks", "all idle stolen")


def ticks():
    """Of all processors since the machine was started: all time, that without work, and what its host gave to others."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return Ticks(sum(fields), fields[3] + fields[4], fields[7])


class Surroundings:
    """What else the machine had to do, from now until it is asked."""

    LOADED = 0.3  # figures of a run that begins with more say little

    def __init__(self):
        self.load, self.began = os.getloadavg()[0], ticks()

    def text(self):
        now = ticks()
        share = (now.stolen - self.began.stolen) / max(now.all - self.began.all, 1)
        return (f"{'LOADED: ' if self.load > self.LOADED else ''}load {self.load:.1f} at the start and "
                f"{os.getloadavg()[0]:.1f} at the end, {100 * share:.1f} % of the time stolen")


def iperf3(seconds):
    """One TCP stream over loopback: its rate, and the CPU time that both sides spend on a byte."""
    with socket.socket() as free:  # iperf3 cannot choose a port
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port, "--forceflush"],
                              stdout=subprocess.PIPE, text=True)
    try:
        while "listening on" not in (line := server.stdout.readline()):
            if not line:
                raise RuntimeError("iperf3 cannot listen")
        client = subprocess.run(["iperf3", "-c", "127.0.0.1", "-p", port, "-t", str(seconds), "-J"],
                                stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    finally:
        server.kill()
        server.communicate()
    end = json.loads(client.stdout)["end"]
    rate = end["sum_received"]["bits_per_second"] / 8
    cpu = end["cpu_utilization_percent"]
    return {"bytes_per_second": rate,
            "cpu_seconds_per_byte": (cpu["host_total"] + cpu["remote_total"]) / 100 / rate}


def control(bin_dir):
    """Calls of control over mutual TLS, and unencrypted, in turns."""
    done = subprocess.run([bin_dir / "trainyard-bench-control"], stdout=subprocess.PIPE, text=True,
                          timeout=LIMIT, check=True)
    return json.loads(done.stdout)


class PushPullServer:
    def __init__(self, bin_dir, shape, servers, workers, index, replicas=False):
        self.process = subprocess.Popen(
            [bin_dir / "trainyard-bench-push-pull", "server", "--shape", shape, "--ps", str(index),
             "--servers", str(servers), "--workers", str(workers)] + ["--replicas"] * replicas,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = "127.0.0.1:" + self.process.stdout.readline().strip()

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def cpu_ms(self):
        return self.say("")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.wait(LIMIT) != 0:
            raise RuntimeError("the server failed")


def push_pull(bin_dir, shape, servers, workers, steps, shared=False, replicas=False, warm_up=5):
    """The slowest worker's median step, and all processes' CPU time a step."""
    hosts = [PushPullServer(bin_dir, shape, servers, workers, i, replicas) for i in range(servers)]
    for host in hosts if replicas else []:
        for index, other in enumerate(hosts):
            host.say(f"ps {index} {other.address}")
    command = [bin_dir / "trainyard-bench-push-pull", "worker", "--shape", shape, "--workers",
               str(workers), "--steps", str(steps), "--warm-up", str(warm_up)]
    command += ["--shared-memory"] if shared else []
    for host in hosts:
        command += ["--server", host.address]
    before = sum(host.cpu_ms() for host in hosts)
    running = [subprocess.Popen(command + ["--index", str(i)], stdout=subprocess.PIPE, text=True)
               for i in range(workers)]
    printed = [worker.communicate(timeout=LIMIT)[0] for worker in running]
    server_cpu = (sum(host.cpu_ms() for host in hosts) - before) / (steps + warm_up)
    for host in hosts:
        host.close()
    if any(worker.returncode != 0 for worker in running):
        raise RuntimeError("a worker failed")
    results = [json.loads(text) for text in printed]
    return {"bytes": results[0]["bytes"], "chunks": results[0]["chunks"],
            "milliseconds": max(statistics.median(r["milliseconds"]) for r in results),
            "cpu_ms": server_cpu + sum(r["cpu_ms"] for r in results)}


def compute(bin_dir, data, workers, steps, servers=0):
    """Workers that train beside each other and synchronize with nobody, or only wait for each other at the end
    of each step, at so many servers: their mean median step."""
    command = [bin_dir / "trainyard-bench-compute", "--images", data / "train-images-idx3-ubyte.gz",
               "--labels", data / "train-labels-idx1-ubyte.gz", "--steps", str(steps), "--workers", str(workers)]
    hosts = [PushPullServer(bin_dir, "barrier", servers, workers, i) for i in range(servers)]
    for host in hosts:
        command += ["--server", host.address]
    running = [subprocess.Popen(command + ["--index", str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for i in range(workers)]
    for worker in running:
        worker.stdout.readline()
    for worker in running:
        worker.stdin.write("\n")
        worker.stdin.flush()
    medians = [statistics.median(json.loads(w.communicate(timeout=LIMIT)[0])["milliseconds"][5:])
               for w in running]
    for host in hosts:
        host.close()
    return {"milliseconds": statistics.mean(medians)}


JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: bench}
spec:
  volumes: [{name: data, mountPath: /data}]
  STRATEGY
  worker: {replicas: 2}
  training:
    model: {name: mnist_cnn, dropout: 0.5}
    data: {format: idx, images: /data/train-images-idx3-ubyte.gz, labels: /data/train-labels-idx1-ubyte.gz}
    batchSize: 128
    threads: 1
    sharedMemory: SHARED
    chunkReplicas: REPLICAS
    steps: STEPS
    optimizer: {name: RMSProp, learningRate: 0.001}
"""


def run_job(bin_dir, file, folder, *flags):
    """Runs a job as a user does; its metrics of training."""
    subprocess.run([bin_dir / "trainyard", "run", "-f", file, "--dir", folder, *flags], check=True, timeout=LIMIT,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [m for m in metrics if "train_seconds" in m]


def steady(folder, warm_up):
    """Of a run's training from the step `warm_up` on: steps, seconds, steps per second; and its first and last loss."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "train_seconds" in line]
    measured = [line for line in lines if line["step"] >= warm_up]
    steps = measured[-1]["step"] - measured[0]["step"]
    seconds = measured[-1]["time"] - measured[0]["time"]
    return {"steps_per_second": steps / seconds, "steps": steps, "seconds": seconds,
            "first_loss": lines[0]["loss"], "last_loss": lines[-1]["loss"]}


def median_step(lines):
    """Seconds of a step between two lines of metrics, the first two left out."""
    return statistics.median((b["train_seconds"] - a["train_seconds"]) / (b["step"] - a["step"])
                             for a, b in zip(lines[1:], lines[2:]))


def job_text(steps, shared=False, servers=2, replicas=True):
    strategy = f"ps: {{replicas: {servers}}}" if servers else "strategy: AllReduce"
    return (JOB.replace("STEPS", str(steps)).replace("SHARED", "Auto" if shared else "Never")
            .replace("STRATEGY", strategy).replace("REPLICAS", "Auto" if replicas else "Never"))


def job(bin_dir, out, data, steps, shared=False, servers=2, replicas=True):
    """The whole job as a user runs it, without servers with strategy AllReduce: the median step between two
    lines of its metrics, and the time from the command to the end of the first step."""
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        scratch = pathlib.Path(scratch)
        file = scratch / "job.yaml"
        file.write_text(job_text(steps, shared, servers, replicas))
        started = time.time()
        lines = run_job(bin_dir, file, scratch / "run", "--volume", f"data={data}")
    seconds = median_step(lines)
    return {"step_ms": seconds * 1e3, "images_per_second": 256 / seconds,
            "first_step_seconds": lines[0]["time"] - started}
