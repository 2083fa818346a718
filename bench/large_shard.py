"""One parameter server with gigabytes of weights and slots: how long a start, a worker's death, a checkpoint and a
worker's death while one is written hold the job up, and whether anybody is taken for dead meanwhile.

Computing is simulated; weights, pushes, pulls, updates, copies and files are real. Needs three times as much memory as
weights and slots take, and twice as much room on the disk.

    python3 bench/large_shard.py --bin build/dev/bin [--gigabytes 7]
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import programs  # noqa: E402

LIMIT = 1200  # seconds; against hangs only
ARRAYS = 3  # Adam: weights and two slots
EVERY = 90  # seconds between two checkpoints
JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: large}
spec:
  ps: {replicas: 1}
  worker: {replicas: 1}
  runPolicy: {stopSeconds: 600}
  training:
    model: {name: mlp, hidden: [WIDE, WIDE], simulatedStepSeconds: 0.5}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 512, evalSamples: 10}
    batchSize: 2
    steps: 100000
    chunkReplicas: Never
    optimizer: {name: Adam, learningRate: 0.001}
    checkpoint: {everySeconds: EVERY, keep: 1}
"""


class Run:
    def __init__(self, bin_dir, job, folder):
        self.folder = folder / "run"
        self.out = open(folder / "out.txt", "w", encoding="utf-8")
        self.began = time.monotonic()
        self.process = subprocess.Popen([bin_dir / "trainyard", "run", "-f", job, "--dir", self.folder],
                                        stdout=self.out, stderr=subprocess.STDOUT)

    def wait(self, what, holds):
        """Seconds until `holds()`."""
        begin = time.monotonic()
        while not holds():
            if self.process.poll() is not None or time.monotonic() - begin > LIMIT:
                raise RuntimeError(f"{what} did not come")
            time.sleep(0.01)
        return time.monotonic() - begin

    def step(self):
        """That the worker computes, or computed last; -1: none yet."""
        try:
            lines = (self.folder / "tasks/worker-0/positions.jsonl").read_bytes().splitlines()
            return json.loads(lines[-1])["step"]
        except (OSError, ValueError, IndexError):
            return -1

    def kill(self, task):
        record = json.loads((self.folder / f"tasks/{task}/agent.json").read_text())
        os.kill(record["childPid"], signal.SIGKILL)

    def checkpoints(self):
        return sorted(p.name for p in (self.folder / "checkpoints").glob("step-*.json"))

    def writing(self):
        return any((self.folder / "checkpoints").glob("ps-0.*.tmp"))

    def status(self):
        return json.loads((self.folder / "status.json").read_text())["status"]

    def log(self):
        return (self.folder / "tasks/ps-0/task.log").read_text(errors="replace")


def steps_beyond(run, step, count=2):
    return lambda: run.step() >= step + count


def checkpoint(run, killed):
    """Seconds from the file's begin to the manifest, the longest time without a step meanwhile, and where a worker is
    killed then, the seconds to the second step after that."""
    known = run.checkpoints()
    run.wait("a checkpoint", run.writing)
    begin = last_change = time.monotonic()
    step, longest, lost = run.step(), 0, None
    if killed:
        run.kill("worker-0")
        lost = run.wait("a step", steps_beyond(run, step))
        last_change = time.monotonic()
    while run.checkpoints() == known:
        if run.step() != step:
            step, last_change = run.step(), time.monotonic()
        longest = max(longest, time.monotonic() - last_change)
        time.sleep(0.01)
        if time.monotonic() - begin > LIMIT:
            raise RuntimeError("the checkpoint did not end")
    return time.monotonic() - begin, longest, lost


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--gigabytes", default=7.0, type=float, help="of weights and slots together")
    args = parser.parse_args()
    wide = int((args.gigabytes * 1e9 / ARRAYS / 4) ** 0.5) - 400  # both layers' inputs and outputs aside
    print(f"{programs.machine()}, load {os.getloadavg()[0]:.1f}\n", flush=True)
    print("| | seconds |\n|--|--|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "job.yaml").write_text(JOB.replace("WIDE", str(wide)).replace("EVERY", str(EVERY)))
        run = Run(args.bin, folder / "job.yaml", folder)
        try:
            started = run.wait("the first step", lambda: run.step() >= 1)
            print(f"| from the command to the second step | {started:.1f} |", flush=True)
            known = run.wait("the first checkpoint", run.checkpoints)
            print(f"| from there to the fresh start's checkpoint | {known:.1f} |", flush=True)
            step = run.step()
            run.kill("worker-0")
            print(f"| from a worker's death to the second step after it | "
                  f"{run.wait('a step', steps_beyond(run, step)):.1f} |", flush=True)
            took, longest, _ = checkpoint(run, killed=False)
            print(f"| a checkpoint's file and manifest | {took:.1f} |")
            print(f"| the longest time without a step meanwhile | {longest:.1f} |", flush=True)
            took, _, lost = checkpoint(run, killed=True)
            print(f"| a checkpoint with a worker's death while it is written | {took:.1f} |")
            print(f"| from that death to the second step after it | {lost:.1f} |", flush=True)
            status = run.status()
            run.process.send_signal(signal.SIGINT)
            begin = time.monotonic()
            run.process.wait(LIMIT)
            print(f"| Ctrl-C, with its checkpoint | {time.monotonic() - begin:.1f} |")
            silent = run.log().count("has not been heard of")
            print(f"\nlost steps {status.get('lostSteps', 0)}, restarts {status.get('restarts', 0)} (2 killed), "
                  f"members taken for dead {silent}")
        except RuntimeError as error:
            print(f"{error}\n{(folder / 'out.txt').read_text()[-3000:]}")
            sys.exit(1)
        finally:
            run.process.kill()
            run.process.wait()


if __name__ == "__main__":
    main()
