#!/usr/bin/env python3
"""A job of 2 parameter servers and 3 workers, in which one process is killed every 20 s.

    make soak [SOAK_SECONDS=1200] [SOAK_EVERY=20] [SOAK_SEED=N]

Kills (SIGKILL) a random program or agent of a random task, and now and then the launcher, after which
the same command is given again. When the time is over the job is interrupted, and the same command ends
it. Then must hold: exit code 0, the digest of a run that nobody disturbed, no growth of memory, and no
process, port, socket or file left behind. Prints a line for every kill and a summary; exits 1 when
something does not hold. The same seed makes the same choices.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PS, WORKERS = 2, 3
TASKS = [f"ps-{i}" for i in range(PS)] + [f"worker-{i}" for i in range(WORKERS)]
LAUNCHER_SHARE = 0.1  # of the kills
SAMPLE_EVERY = 2
MEMORY_EVERY = 60
MAX_GROWTH = 0.10
# A worker sleeps this long in each step while it is being disturbed, so a job of (seconds * 1000 / STEP_MS)
# steps cannot end before its time.
STEP_MS = 20

JOB = """apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: soak}}
spec:
  ps: {{replicas: {ps}}}
  worker: {{replicas: {workers}}}
  training:
    model: {{name: mlp, hidden: [128], dropout: 0.5}}
    data: {{format: synthetic, shape: [16, 16, 1], classes: 10, samples: 5000, evalSamples: 500}}
    batchSize: 16
    steps: {steps}
    seed: 5
    deterministic: true
    evaluateEverySteps: 500
    optimizer: {{name: RMSProp, learningRate: 0.001, momentum: 0.9}}
    checkpoint: {{everySeconds: 5}}
  runPolicy: {{backoffLimit: {kills}}}
"""

# What docs/run_directory.md lists.
KNOWN_FILES = [re.compile(pattern) for pattern in (
    r"job\.yaml|job\.json|status\.json|membership\.json|events\.jsonl|token|lock|edit\.lock|launcher\.log|prometheus\.json",
    r"metrics\.jsonl|traffic\.jsonl|result\.json|report\.html|environment\.json",
    r"events/[^/]*tfevents[^/]*",
    r"checkpoints/(finished\.json|step-\d+\.e\d+\.json|ps-\d+\.step-\d+\.e\d+\.i\d+-\d+\.safetensors)",
    r"tasks/(ps|worker)-\d+/(task\.log|agent\.json|membership\.json|report\.json|positions\.jsonl|report\.sock|compute\.json)",
)]


def read_json(path):
    """The file's content; {} while it is not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def processes_with(text):
    """Process ids that have the text among their arguments; zombies have none."""
    own = os.getpid()
    found = [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in found if pid != own and text in command_of(pid)]


def resident_mib(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return None
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(match.group(1)) / 1024 if match else None


def listening_ports():
    ports = set()
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                ports.add((int(fields[1].rsplit(":", 1)[1], 16), fields[9]))
    return ports


def owner_of(inode):
    wanted = f"socket:[{inode}]"
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if any(os.readlink(fd) == wanted for fd in (entry / "fd").iterdir()):
                return int(entry.name)
        except OSError:
            continue  # it has ended, or is somebody else's
    return None


class Run:
    """`trainyard run` on one directory, launched as often as needed."""

    def __init__(self, bin_dir, base, steps, kills):
        self.dir = base / "run"
        self.output_path = base / "output"
        self.launcher = None
        self.command = [str(bin_dir / "trainyard"), "run", "-f", str(base / "job.yaml"), "--dir", str(self.dir)]
        (base / "job.yaml").write_text(JOB.format(ps=PS, workers=WORKERS, steps=steps, kills=kills), encoding="utf-8")

    def launch(self, failpoints=""):
        environment = dict(os.environ)
        environment.pop("TRAINYARD_FAILPOINTS", None)
        if failpoints:
            environment["TRAINYARD_FAILPOINTS"] = failpoints
        with open(self.output_path, "wb") as output:
            self.launcher = subprocess.Popen(self.command, stdout=output, stderr=subprocess.STDOUT,
                                             env=environment, start_new_session=True)

    def wait(self, limit):
        return self.launcher.wait(timeout=limit)

    def last_line(self):
        lines = self.output_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def agent(self, task):
        return read_json(self.dir / "tasks" / task / "agent.json")

    def status(self):
        return read_json(self.dir / "status.json").get("status", {})

    def step(self):
        """The last step that the chief has recorded, -1 before the first."""
        path = self.dir / "tasks" / "worker-0" / "positions.jsonl"
        try:
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - 400))
                lines = file.read().splitlines()
        except OSError:
            return -1
        for line in reversed(lines):
            try:
                return json.loads(line)["step"]
            except ValueError:
                continue
        return -1

    def resumed_from(self):
        text = self.output_path.read_text(encoding="utf-8", errors="replace")
        match = re.search(r"resuming '\w+' from step (\d+)", text)
        return int(match.group(1)) if match else 0

    def digest(self):
        command = [self.command[0], "checkpoint", "digest", str(self.dir)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def end(self):
        if self.launcher is not None and self.launcher.poll() is None:
            self.launcher.kill()
            self.launcher.wait()


class Memory:
    """Resident memory of the processes over time, by kind of process."""

    def __init__(self):
        self.samples = collections.defaultdict(list)  # kind -> [(time, MiB)]

    def sample(self, run, now):
        pids = [("launcher", run.launcher.pid)]
        for task in TASKS:
            agent = run.agent(task)
            pids += [("agent", agent.get("pid", 0)), (task.split("-")[0], agent.get("childPid", 0))]
        for kind, pid in pids:
            # Not one that has just been started: it is still loading.
            if pid > 0 and str(run.dir) in command_of(pid) and age_of(pid) > 5:
                mib = resident_mib(pid)
                if mib:
                    self.samples[kind].append((now, mib))

    def now(self, since):
        parts = []
        for kind, samples in sorted(self.samples.items()):
            values = [mib for at, mib in samples if at >= since]
            if values:
                parts.append(f"{kind} {min(values):.0f}-{max(values):.0f}")
        return ", ".join(parts)

    def growth(self, seconds):
        """{kind: (median of the first half, of the second)}; the first tenth is left out."""
        result = {}
        for kind, samples in sorted(self.samples.items()):
            first = [mib for at, mib in samples if seconds * 0.1 <= at < seconds * 0.5]
            second = [mib for at, mib in samples if at >= seconds * 0.5]
            if first and second:
                result[kind] = (statistics.median(first), statistics.median(second))
        return result


def age_of(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        uptime = float(pathlib.Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    except OSError:
        return 0
    started = int(stat.rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return uptime - started


class Soak:
    def __init__(self, arguments, base):
        self.seconds = arguments.seconds
        self.steps = arguments.seconds * 1000 // STEP_MS
        self.random = random.Random(arguments.seed)
        self.bin = arguments.bin
        self.base = base
        folder = base / "soak"
        folder.mkdir()
        self.every = arguments.every
        # For the steps that are left, and for the undisturbed run; against hangs only.
        self.end_limit = max(600, arguments.seconds)
        self.most_kills = math.ceil(arguments.seconds / arguments.every)
        # Each launch counts its failures anew, so that the most a job may allow are enough for more kills.
        self.backoff = min(self.most_kills, 1000)
        self.run = Run(arguments.bin, folder, self.steps, self.backoff)
        self.memory = Memory()
        self.kills = collections.Counter()
        self.restarts = self.lost = self.lost_with_launcher = 0
        self.ports = set()
        self.problems = []

    def keep_counts(self):
        """A new launch counts from zero."""
        status = self.run.status()
        self.restarts += status.get("restarts", 0)
        self.lost += status.get("lostSteps", 0)

    def launch(self):
        self.run.launch(f"worker.compute=delay({STEP_MS})")

    def choose(self):
        if self.random.random() < LAUNCHER_SHARE:
            return "launcher"
        return self.random.choice([kind + task for kind in ("", "agent of ") for task in TASKS])

    def kill(self, now):
        victim = self.choose()
        step = self.run.step()
        if victim == "launcher":
            pid = self.run.launcher.pid
        else:
            agent = self.run.agent(victim.split()[-1])
            pid = agent.get("pid" if victim.startswith("agent") else "childPid", 0)
            if pid <= 0 or str(self.run.dir) not in command_of(pid):
                print(f"{now:6.0f} s  {victim} does not run at this moment", flush=True)
                return
        os.kill(pid, signal.SIGKILL)
        self.kills[victim] += 1
        print(f"{now:6.0f} s  step {step:6}  kill -9 {victim} (process {pid})", flush=True)
        if victim == "launcher":
            self.run.wait(60)
            self.launch_again(step)

    def launch_again(self, step):
        self.expect_gone()
        self.keep_counts()
        # What the chief has recorded may be a little more than when it was looked at.
        reached = max(step, self.run.step()) + 1
        self.launch()
        self.wait_for(lambda: self.run.output_path.stat().st_size > 0, 60)
        resumed = self.run.resumed_from()
        self.lost_with_launcher += max(0, reached - resumed)
        print(f"          launched again: from step {resumed}", flush=True)

    def expect_gone(self):
        if not self.wait_for(lambda: not processes_with(str(self.run.dir)), 60):
            self.problems.append("processes are left behind by the launcher")

    def wait_for(self, condition, limit):
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.05)
        return condition()

    def disturb(self):
        """Until the time is over."""
        start = time.monotonic()
        self.launch()
        next_kill, next_sample, next_memory = self.every, SAMPLE_EVERY, MEMORY_EVERY
        while (now := time.monotonic() - start) < self.seconds:
            if self.run.launcher.poll() is not None:
                self.problems.append(f"the launcher ended by itself at {now:.0f} s: {self.run.last_line()}")
                return
            if now >= next_kill:
                self.kill(now)
                next_kill += self.every
            if now >= next_sample:
                self.memory.sample(self.run, now)
                for task in TASKS:
                    agent = self.run.agent(task)
                    self.ports |= {agent[name] for name in ("agentPort", "metricsPort", "taskPort") if name in agent}
                next_sample += SAMPLE_EVERY
            if now >= next_memory:
                print(f"{now:6.0f} s  memory in MiB: {self.memory.now(now - MEMORY_EVERY)}", flush=True)
                next_memory += MEMORY_EVERY
            time.sleep(0.1)

    def finish(self):
        """Interrupts the job; the same command, now without a sleep in each step, ends it."""
        reached = self.run.step() + 1
        self.run.launcher.send_signal(signal.SIGINT)
        code = self.run.wait(60)
        if code != 130:
            self.problems.append(f"interrupted, the launcher ends with {code}: {self.run.last_line()}")
        self.expect_gone()
        self.keep_counts()
        print(f"interrupted at step {reached}: {self.run.last_line()}", flush=True)
        self.run.launch()
        code = self.run.wait(self.end_limit)
        self.keep_counts()
        print(self.run.last_line(), flush=True)
        if code != 0:
            self.problems.append(f"the job ends with exit code {code}")
        return reached

    def undisturbed(self):
        folder = self.base / "undisturbed"
        folder.mkdir()
        run = Run(self.bin, folder, self.steps, self.backoff)
        try:
            run.launch()
            run.wait(self.end_limit)
            return run.digest()
        finally:
            run.end()

    def check_memory(self):
        for kind, (first, second) in self.memory.growth(self.seconds).items():
            growth = second / first - 1
            print(f"memory of {kind:9} median {first:6.1f} MiB in the first half, {second:6.1f} in the second: "
                  f"{growth:+.1%}")
            if growth > MAX_GROWTH:
                self.problems.append(f"the memory of {kind} grows by {growth:.1%}")

    def check_left_behind(self, shared_before):
        directory = str(self.run.dir)
        uid = read_json(self.run.dir / "job.json").get("metadata", {}).get("uid", "-")
        left = [f"process {pid}: {command_of(pid)}" for pid in processes_with(directory)]
        for port, inode in sorted(listening_ports()):
            owner = owner_of(inode) if port in self.ports else 0
            # Another program may have been given the port since.
            if owner is None or (owner and directory in command_of(owner)):
                left.append(f"port {port}")
        sockets = pathlib.Path("/proc/net/unix").read_text(encoding="ascii", errors="replace").splitlines()
        left += [f"socket {line.split()[-1]}" for line in sockets if directory in line or uid in line]
        shared = set(os.listdir("/dev/shm")) - shared_before
        left += [f"/dev/shm/{name}" for name in shared if "trainyard" in name]
        for path in sorted(self.run.dir.rglob("*")):
            name = str(path.relative_to(self.run.dir))
            if not path.is_dir() and not any(known.fullmatch(name) for known in KNOWN_FILES):
                left.append(f"file {name}")
        self.problems += [f"left behind: {what}" for what in left]
        print(f"left behind: {len(left)}; {len(self.ports)} ports had been used", flush=True)


def print_summary(soak, reached, digest, expected):
    print("kills: " + ", ".join(f"{victim} {count}" for victim, count in sorted(soak.kills.items())))
    print(f"{sum(soak.kills.values())} kills, {soak.restarts} restarts, {soak.lost} steps lost, "
          f"{soak.lost_with_launcher} with the launcher; {reached / soak.seconds:.1f} steps/s of at most "
          f"{1000 / STEP_MS:.0f}")
    print(f"digest {digest[:16]} of {soak.steps} steps: {'equal' if digest == expected else 'NOT equal'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=lambda text: pathlib.Path(text).resolve(), help="folder of the programs")
    parser.add_argument("--seconds", type=int, default=1200)
    parser.add_argument("--every", type=float, default=20, help="seconds from kill to kill")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1_000_000)
    print(f"soak: {arguments.seconds} s, a kill every {arguments.every:g} s, seed {arguments.seed}", flush=True)
    shared_before = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory(prefix="trainyard-soak-") as folder:
        soak = Soak(arguments, pathlib.Path(folder))
        try:
            soak.disturb()
            if soak.problems:
                return fail(soak)
            reached = soak.finish()
            digest = soak.run.digest()
            soak.check_left_behind(shared_before)
            expected = soak.undisturbed()
            soak.check_memory()
            if not digest or digest != expected:
                soak.problems.append("the digest is not that of the undisturbed run")
            print_summary(soak, reached, digest, expected)
        except subprocess.TimeoutExpired as hang:
            soak.problems.append(f"hangs: {hang}")
        finally:
            soak.run.end()
            soak.wait_for(lambda: not processes_with(str(soak.run.dir)), 30)
        return fail(soak) if soak.problems else 0


def fail(soak):
    for problem in soak.problems:
        print(f"soak: {problem}")
    for log in sorted(soak.run.dir.glob("tasks/*/task.log")):
        print(f"--- {log.parent.name}")
        print("\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-60:]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
