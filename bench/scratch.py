"""A job whose samples are more than it may have of memory, held in memory and in scratch (training.data.scratch), inside
a control group (root).

    python3 bench/scratch.py --bin build/dev/bin --out build/scratch [--samples 1500000] [--limit-mb 600]

A line of the file has 26 ids, 13 numbers and a label: 261 bytes in a worker. Prints the table of docs/results.md.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import memory  # noqa: E402
import programs  # noqa: E402

IDS, NUMBERS, OF_A_COLUMN = 26, 13, 10_000
SAMPLE_BYTES = 8 * IDS + 4 * NUMBERS + 1
LIMIT = 900  # seconds; against hangs only
GROUPS = pathlib.Path("/sys/fs/cgroup")


def make_data(path, samples):
    draw = random.Random(7)
    features, numbers = [f"f{i}" for i in range(IDS)], [f"n{i}" for i in range(NUMBERS)]
    with open(path.with_suffix(".new"), "w", encoding="utf-8") as out:
        print(*features, *numbers, "click", sep=",", file=out)
        for _ in range(samples):
            ids = draw.choices(range(OF_A_COLUMN), k=IDS)
            print(*ids, *draw.choices(range(100), k=NUMBERS), int(sum(ids) % 5 == 0), sep=",", file=out)
    path.with_suffix(".new").rename(path)


def job(args, scratch):
    features = [f"f{i}" for i in range(IDS)]
    columns = [{"name": name, "kind": "Id"} for name in features]
    columns += [{"name": f"n{i}", "kind": "Number"} for i in range(NUMBERS)] + [{"name": "click", "kind": "Label"}]
    data = {"format": "csv", "files": [str(args.file)], "columns": columns, "order": "Blocks", "blockSamples": 10_000}
    tables = [{"name": "deep", "features": features, "dim": 8, "rows": {"max": 2 * IDS * OF_A_COLUMN}}]
    training = {"model": {"name": "wide_and_deep", "hidden": [32]}, "tables": tables, "batchSize": 1024, "threads": 1,
                "steps": args.samples // 2048, "data": data | ({"scratch": str(args.out)} if scratch else {}),
                "optimizer": {"name": "Adagrad", "learningRate": 0.02}}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "scratch"},
            "spec": {"ps": {"replicas": 1}, "worker": {"replicas": 2}, "training": training,
                     "runPolicy": {"backoffLimit": 0}}}


@contextlib.contextmanager
def group(limit):
    """A control group that may have so many bytes: a command that puts who runs it there."""
    first = (GROUPS / "memory").is_dir()  # version 1
    place = (GROUPS / "memory" if first else GROUPS) / f"trainyard-scratch-{os.getpid()}"
    place.mkdir()
    try:
        (place / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))
        yield ["sh", "-c", f'echo $$ > {place}/cgroup.procs && exec "$@"', "sh"]
    finally:
        place.rmdir()


def run(args, scratch, limit):
    """(last line, most of a worker's own memory, seconds)."""
    folder, most = args.out / "run", 0
    shutil.rmtree(folder, ignore_errors=True)
    (args.out / "job.json").write_text(json.dumps(job(args, scratch)))
    command = [args.bin / "trainyard", "run", "-f", args.out / "job.json", "--dir", folder]
    began = time.monotonic()
    with group(limit) as inside, open(args.out / "out.txt", "w", encoding="utf-8") as out:
        process = subprocess.Popen([*inside, *command], stdout=out, stderr=subprocess.STDOUT)
        while process.poll() is None:
            workers = [pid for task, pid in memory.pids_of(folder).items() if "worker" in task]
            most = max([most, *(memory.in_status(pid, "RssAnon") or 0 for pid in workers)])
            if time.monotonic() > began + LIMIT:
                process.kill()
            time.sleep(0.05)
    lines = (args.out / "out.txt").read_text(encoding="utf-8").splitlines()
    return lines[-1] if lines else "", most, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where our programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="a folder on a disk")
    parser.add_argument("--samples", default=1_500_000, type=int)
    parser.add_argument("--limit-mb", default=600, type=int, help="of all processes of the job together")
    args = parser.parse_args()
    args.bin, args.out = args.bin.absolute(), args.out.absolute()
    args.out.mkdir(parents=True, exist_ok=True)
    args.file = args.out / f"clicks-{args.samples}.csv"
    if not args.file.exists():
        make_data(args.file, args.samples)
    around = programs.Surroundings()
    lines = []
    for scratch, limit in ((False, None), (True, None), (False, args.limit_mb), (True, args.limit_mb)):
        said, most, seconds = run(args, scratch, limit * 1_000_000 if limit else -1)
        end = re.match(r"result: (\w+)", said)
        rate = re.search(r"examples_per_second=(\d+)", said)
        lines.append(f"| {'scratch' if scratch else 'memory'} | {f'{limit} MB' if limit else 'none'} | "
                     f"{end[1] if end else said} | {most / 1e6:,.0f} MB | {seconds:.0f} s | {rate[1] if rate else ''} |")
        print(lines[-1], flush=True)
    print(f"\n{programs.machine()}, {datetime.date.today().isoformat()}, {args.samples:,} samples, "
          f"{args.samples * SAMPLE_BYTES / 1e6:,.0f} MB in each of 2 workers; {around.text()}\n")
    print("| samples in | limit | the job | most of a worker's own memory | took | examples/s |\n|--|--|--|--|--|--|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
