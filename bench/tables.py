"""A step of a job with embedding tables: wide_and_deep over made-up clicks, 2 workers, 2 parameter servers.

26 columns of 384,615 ids each in one table of dim 16 and in one of dim 1, 13 numbers, hidden layers of 512
and 256, batches of 1,024: the workload of "Embedding tables" in docs/results.md. Prints a table: where a
worker's step goes, and the bytes that it moves. TCP and memory, with replicas of each server's on the other and
without, in turns.

    python3 bench/tables.py --bin build/dev/bin [--rounds 2] [--steps 300]
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import programs  # noqa: E402

FEATURES = [f"f{i}" for i in range(26)]
IDS = 384615
BATCH = 1024


def job(steps, shared_memory, replicas):
    rows = {"max": 10_000_000}
    columns = [{"name": f, "kind": "Id", "ids": IDS} for f in FEATURES]
    columns += [{"name": f"n{i}", "kind": "Number"} for i in range(13)] + [{"name": "click", "kind": "Label"}]
    return {
        "apiVersion": "trainyard.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "tables"},
        "spec": {
            "ps": {"replicas": 2},
            "worker": {"replicas": 2},
            "training": {
                "model": {"name": "wide_and_deep", "hidden": [512, 256]},
                "data": {"format": "synthetic_ctr", "columns": columns, "samples": 1_000_000, "evalSamples": 10_000},
                "tables": [
                    {"name": "deep", "features": FEATURES, "dim": 16, "rows": rows,
                     "initial": {"distribution": "TruncatedNormal", "scale": 0.01}},
                    {"name": "wide", "features": FEATURES, "dim": 1, "rows": rows}],
                "batchSize": BATCH,
                "steps": steps,
                "sharedMemory": "Auto" if shared_memory else "Never",
                "chunkReplicas": "Auto" if replicas else "Never",
                "checkpoint": {"everySeconds": 3600},
                "optimizer": {"name": "Adagrad", "learningRate": 0.02},
            },
        },
    }


def measure(bin_dir, steps, shared_memory, replicas):
    """Milliseconds of a step by what worker-0 does, and kilobytes of a step each way."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "job.yaml").write_text(json.dumps(job(steps, shared_memory, replicas)))
        programs.run_job(bin_dir, folder / "job.yaml", folder / "run")
        report = json.loads((folder / "run" / "tasks" / "worker-0" / "report.json").read_text())
    seconds = report["seconds"]
    return {"data": seconds["data"] * 1e3 / steps,
            "computing": seconds["compute"] * 1e3 / steps,
            "waiting for servers": seconds["pushPull"] * 1e3 / steps,
            "KB received": sum(int(p["receivedBytes"]) for p in report["traffic"]) / steps / 1e3,
            "KB sent": sum(int(p["transmittedBytes"]) for p in report["traffic"]) / steps / 1e3}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", default=2, type=int)
    parser.add_argument("--steps", default=300, type=int)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} before", flush=True)
    measured = {"TCP": [], "TCP, no replicas": [], "memory": [], "memory, no replicas": []}
    for _ in range(args.rounds):
        for over, runs in measured.items():
            runs.append(measure(args.bin, args.steps, over.startswith("memory"), "no replicas" not in over))
    names = list(measured["TCP"][0])
    print("| over | " + " | ".join(names) + " |\n|--|" + "--|" * len(names))
    for over, runs in measured.items():
        print(f"| {over} | " + " | ".join(f"{statistics.median(r[n] for r in runs):.1f}" for n in names) + " |")


if __name__ == "__main__":
    main()
