"""What `trainyard plan` says that processes need of memory, beside the most that each had resident (VmHWM).

Jobs of a network with at least a gigabyte of weights, some steps and a checkpoint long, whose gradients and weights
are sent as between machines. A process of its own for each parameter server and worker, all on this machine.

What a checkpoint holds is there in whole only if steps go on before anything of it is written. --slow-disk makes that so:
a server waits for as many seconds before it writes.

    python3 bench/memory.py --bin build/dev/bin [--case adam-1ps ...] [--slow-disk 30]
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import programs  # noqa: E402

LIMIT = 900  # seconds; against hangs only
CASES = {  # servers, optimizer, clipping
    "momentum-1ps": (1, "name: Momentum, momentum: 0.9", False),
    "momentum-1ps-clipped": (1, "name: Momentum, momentum: 0.9", True),
    "adam-1ps": (1, "name: Adam", False),
    "momentum-3ps": (3, "name: Momentum, momentum: 0.9", False),
    "adam-3ps": (3, "name: Adam", False),
    "adam-3ps-clipped": (3, "name: Adam", True),
    "adam-all-reduce": (0, "name: Adam", False),
}
JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: memory}
spec:
  STRATEGY
  worker: {replicas: 2}
  training:
    model: {name: mlp, hidden: [WIDE, WIDE]}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 512, evalSamples: 10}
    batchSize: 2
    sharedMemory: Never
    steps: 10
    optimizer: {OPTIMIZER, learningRate: 0.001CLIP}
    checkpoint: {everySeconds: 5}
"""


def in_status(pid, name):
    """What the kernel says of the process's memory: "VmHWM", the most that was resident. Bytes; None: it is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def pids_of(folder):
    """Of the programs that serve and compute, by task."""
    pids = {}
    for record in (folder / "tasks").glob("*/agent.json"):
        try:
            found = json.loads(record.read_text()).get("childPids", [])
        except (OSError, ValueError):
            continue  # is being written, or not yet there
        if found:
            pids[record.parent.name] = found[0]
    return pids


def run(bin_dir, job, folder, slow_disk):
    """The most that each task had resident, by task."""
    most = {}
    environment = dict(os.environ)
    if slow_disk:
        environment["TRAINYARD_FAILPOINTS"] = f"ps.snapshot=delay({slow_disk * 1000})"
    with open(folder / "out.txt", "w", encoding="utf-8") as out:
        process = subprocess.Popen([bin_dir / "trainyard", "run", "-f", job, "--dir", folder / "run"],
                                   stdout=out, stderr=subprocess.STDOUT, env=environment)
        end = time.monotonic() + LIMIT
        while process.poll() is None:
            for task, pid in pids_of(folder / "run").items():
                most[task] = max(most.get(task, 0), in_status(pid, "VmHWM") or 0)
            if time.monotonic() > end:
                process.kill()
            time.sleep(0.02)
    if process.returncode != 0:
        raise RuntimeError(f"the job failed:\n{(folder / 'out.txt').read_text()[-2000:]}")
    return most


def planned(bin_dir, job):
    """Bytes by task, as plan says; nothing of all-reduce, which it does not take."""
    plan = json.loads(subprocess.run([bin_dir / "trainyard", "plan", "-f", job, "-o", "json"], check=True,
                                     stdout=subprocess.PIPE, text=True).stdout)
    needs = {f"ps-{ps['index']}": ps["memory"]["total"] for ps in plan["ps"]}
    worker = plan["worker"]["memory"]
    for index in range(plan["workers"]):
        needs[f"worker-{index}"] = worker["total"] + (worker["replicas"] if index == 0 else 0)
    return needs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--wide", default=16384, type=int, help="units of the two hidden layers")
    parser.add_argument("--slow-disk", default=0, type=int, metavar="SECONDS", help="before each file of a checkpoint")
    args = parser.parse_args()
    print(f"{programs.machine()}, load {os.getloadavg()[0]:.1f}")
    print("| case | task | planned | resident at most | |\n|--|--|--|--|--|")
    for case in args.case or CASES:
        servers, optimizer, clip = CASES[case]
        text = JOB
        for name, value in {"STRATEGY": f"ps: {{replicas: {servers}}}" if servers else "strategy: AllReduce",
                            "WIDE": args.wide, "CLIP": ", clipNorm: 1" if clip else "", "OPTIMIZER": optimizer}.items():
            text = text.replace(name, str(value))
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "job.yaml").write_text(text)
            most = run(args.bin, folder / "job.yaml", folder, args.slow_disk)
            needs = planned(args.bin, folder / "job.yaml") if servers else {}
            for task in sorted(most):
                said, beside = "", ""
                if task in needs:
                    said, beside = f"{needs[task] / 1e6:,.0f} MB", f"{needs[task] / most[task] - 1:+.1%}"
                print(f"| {case} | {task} | {said} | {most[task] / 1e6:,.0f} MB | {beside} |", flush=True)


if __name__ == "__main__":
    main()
