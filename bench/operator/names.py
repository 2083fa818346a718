#!/usr/bin/env python3
"""Whether the names of a job's tasks are known when its programs begin.

In a whole cluster with CoreDNS, by the chart and the images of a build: jobs of a user's own program are created at once,
and each task looks up the names of all tasks of its job as its first act (lookup.c). Printed: how many of these look-ups
found no such name, and when the last name was known to the task that waited longest.

    python3 bench/operator/names.py --bin build/dev/bin --jobs 10 --tasks 6 --rounds 2

It takes root, and the programs of `tests/cluster/cluster.py build`.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "cluster" / "e2e")]

import programs  # noqa: E402
from world import static_image, world  # noqa: E402

SPACE = "names"
LOOKED_UP = re.compile(r"looked up (\d+), of which (\d+) failed at first; all known after (\d+) ms")


def program(folder):
    """lookup.c, linked so that it stands alone in its image."""
    made = pathlib.Path(folder) / "lookup"
    subprocess.run(["musl-gcc", "-static", "-O1", "-o", made, pathlib.Path(__file__).with_name("lookup.c")], check=True)
    return made


def job(name, image, tasks):
    security = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "task", "command": ["/bin/lookup"], "securityContext": security}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"image": image, "strategy": "AllReduce",
                     "worker": {"replicas": tasks, "template": {"spec": {"containers": [container]}}},
                     "runPolicy": {"successPolicy": "AllWorkers", "cleanPodPolicy": "None"}}}


def burst(world, image, prefix, jobs, tasks):
    """[(names, failed, milliseconds)] of each task of `jobs` jobs that were created at once."""
    names = [f"{prefix}-{at}" for at in range(jobs)]
    world.apply(*(job(name, image, tasks) for name in names), namespace=SPACE)
    for name in names:
        world.wait_state(name, SPACE, "Succeeded")
    logs = [world.cluster.kubectl("logs", f"{name}-worker-{index}", "-n", SPACE, "-c", "task")
            for name in names for index in range(tasks)]
    world.cluster.kubectl("delete", "trainingjobs", "--all", "-n", SPACE)
    found = [LOOKED_UP.search(text) for text in logs]
    if not all(found):
        sys.exit(f"a task's log says {logs[found.index(None)]!r}")
    return [tuple(map(int, one.groups())) for one in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="programs of a build")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=6, help="of each job")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    os.environ["TRAINYARD_BIN"] = str(arguments.bin.resolve())

    image = "registry.test/lookup:1"
    print(programs.machine())
    with world(SPACE, more_images=lambda folder: [static_image(folder, image, program(folder))]) as made:
        for at in range(arguments.rounds):
            tasks = burst(made, image, f"round-{at}", arguments.jobs, arguments.tasks)
            print(f"{arguments.jobs} jobs of {arguments.tasks} tasks: {sum(t[1] for t in tasks)} of "
                  f"{sum(t[0] for t in tasks)} first look-ups failed; the last name was known after "
                  f"{max(t[2] for t in tasks) / 1e3:.1f} s", flush=True)


if __name__ == "__main__":
    main()
