"""How well our models tell made-up clicks, whose truth is planted, beside who knows that truth.

    python3 bench/synthetic_auc.py --bin build/dev/bin [--passes 3]

wide_and_deep and dlrm over clicks of two columns of ids and two numbers (format synthetic_ctr), 2 workers, 2 parameter
servers; as many samples that each id has been seen often. The truth of a click is a sum over ids and numbers and the
product of the ids' hidden vectors; what of it is chance nobody can tell, so that who knows it all has an AUC of 0.79.
Prints the table of docs/results.md.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import programs  # noqa: E402

BAR = 0.01
DIM = 16
MODELS = {"wide_and_deep": {"name": "wide_and_deep", "hidden": [64, 32]},
          "dlrm": {"name": "dlrm", "bottomHidden": [32, DIM], "hidden": [64, 32]}}


def job(args, model):
    features = ["user", "item"]
    columns = [{"name": name, "kind": "Id", "ids": args.ids} for name in features]
    columns += [{"name": name, "kind": "Number"} for name in ("age", "hour")] + [{"name": "click", "kind": "Label"}]
    rows = {"max": 2 * args.ids, "expected": args.ids}
    tables = [{"name": name, "features": [name], "dim": DIM, "rows": rows,
               "initial": {"distribution": "Uniform", "scale": 0.1}} for name in features]
    if model == "wide_and_deep":
        tables.append({"name": "wide", "features": features, "dim": 1, "rows": {"max": 4 * args.ids}})
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "clicks"},
            "spec": {"ps": {"replicas": 2}, "worker": {"replicas": 2},
                     "training": {"model": MODELS[model], "tables": tables, "batchSize": 256, "passes": args.passes,
                                  "data": {"format": "synthetic_ctr", "columns": columns, "samples": args.samples,
                                           "evalSamples": args.eval_samples, "prefetch": 2},
                                  "optimizer": {"name": "Adagrad", "learningRate": args.rate}}}}


def measure(args, model):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "job.json").write_text(json.dumps(job(args, model)))
        programs.run_job(args.bin, folder / "job.json", folder / "run")
        told = json.loads((folder / "run/result.json").read_text())
        oracle = subprocess.run([args.bin / "trainyard-bench-clicks-oracle", folder / "run/job.json"], check=True,
                                capture_output=True, text=True)
        return told, json.loads(oracle.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--ids", default=500, type=int, help="of each column")
    parser.add_argument("--samples", default=8_000_000, type=int)
    parser.add_argument("--eval-samples", default=200_000, type=int)
    parser.add_argument("--passes", default=3, type=int)
    parser.add_argument("--rate", default=0.1, type=float)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} before", flush=True)
    print("| model | AUC | who knows the truth | difference | bar | calibration | took |\n" + "|--" * 7 + "|", flush=True)
    for model in MODELS:
        told, oracle = measure(args, model)
        less = oracle["auc"] - told["auc"]
        print(f"| {model} | {told['auc']:.4f} | {oracle['auc']:.4f} | {less:.4f} | {BAR}, "
              f"{'reached' if less <= BAR else 'missed'} | {told['calibration']:.3f} | {told['seconds']:.0f} s |", flush=True)


if __name__ == "__main__":
    main()
