#!/usr/bin/env python3
"""Programs that are not ours on libtrainyard: torch.distributed beside gloo, the C interface beside Open MPI, in turns.

    python3 bench/client.py --build build/dev [--rounds 3] [--python /usr/bin/python3]

`--python` has torch (Debian: python3-torch). Prints a table of medians, with the machine's load before and after.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 300  # seconds; against hangs only


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def with_torch(python, build, backend, ranks, more=None):
    """{what: milliseconds}; `more`: of the environment."""
    port = free_port()
    processes = []
    for rank in range(ranks):
        environment = {**os.environ, "BACKEND": backend, "RANK": str(rank), "WORLD_SIZE": str(ranks),
                       "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "python"),
                       "TRAINYARD_LIBRARY": str(build / "lib/libtrainyard.so"), **(more or {})}
        processes.append(subprocess.Popen([python, HERE / "client_torch.py"], env=environment, text=True,
                                          stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
    try:
        output = processes[0].communicate(timeout=LIMIT)[0]
        if any(process.wait(timeout=LIMIT) != 0 for process in processes):
            raise RuntimeError(f"a rank of {backend} failed")
        return json.loads(output)
    finally:
        for process in processes:
            process.kill()


def median_of(command):
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
                            timeout=LIMIT).stdout
    return statistics.median(json.loads(output)["milliseconds"])


def in_c(build, ranks, size):
    """(ours, Open MPI's or None) in milliseconds."""
    times = ["300", "20"] if size <= 65536 else ["30", "5"]
    ours = median_of([build / "bin/trainyard-bench-client", str(ranks), str(size), *times])
    theirs = build / "bin/trainyard-bench-open-mpi"
    if shutil.which("mpirun") is None or not theirs.exists():
        return ours, None
    command = ["mpirun", "--allow-run-as-root", "-n", str(ranks), "--mca", "btl", "vader,self", "--mca", "pml", "ob1"]
    if ranks > os.cpu_count():
        command.append("--oversubscribe")
    return ours, median_of([*command, theirs, str(size), *times])


def load():
    return open("/proc/loadavg", encoding="ascii").read().split()[0]


def row(what, ours, theirs, peer):
    if not all(theirs):
        return f"| {what} | {statistics.median(ours):.4g} | not installed | |"
    mine, other = statistics.median(ours), statistics.median(theirs)
    return f"| {what} | {mine:.4g} | {other:.4g} ({peer}) | {mine / other:.2f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default="/usr/bin/python3")
    arguments = parser.parse_args()
    before = load()
    print("| what | ours ms | ms | ratio |\n|--|--|--|--|")
    for ranks in (2, 4):
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            theirs.append(with_torch(arguments.python, arguments.build, "gloo", ranks))
            ours.append(with_torch(arguments.python, arguments.build, "trainyard", ranks))
        for what in ours[0]:
            print(row(f"{what}, {ranks} ranks", [run[what] for run in ours], [run[what] for run in theirs], "gloo"),
                  flush=True)
    for ranks, size in ((2, 1024), (2, 24_000_000), (4, 1024), (4, 24_000_000)):
        pairs = [in_c(arguments.build, ranks, size) for _ in range(arguments.rounds)]
        print(row(f"C interface, {size} bytes, {ranks} ranks", *zip(*pairs), "Open MPI"), flush=True)
    print(f"load {before} before, {load()} after; {os.cpu_count()} cores")


if __name__ == "__main__":
    sys.exit(main())
