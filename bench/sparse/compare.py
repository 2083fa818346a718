"""Models with embedding tables on our parameter servers and on others', on this machine: 2 workers, 2 servers, TCP over
loopback, one compute thread a task, in turns.

    python3 bench/sparse/compare.py --bin build/dev/bin --out build/sparse [--rounds 3] [--ids 384615]
    python3 bench/sparse/compare.py --bin build/dev/bin --out build/sparse --samples 20000000     (13.6 GB)

All read the same file of TFRecord (records.py): 26 columns of ids, which share a table of dim 16 and with wide_and_deep
one of dim 1, and 13 numbers; batches of 1,024. Beside TensorFlow with Adagrad; beside PaddlePaddle, which is asked in
mode Async only, with SGD, and gets its batches without a parser. "dense" is the perceptron of wide_and_deep, on as many
numbers that are in memory: what a step costs without tables and without a file (PaddlePaddle's weights do not move
where there is no table). TensorFlow and PaddlePaddle come from PyPI
(deploy/wheels_tensorflow.txt, deploy/wheels_paddle.txt) into virtual environments below --out. Prints the tables of
docs/results.md and writes results.json with every measurement. Exits with 77 where the peers cannot be had.
"""
import argparse
import collections
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
          "dlrm": {"name": "dlrm", "bottomHidden": [64, DIM], "hidden": [512, 256]},
          "dense": {"name": "mlp", "hidden": [512, 256]}}
Peer = collections.namedtuple("Peer", "name task wheels optimizer modes models bar")
PEERS = {"tensorflow": Peer("TensorFlow", "task.py", "wheels_tensorflow.txt", "Adagrad", ["sync", "async"],
                            list(MODELS), 2.0),
         "paddle": Peer("PaddlePaddle", "paddle_task.py", "wheels_paddle.txt", "SGD", ["async"],
                        ["wide_and_deep"], 1.2)}


def clicks(args):
    """The file's columns, and the tables that look them up."""
    features = [f"f{i}" for i in range(FEATURES)]
    columns = [{"name": name, "kind": "Id"} for name in features]
    columns += [{"name": f"n{i}", "kind": "Number"} for i in range(NUMBERS)] + [{"name": "click", "kind": "Label"}]
    rows = {"max": 2 * args.ids * FEATURES}
    deep = {"name": "deep", "features": features, "dim": DIM, "rows": rows,
            "initial": {"distribution": "TruncatedNormal", "scale": 0.01}}
    wide = {"name": "wide", "features": features, "dim": 1, "rows": rows, "combiner": "Sum"}
    return {"format": "tfrecord", "files": [f"/data/{args.file.name}"], "columns": columns}, [deep, wide]


def job(args, model, mode, optimizer):
    training = {"model": MODELS[model], "chunkReplicas": args.replicas, "batchSize": BATCH, "steps": args.steps,
                "threads": 1,  # as the others' workers have
                "sharedMemory": "Never", "update": {"mode": mode.capitalize()},
                "optimizer": {"name": optimizer, "learningRate": 0.02}, "checkpoint": {"everySeconds": 604800}}
    if model == "dense":
        training["data"] = {"format": "synthetic", "shape": [FEATURES * DIM + NUMBERS, 1, 1], "classes": 2,
                            "samples": 16 * BATCH}
    else:
        training["data"], tables = clicks(args)
        training["tables"] = tables[:1] if model == "dlrm" else tables
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "sparse"},
            "spec": {"volumes": [{"name": "data", "mountPath": "/data"}], "ps": {"replicas": SERVERS},
                     "worker": {"replicas": WORKERS}, "training": training}}


def ours(args, peer, model, mode):
    with tempfile.TemporaryDirectory(dir=args.out) as scratch:
        folder = pathlib.Path(scratch)
        (folder / "job.json").write_text(json.dumps(job(args, model, mode, PEERS[peer].optimizer)))
        programs.run_job(args.bin, folder / "job.json", folder / "run", "--volume",
                         f"data={args.file.parent}")
        return programs.steady(folder / "run", args.warm_up)


def theirs(args, peer, model, mode):
    arguments = ["--model", model, "--data", args.file, "--rows", str(args.ids * FEATURES), "--batch", str(BATCH),
                 "--steps", str(args.steps), "--warm-up", str(args.warm_up)] + (["--sync"] if mode == "sync" else [])
    return cluster.train([args.pythons[peer], "-B", HERE / PEERS[peer].task],
                         cluster.free_ports(SERVERS + WORKERS), SERVERS, arguments, args.out)


def measure(args):
    results = []
    for peer in args.peers:
        for mode in [mode for mode in PEERS[peer].modes if mode in args.modes]:
            for model in [model for model in PEERS[peer].models if model in args.models]:
                runs = {"ours": [], "theirs": []}
                for _ in range(args.rounds):
                    for side, run in (("theirs", theirs), ("ours", ours)):
                        runs[side].append(run(args, peer, model, mode))
                        told = runs[side][-1]
                        print(f"{model} {mode} {peer if side == 'theirs' else 'ours'}: "
                              f"{told['steps_per_second']:.2f} steps/s, loss {told['first_loss']:.4f} to "
                              f"{told['last_loss']:.4f}", flush=True)
                results.append({"peer": peer, "model": model, "mode": mode, **runs})
    return results


def microseconds(result, side):
    """Of an example, by rounds. A global step is all workers' batches in mode sync, and one of them in async."""
    samples = BATCH * (WORKERS if result["mode"] == "sync" else 1)
    return [1e6 / (samples * run["steps_per_second"]) for run in result[side]]


def row(peer, what, mine, other, bar):
    """`mine`, `other`: microseconds of an example, by rounds."""
    ratio = statistics.median(b / a for a, b in zip(mine, other))
    bars = f">= {bar}x | {'reached' if ratio >= bar else 'missed'}" if bar else " | "
    mine, other = (statistics.median(each) for each in (mine, other))
    return f"| {what} | {1e6 / mine:,.0f} | {peer.name} {1e6 / other:,.0f} | {ratio:.2f}x | {bars} |"


def table(results):
    lines = ["| what | ours, examples/s | beside it | ratio | bar | |", "|--|--|--|--|--|--|"]
    for result in results:
        peer, dense = PEERS[result["peer"]], result["model"] == "dense"
        what = f"{result['model']}, {result['mode']}, {peer.optimizer}"
        mine, other = (microseconds(result, side) for side in ("ours", "theirs"))
        lines.append(row(peer, what, mine, other, None if dense else peer.bar))
        bare = [r for r in results if r["model"] == "dense" and all(r[k] == result[k] for k in ("peer", "mode"))]
        if result["model"] == "wide_and_deep" and bare:
            left = [[a - b for a, b in zip(microseconds(result, side), microseconds(bare[0], side))]
                    for side in ("ours", "theirs")]
            lines.append(row(peer, what + ": its tables alone", *left, peer.bar))
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where our programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where data and results go")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=100, type=int)
    parser.add_argument("--warm-up", default=20, type=int, help="steps that are not measured")
    parser.add_argument("--ids", default=384_615, type=int, help="of each of the 26 columns")
    parser.add_argument("--samples", type=int, help="in the file; default: no worker reads one twice")
    parser.add_argument("--replicas", choices=["Auto", "Never"], default="Auto",
                        help="ours; the others have none. Auto: what jobs have that say nothing")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--modes", nargs="+", choices=["sync", "async"], default=["sync", "async"])
    args = parser.parse_args()
    args.out, args.bin = args.out.absolute(), args.bin.absolute()
    args.samples = args.samples or BATCH * WORKERS * args.steps
    args.file = args.out / "data" / f"clicks-{args.samples}-{args.ids}.tfrecord"
    return args


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    args.pythons = {peer: cluster.make_venv(args.out / f"venv-{peer}", cluster.DEPLOY / PEERS[peer].wheels) for peer in args.peers}
    if None in args.pythons.values():
        print("the peers' wheels cannot be installed", file=sys.stderr)
        return UNAVAILABLE
    if not args.file.exists():
        args.file.parent.mkdir(exist_ok=True)
        subprocess.run([args.pythons[args.peers[0]], "-B", HERE / "records.py", args.file, "--samples", str(args.samples),
                        "--ids", str(args.ids)], check=True)
    around = programs.Surroundings()
    results = measure(args)
    head = (f"{programs.machine()}, {datetime.date.today().isoformat()}, 26 x {args.ids:,} ids, {args.samples:,} samples, "
            f"median of {args.rounds} rounds of {args.steps - args.warm_up} steps; {around.text()}\n\n")
    (args.out / "results.json").write_text(json.dumps({"head": head.strip(), "results": results}, indent=1) + "\n")
    text = head + table(results)
    (args.out / "results.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
