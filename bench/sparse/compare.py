"""Models with embedding tables on our parameter servers and on TensorFlow's, on this machine: 2 workers, 2 servers,
TCP over loopback, one compute thread a task, in turns.

    python3 bench/sparse/compare.py --bin build/dev/bin --out build/sparse [--rounds 3] [--ids 384615]

Both read the same file of TFRecord (make_data.py): 26 columns of ids, which share a table of dim 16 and with
wide_and_deep one of dim 1, and 13 numbers; batches of 1,024, Adagrad. TensorFlow comes from PyPI
(deploy/wheels_tensorflow.txt) into a virtual environment below --out, or is that of --python. Prints the table of
docs/results.md and writes results.json with every measurement. Exits with 77 where TensorFlow cannot be had.
"""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tensorflow")]

import cluster  # noqa: E402
import programs  # noqa: E402

UNAVAILABLE = 77
SERVERS = WORKERS = 2
BATCH, FEATURES, NUMBERS, DIM = 1024, 26, 13, 16
MODELS = {"wide_and_deep": {"name": "wide_and_deep", "hidden": [512, 256]},
          "dlrm": {"name": "dlrm", "bottomHidden": [64, DIM], "hidden": [512, 256]}}
BAR = 2.0


def job(args, model, sync):
    features = [f"f{i}" for i in range(FEATURES)]
    columns = [{"name": name, "kind": "Id"} for name in features]
    columns += [{"name": f"n{i}", "kind": "Number"} for i in range(NUMBERS)] + [{"name": "click", "kind": "Label"}]
    rows = {"max": 2 * args.ids * FEATURES}
    tables = [{"name": "deep", "features": features, "dim": DIM, "rows": rows,
               "initial": {"distribution": "TruncatedNormal", "scale": 0.01}}]
    if model == "wide_and_deep":
        tables.append({"name": "wide", "features": features, "dim": 1, "rows": rows, "combiner": "Sum"})
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "sparse"},
            "spec": {"volumes": [{"name": "data", "mountPath": "/data"}], "ps": {"replicas": SERVERS},
                     "worker": {"replicas": WORKERS},
                     "training": {"model": MODELS[model], "tables": tables, "batchSize": BATCH, "steps": args.steps,
                                  "data": {"format": "tfrecord", "files": [f"/data/{args.file.name}"],
                                           "columns": columns},
                                  "threads": 1,  # as TensorFlow's workers have
                                  "sharedMemory": "Never", "update": {"mode": "Sync" if sync else "Async"},
                                  "optimizer": {"name": "Adagrad", "learningRate": 0.02},
                                  "checkpoint": {"everySeconds": 604800}}}}


def ours(args, model, sync):
    with tempfile.TemporaryDirectory(dir=args.out) as scratch:
        folder = pathlib.Path(scratch)
        (folder / "job.json").write_text(json.dumps(job(args, model, sync)))
        programs.run_job(args.bin, folder / "job.json", folder / "run", "--volume", f"data={args.file.parent}")
        return programs.steady(folder / "run", args.warm_up)


def theirs(args, model, sync):
    arguments = ["--model", model, "--data", args.file, "--rows", str(args.ids * FEATURES), "--batch", str(BATCH),
                 "--steps", str(args.steps), "--warm-up", str(args.warm_up)] + (["--sync"] if sync else [])
    return cluster.train([args.python, "-B", HERE / "task.py"], cluster.free_ports(SERVERS + WORKERS), SERVERS,
                         arguments, args.out)


def measure(args):
    results = []
    for model in args.models:
        for mode in args.modes:
            runs = {"ours": [], "tensorflow": []}
            for _ in range(args.rounds):
                for name, side in (("tensorflow", theirs), ("ours", ours)):
                    runs[name].append(side(args, model, mode == "sync"))
                    told = runs[name][-1]
                    print(f"{model} {mode} {name}: {told['steps_per_second']:.2f} steps/s, loss "
                          f"{told['first_loss']:.4f} to {told['last_loss']:.4f}", flush=True)
            results.append({"model": model, "mode": mode, **runs})
    return results


def table(results):
    lines = ["| what | ours | TensorFlow | ratio | bar | |", "|--|--|--|--|--|--|"]
    for result in results:
        # A global step is all workers' batches in mode sync, and one of them in async.
        samples = BATCH * (WORKERS if result["mode"] == "sync" else 1)
        mine, other = (samples * statistics.median(run["steps_per_second"] for run in result[side])
                       for side in ("ours", "tensorflow"))
        ratio = statistics.median(a["steps_per_second"] / b["steps_per_second"]
                                  for a, b in zip(result["ours"], result["tensorflow"]))
        lines.append(f"| {result['model']}, {result['mode']} | {mine:,.0f} examples/s | {other:,.0f} examples/s | "
                     f"{ratio:.2f}x | >= {BAR}x | {'reached' if ratio >= BAR else 'missed'} |")
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where our programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where data and results go")
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has TensorFlow 2.21")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=100, type=int)
    parser.add_argument("--warm-up", default=20, type=int, help="steps that are not measured")
    parser.add_argument("--ids", default=384_615, type=int, help="of each of the 26 columns")
    parser.add_argument("--samples", type=int, help="in the file; default: no worker reads one twice")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--modes", nargs="+", choices=["sync", "async"], default=["sync", "async"])
    args = parser.parse_args()
    args.out, args.bin = args.out.absolute(), args.bin.absolute()
    args.samples = args.samples or BATCH * WORKERS * args.steps
    args.file = args.out / "data" / f"clicks-{args.samples}-{args.ids}.tfrecord"
    return args


def main():
    args = parse()
    args.file.parent.mkdir(parents=True, exist_ok=True)
    args.python = args.python or cluster.make_environment(args.out / "venv")
    if args.python is None:
        print("TensorFlow's wheels cannot be installed", file=sys.stderr)
        return UNAVAILABLE
    if not args.file.exists():
        subprocess.run([args.python, "-B", HERE / "make_data.py", args.file, "--samples", str(args.samples),
                        "--ids", str(args.ids)], check=True)
    around = programs.Surroundings()
    results = measure(args)
    head = (f"{programs.machine()}, {datetime.date.today().isoformat()}, 26 x {args.ids:,} ids, median of {args.rounds} "
            f"rounds of {args.steps - args.warm_up} steps; {around.text()}\n\n")
    (args.out / "results.json").write_text(json.dumps({"head": head.strip(), "results": results}, indent=1) + "\n")
    text = head + table(results)
    (args.out / "results.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
