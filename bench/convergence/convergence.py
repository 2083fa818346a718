"""Accuracy against updates and against time, by update mode, with workers that are equally fast and with one that is
four times slower: what `make convergence` runs.

    python3 bench/convergence/convergence.py --bin build/dev/bin --out build/convergence [--quick]

mnist_cnn learns Fashion-MNIST on this machine, with real computing; each step of a worker also waits (a failpoint), so
that workers take as long as on machines of their own, and a slow one can be had. Runs end once they have --target.
Writes results.json, results.md (the table of docs/experiments.md) and convergence.svg.
"""

import argparse
import datetime
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "pictures")]

import curves  # noqa: E402
import fashion  # noqa: E402
import picture  # noqa: E402
import programs  # noqa: E402
import results  # noqa: E402
import run_records  # noqa: E402

WORKERS, SERVERS, BATCH = 4, 2, 64
# {name: (training.update, images of an update, whether all wait while the chief evaluates)}
MODES = {
    "Sync": ({"mode": "Sync"}, WORKERS * BATCH, True),
    "Sync, 1 backup worker": ({"mode": "Sync", "backupWorkers": 1}, (WORKERS - 1) * BATCH, False),
    "Async": ({"mode": "Async"}, BATCH, False),
    "BoundedDelay 1": ({"mode": "BoundedDelay", "maxDelay": 1}, BATCH, False),
    "BoundedDelay 4": ({"mode": "BoundedDelay", "maxDelay": 4}, BATCH, False),
    "BoundedDelay 16": ({"mode": "BoundedDelay", "maxDelay": 16}, BATCH, False),
}
QUICK = ["Sync", "Async", "BoundedDelay 4"]
EVERY = 40 * WORKERS * BATCH  # images between two evaluations
SLOWER = 4
AFTER = 1  # evaluation after the one that has the target; none with --quick


def job(name, mode, images):
    update, step_images, _ = MODES[mode]
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"volumes": fashion.VOLUMES, "ps": {"replicas": SERVERS}, "worker": {"replicas": WORKERS},
                     "training": {"model": {"name": "mnist_cnn", "dropout": 0.5}, "seed": 1, "data": fashion.DATA,
                                  "batchSize": BATCH, "steps": images // step_images, "update": update,
                                  "evaluateEverySteps": EVERY // step_images,
                                  "optimizer": {"name": "RMSProp", "learningRate": 0.001},
                                  "checkpoint": {"everySeconds": 604800}}}}


def waits(pause, slow):
    """Milliseconds by worker as failpoints."""
    times = {f"worker-{index}": pause for index in range(WORKERS)}
    if slow:
        times[f"worker-{WORKERS - 1}"] = slow
    return ";".join(f"worker.step=delay({milliseconds}),task={task}" for task, milliseconds in times.items())


class Runs:
    def __init__(self, args):
        self.args = args
        self.volumes = fashion.volumes(args.out)

    def train(self, mode, slow):
        """Ends the run AFTER evaluations beyond the target, or with its last step; returns its records."""
        args = self.args
        name = "convergence-" + "".join(c if c.isalnum() else "-" for c in mode.lower()).replace("--", "-") + ("-slow" if slow else "")
        file = args.out / f"{name}.json"
        file.write_text(json.dumps(job(name, mode, args.images), indent=1) + "\n")
        return fashion.train([args.bin / "trainyard", "run", "-f", file, *self.volumes], args.out / "runs" / name,
                             args.out / f"{name}.log", args.target, args.after,
                             {"TRAINYARD_FAILPOINTS": waits(args.pause, slow)})

    def measure(self):
        args = self.args
        made = {"machine": programs.machine(), "date": datetime.date.today().isoformat(), "load": os.getloadavg()[0],
                "target": args.target, "workers": WORKERS, "batch": BATCH, "pause_ms": args.pause, "slower": SLOWER, "runs": []}
        for slow in (False, True):
            for mode in args.modes:
                self.one(made, mode, slow)
        return made

    def one(self, made, mode, slow):
        """Of the first, Sync with equal workers, follows how long a slow one has to wait."""
        _, images, all_wait = MODES[mode]
        pause = round(self.args.pause + (SLOWER - 1) * 1000 * made["step_seconds"]) if slow else 0
        found = self.train(mode, pause)
        if "step_seconds" not in made:
            made["step_seconds"] = round(run_records.step_seconds(found), 4)
        points = curves.curve(found, images, all_wait)
        reached = curves.reached(points, self.args.target)
        made["runs"].append({"mode": mode, "slow": slow, "points": points, "reached": reached})
        print(f"{mode}{', one worker slow' if slow else ''}: "
              + (f"{reached['accuracy']:.4f} after {reached['updates']} updates, {reached['seconds']:.0f} s" if reached
                 else f"not reached; {points[-1]['accuracy']:.4f} after {points[-1]['updates']} updates"), flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where the programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where the results go")
    parser.add_argument("--target", default=0.88, type=float, help="accuracy")
    parser.add_argument("--pause", default=60, type=int, help="milliseconds that a step of a worker waits besides computing")
    parser.add_argument("--images", default=600000, type=int, help="after so many a run ends that has not reached the target")
    parser.add_argument("--quick", action="store_true", help="three modes, to 0.8")
    args = parser.parse_args()
    args.modes = QUICK if args.quick else list(MODES)
    args.after = 0 if args.quick else AFTER
    if args.quick:
        args.target = min(args.target, 0.8)
    args.bin, args.out = args.bin.absolute(), args.out.absolute()
    return args


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    return results.leave(args.out, "convergence", Runs(args).measure, picture)


if __name__ == "__main__":
    sys.exit(main())
