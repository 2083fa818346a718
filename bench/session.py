#!/usr/bin/env python3
"""A torch program whose steps are a job's, beside DistributedDataParallel over our backend and over gloo, in turns: the
same network (25 MB), two workers, torch's SGD or the job's.

    python3 bench/session.py --build build/dev [--rounds 5] [--python /usr/bin/python3]

Prints medians of milliseconds from step to step, their ratios, and the machine's load before and after.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile

from client import HERE, LIMIT, free_port

STEPS = 150
JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: session}}
spec:
  strategy: {strategy}
  {ps}
  worker:
    replicas: 2
    template: {{spec: {{containers: [{{name: task, command: [{python}, {program}], env: {env}}}]}}}}
  training:
    model: {{name: program}}
    batchSize: 16
    steps: {steps}
    optimizer: {{name: SGD, learningRate: 0.01}}
    chunkReplicas: {replicas}
"""
# (way of session_torch.py, parameter servers, replicas)
WAYS = {
    "DDP over gloo": ("gloo", 0, ""),
    "DDP over trainyard": ("trainyard", 0, ""),
    "State, ring": ("state", 0, "Auto"),
    "ServerOptimizer, ring": ("server", 0, "Auto"),
    "ServerOptimizer, 2 servers": ("server", 2, "Auto"),
    "ServerOptimizer, 2 servers, no replicas": ("server", 2, "Never"),
}


def variables(site, way):
    return {"WAY": way, "STEPS": str(STEPS), "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{site}:{HERE}"}


def by_hand(python, site, way):
    port = free_port()
    ranks = []
    for rank in range(2):
        told = {**os.environ, **variables(site, way), "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks.append(subprocess.Popen([python, HERE / "session_torch.py"], env=told, text=True,
                                      stdout=subprocess.PIPE))
    try:
        outputs = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return json.loads(outputs[0])["milliseconds"]


def as_job(python, build, site, way, servers, replicas):
    with tempfile.TemporaryDirectory(prefix="trainyard-session-") as folder:
        env = json.dumps([{"name": key, "value": value} for key, value in variables(site, way).items()])
        text = JOB.format(strategy="ParameterServer" if servers else "AllReduce",
                          ps=f"ps: {{replicas: {servers}}}" if servers else "", python=python,
                          program=HERE / "session_torch.py", env=env, steps=STEPS, replicas=replicas)
        if not servers:
            text = re.sub(r"    chunkReplicas: .*\n", "", text)
        job = pathlib.Path(folder) / "job.yaml"
        job.write_text(text, encoding="utf-8")
        run = job.parent / "run"
        done = subprocess.run([build / "bin/trainyard", "run", "-f", job, "--dir", run], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        if done.returncode != 0:
            raise RuntimeError(f"{way}: {done.stdout}")
        log = (run / "tasks/worker-0/task.log").read_text()
        return json.loads(re.search(r"\{\"milliseconds\": .*\}", log)[0])["milliseconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default="/usr/bin/python3")
    args = parser.parse_args()
    build = args.build.resolve()
    before = os.getloadavg()[0]
    taken = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory(prefix="trainyard-session-") as site:
        # As the wheel has it: with the library.
        package = shutil.copytree(HERE.parent / "python/trainyard", pathlib.Path(site) / "trainyard")
        (package / "libtrainyard.so").symlink_to((build / "lib/libtrainyard.so").resolve())
        for _ in range(args.rounds):
            for name, (way, servers, replicas) in WAYS.items():
                taken[name].append(by_hand(args.python, site, way) if not replicas
                                   else as_job(args.python, build, site, way, servers, replicas))
    gloo, ours = (statistics.median(taken[name]) for name in ("DDP over gloo", "DDP over trainyard"))
    print("| a step | milliseconds | of gloo's | of our backend's | rounds |\n|--|--|--|--|--|")
    for name, values in taken.items():
        median = statistics.median(values)
        print(f"| {name} | {median:.1f} | {median / gloo:.2f} | {median / ours:.2f} "
              f"| {', '.join(f'{value:.1f}' for value in values)} |")
    print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
