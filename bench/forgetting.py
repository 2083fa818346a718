"""What tables lose and save by admission and eviction: wide_and_deep over made-up clicks, 2 workers, 2 parameter servers.

    python3 bench/forgetting.py --bin build/dev/bin

First the same job with and without `admit: {occurrences: 3}`, where most ids come seldom: rows, memory, AUC. Then ids
that come to an end and others that take their places (`drift`), with and without `evict`: the rows of the servers after
each lifetime of an id, by the nearest line of traffic.jsonl, which has one a second. Prints the tables of docs/results.md.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import programs  # noqa: E402

DIM, BATCH, WORKERS = 16, 512, 2
LOST, FLAT = 0.002, 0.05  # bars: of AUC; of rows after two lifetimes


def job(ids, samples, data, policy):
    features = ["user", "item"]
    columns = [{"name": name, "kind": "Id", "ids": ids} for name in features]
    columns += [{"name": "age", "kind": "Number"}, {"name": "click", "kind": "Label"}]
    rows = {"max": 100_000_000}
    tables = [{"name": name, "features": [name], "dim": DIM, "rows": rows, **policy,
               "initial": {"distribution": "Uniform", "scale": 0.05}} for name in features]
    tables.append({"name": "wide", "features": features, "dim": 1, "rows": rows, **policy})
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "forgetting"},
            "spec": {"ps": {"replicas": 2}, "worker": {"replicas": WORKERS},
                     "training": {"model": {"name": "wide_and_deep", "hidden": [64, 32]}, "tables": tables,
                                  "batchSize": BATCH, "passes": 1,
                                  "data": {"format": "synthetic_ctr", "columns": columns, "samples": samples,
                                           "prefetch": 2, **data},
                                  "optimizer": {"name": "Adagrad", "learningRate": 0.1}}}}


def run(args, *description):
    """(result.json, lines of traffic.jsonl)."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "job.json").write_text(json.dumps(job(*description)))
        programs.run_job(args.bin, folder / "job.json", folder / "run")
        told = json.loads((folder / "run/result.json").read_text())
        lines = (folder / "run/traffic.jsonl").read_text().splitlines()
        return told, [json.loads(line) for line in lines]


def held(line):
    """Rows and bytes of all tables."""
    return sum(table["rows"] for table in line["tables"]), sum(table["bytes"] for table in line["tables"])


def admission(args):
    print("| ids get a row | rows | memory | AUC |\n|--|--|--|--|", flush=True)
    aucs = []
    for name, policy in {"all": {}, "that have occurred 3 times": {"admit": {"occurrences": 3}}}.items():
        told, traffic = run(args, args.ids, args.samples, {"evalSamples": 200_000}, policy)
        rows, size = held(traffic[-1])
        aucs.append(told["auc"])
        print(f"| {name} | {rows:,} | {size / 1e6:.0f} MB | {aucs[-1]:.4f} |", flush=True)
    lost = aucs[0] - aucs[1]
    print(f"\nlost: {lost:.4f} of AUC (bar {LOST}: {'reached' if lost <= LOST else 'missed'})\n", flush=True)


def drift(args):
    """Ids live for a tenth of the pass."""
    lives, ids = 10, args.ids // 20
    data = {"order": "Sequential", "drift": lives}
    steps = args.samples // (BATCH * WORKERS)
    life = steps // lives
    print(f"rows after each of {lives} lifetimes of an id, {life} steps each:", flush=True)
    for name, policy in {"rows stay": {}, f"evict after {life // 4} steps": {
            "evict": {"afterSteps": life // 4, "everySteps": max(1, life // 10)}}}.items():
        _, traffic = run(args, ids, args.samples, data, policy)
        at = [min(traffic, key=lambda line, end=end: abs(line.get("step", 0) - end)) for end in range(life, steps + 1, life)]
        rows = [held(line)[0] for line in at]
        later = rows[2:]
        if min(later) == 0 or len({line["step"] for line in at}) < lives:
            sys.exit(f"a lifetime is shorter than traffic.jsonl can show: more than {args.samples:,} --samples are needed")
        spread = (max(later) - min(later)) / min(later)
        told = "reached" if spread <= FLAT else "missed"
        print(f"| {name} | " + " | ".join(f"{count:,}" for count in rows) +
              f" | spread after two: {spread:.1%} (bar {FLAT:.0%}: {told}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--ids", default=1_000_000, type=int, help="of each column")
    parser.add_argument("--samples", default=8_000_000, type=int)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} before", flush=True)
    admission(args)
    drift(args)


if __name__ == "__main__":
    main()
