"""A table of millions of rows on 2 parameter servers that keep replicas of each other's: how a step is while it grows, how
long deaths of each role and a change of the number of servers hold the job up, how long a checkpoint takes and a start from
it, with 3 servers; and what processes need of memory. With --steps the job goes on from there with delta checkpoints to
its end, and what it ends with is compared with a job of as many steps that nobody disturbs.

Two workers of a program (bench/large_tables_program.py) push random ids of 64 bits, dim 16, Adagrad. 160 bytes a row, on two
servers: 30 million rows need 10 GB of memory and 4 of the disk.

    python3 bench/large_tables.py --bin build/dev/bin [--rows 30] [--new 100000] [--steps 2500] [--out build/large-tables]
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import memory  # noqa: E402
import programs  # noqa: E402

LIMIT = 900  # seconds; against hangs only
SOURCE = pathlib.Path(__file__).resolve().parent.parent
JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: large}
spec:
  ps: {replicas: 2, maxReplicas: 3}
  worker:
    replicas: 2
    template:
      spec:
        containers:
          - name: task
            command: [PYTHON, PROGRAM]
            env: ENV
  runPolicy: {stopSeconds: 600, backoffLimit: 100}
  training:
    model: {name: program}
    batchSize: 16
    steps: STEPS
    deterministic: true
    tables: [{name: rows, dim: 16, rows: {max: 100000000}}]
    optimizer: {name: Adagrad, learningRate: 0.01}
    checkpoint: {everySeconds: 100000, keep: 2}
"""


class Run:
    def __init__(self, bin_dir, folder, program, rows, new, steps):
        folder.mkdir(parents=True)
        site = folder / "site"
        shutil.copytree(SOURCE / "python/trainyard", site / "trainyard")
        (site / "trainyard/libtrainyard.so").symlink_to((bin_dir.parent / "lib/libtrainyard.so").resolve())
        told = {"PYTHONPATH": str(site), "STEPS": str(folder / "steps"), "ROWS": str(rows), "NEW": str(new),
                "OMP_NUM_THREADS": "1"}
        text = JOB.replace("PYTHON", sys.executable, 1).replace("PROGRAM", str(program), 1)
        text = text.replace("steps: STEPS", f"steps: {steps or 1_000_000}")
        text = text.replace("ENV", json.dumps([{"name": k, "value": v} for k, v in told.items()]))
        (folder / "job.yaml").write_text(text)
        self.bin, self.folder = bin_dir, folder
        self.launch()

    def launch(self, *flags):
        out = open(self.folder / "out.txt", "a", encoding="utf-8")
        self.process = subprocess.Popen([self.bin / "trainyard", "run", "-f", self.folder / "job.yaml", "--dir",
                                         self.folder / "run", *flags], stdout=out, stderr=subprocess.STDOUT)

    def steps(self):
        """(step, when it ended) of worker-0."""
        try:
            lines = (self.folder / "steps-0").read_text().split("\n")[:-1]
        except OSError:
            return []
        return [(int(step), float(when)) for step, when in (line.split() for line in lines)]

    def wait(self, what, holds):
        begin = time.monotonic()
        while not holds():
            if self.process.poll() is not None or time.monotonic() - begin > LIMIT:
                raise RuntimeError(f"{what} did not come")
            time.sleep(0.02)

    def reaches(self, step):
        self.wait(f"step {step}", lambda: (self.steps() or [(-1, 0)])[-1][0] >= step)

    def kill(self, task):
        record = json.loads((self.folder / f"run/tasks/{task}/agent.json").read_text())
        os.kill(record["childPid"], signal.SIGKILL)

    def resident(self, task):
        record = json.loads((self.folder / f"run/tasks/{task}/agent.json").read_text())
        return (memory.in_status(record["childPid"], "VmRSS") or 0) / 1e6

    def told(self, pattern):
        """Numbers that the coordinator has told of, in its order."""
        log = (self.folder / "run/tasks/ps-0/task.log").read_text(encoding="utf-8", errors="replace")
        return [int(number) for number in re.findall(pattern, log)]

    def epoch(self):
        return self.told(r"epoch (\d+) starts at")[-1]

    def size(self, step):
        """Bytes of the servers' files of that checkpoint."""
        files = (self.folder / "run/checkpoints").glob(f"ps-*.step-{step}.*")
        return sum(path.stat().st_size for path in files)

    def end(self):
        """The digest of what the job ends with."""
        if self.process.wait(LIMIT) != 0:
            raise RuntimeError("the job did not succeed")
        done = subprocess.run([self.bin / "trainyard", "checkpoint", "digest", self.folder / "run"], check=True,
                              capture_output=True, text=True, timeout=LIMIT)
        return done.stdout.split()[-1]

    def settled(self, since):
        """An epoch has begun since that one in which no part of the tables is copied."""
        newest = self.epoch()
        return newest > since and newest not in self.told(r"epoch (\d+): of \d+ parts")

    def status(self):
        return json.loads((self.folder / "run/status.json").read_text())["status"]


def longest_gap(steps, since):
    """Between two steps, from `since` on."""
    times = [when for _, when in steps if when >= since - 5]
    return max(b - a for a, b in zip(times, times[1:]) if b >= since)


def typical(steps, first, last):
    """Milliseconds of a step, the median."""
    times = [when for step, when in steps if first <= step < last]
    gaps = sorted(b - a for a, b in zip(times, times[1:]))
    return 1e3 * gaps[len(gaps) // 2]


def row(what, value):
    print(f"| {what} | {value} |", flush=True)


def grow(run, rows, new):
    until = rows // (2 * new)
    run.reaches(until)
    steps = run.steps()
    first, last = typical(steps, until // 10, until // 5), typical(steps, until - until // 10, until)
    row(f"a step at {rows // 10:,} to {rows // 5:,} rows", f"{first:.0f} ms")
    row(f"a step before {rows:,} rows", f"{last:.0f} ms ({last / first:.2f} of that)")
    row("the longest step while it grows", f"{longest_gap(steps, steps[5][1]):.2f} s")
    run.reaches(until + 20)
    row("a step of rows that are there", f"{typical(run.steps(), until, until + 20):.0f} ms")
    for task in ("ps-0", "ps-1", "worker-0"):
        row(f"memory of {task}", f"{run.resident(task):,.0f} MB")


def disturb(run, what, act):
    at = run.steps()[-1][0]
    begin, epoch = time.time(), run.epoch()
    act()
    run.reaches(at + 10)
    gap = longest_gap(run.steps(), begin)
    run.wait("the end of copying", lambda: run.settled(epoch))
    settled = time.time()
    run.reaches(run.steps()[-1][0] + 5)  # in that epoch
    row(f"the longest time without a step after {what}; until all is in two places again",
        f"{max(gap, longest_gap(run.steps(), begin)):.2f} s; {settled - begin:.1f} s")


def scale(run, servers):
    subprocess.run([run.bin / "trainyard", "scale", run.folder / "run", "--ps", str(servers)], check=True,
                   stdout=subprocess.DEVNULL, timeout=LIMIT)


def copied_and_hashed(files, folder):
    """Seconds of dd, to the disk, and sha256sum of each file, all at once: what a checkpoint has to do at least."""
    begin = time.monotonic()
    shell = 'dd if="$0" of="$1" bs=4M conv=fsync status=none && sha256sum "$1" > "$1.sum"'
    each = [subprocess.Popen(["sh", "-c", shell, file, folder / file.name]) for file in files]
    if any(process.wait(LIMIT) != 0 for process in each):
        raise RuntimeError("dd or sha256sum failed")
    return time.monotonic() - begin


def stop_and_go_on(run, *flags):
    checkpoints = run.folder / "run/checkpoints"
    before = set(checkpoints.glob("step-*.json"))
    begin = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    run.wait("a checkpoint", lambda: set(checkpoints.glob("step-*.json")) - before)
    committed = time.monotonic() - begin
    run.process.wait(LIMIT)
    row("from Ctrl-C to its checkpoint; to the end", f"{committed:.1f} s; {time.monotonic() - begin:.1f} s")
    step = max(int(path.name.split("-")[1].split(".")[0]) for path in checkpoints.glob("step-*.json"))
    files = list(checkpoints.glob(f"ps-*step-{step}.*"))
    copies = run.folder / "copies"
    copies.mkdir()
    least = copied_and_hashed(files, copies)
    shutil.rmtree(copies)
    row(f"its {len(files)} files: {run.size(step) / 1e6:,.0f} MB; dd and sha256sum of them at once",
        f"{least:.1f} s (the checkpoint has {least / committed:.2f} of their rate)")
    at, begin = run.steps()[-1][0], time.monotonic()
    run.launch("--set", "ps.replicas=3", *flags)
    run.reaches(at + 2)
    row("from the command to the second step, from it, with 3 servers", f"{time.monotonic() - begin:.1f} s")


def take_deltas(run, count):
    """Checkpoints of what has changed, at most so many; each is read before a later one prunes it."""
    sizes = {}

    def enough():
        for step in run.told(r"checkpoint step-(\d+)\.\S+ committed, a delta"):
            sizes.setdefault(step, run.size(step))
        return len(sizes) >= count

    begin = time.time()
    run.wait("deltas", enough)
    row(f"{count} delta checkpoints, MB", ", ".join(f"{size / 1e6:,.0f}" for size in sizes.values()))
    row("the longest step meanwhile, with the whole one that they are of", f"{longest_gap(run.steps(), begin):.2f} s")


def compare_ends(run, undisturbed):
    """Whether both have ended with the same bits; they run one after the other."""
    digest = run.end()
    other = undisturbed()
    try:
        same = other.end() == digest
    finally:
        other.process.kill()
        other.process.wait(LIMIT)
    row("ends with the digest of a job that nobody has disturbed", "yes" if same else "NO")
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--rows", default=30, type=float, help="millions")
    parser.add_argument("--new", default=100_000, type=int, help="ids of a worker in a step")
    parser.add_argument("--steps", type=int, help="more than those that the disturbances take")
    parser.add_argument("--out", default=pathlib.Path("build/large-tables"), type=pathlib.Path)
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    surroundings = programs.Surroundings()

    def start(name):
        return Run(args.bin.resolve(), args.out.resolve() / name, SOURCE / "bench/large_tables_program.py",
                   int(args.rows * 1e6), args.new, args.steps)

    run, same = start("disturbed"), True
    print(f"{programs.machine()}\n\n| | |\n|--|--|", flush=True)
    try:
        grow(run, int(args.rows * 1e6), args.new)
        for task in ("worker-1", "ps-1", "ps-0"):
            disturb(run, f"{task} is killed", lambda task=task: run.kill(task))
        disturb(run, "ps 2 -> 3", lambda: scale(run, 3))
        disturb(run, "ps 3 -> 2", lambda: scale(run, 2))
        deltas = ("--set", "training.checkpoint.everySeconds=10", "--set", "training.checkpoint.full.everySeconds=36000")
        stop_and_go_on(run, *(deltas if args.steps else ()))
        row("lost steps", run.status().get("lostSteps", 0))
        if args.steps:
            take_deltas(run, 5)
            same = compare_ends(run, lambda: start("undisturbed"))
    finally:
        run.process.kill()
        run.process.wait(LIMIT)
    print(f"\n{surroundings.text()}")
    sys.exit(not same)


if __name__ == "__main__":
    main()
