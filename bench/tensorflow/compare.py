"""Our parameter servers beside TensorFlow's, on this machine: 2 workers, 2 servers, TCP over loopback, or
with --link each task in a network namespace behind a link of its own (bench/experiment/links.py; root).

    python3 bench/tensorflow/compare.py --bin build/dev/bin --out build/tensorflow [--rounds 3]
    python3 bench/tensorflow/compare.py --bin build/dev/bin --out build/tensorflow --link 1Gbit --modes sync

The two take turns in one run, each alone on the machine, with one compute thread a task, the same
model, batch, update rule and number of steps. TensorFlow comes from PyPI (deploy/wheels_tensorflow.txt)
into a virtual environment below --out, or is that of --python. Prints the table of docs/results.md and
writes results.json with every measurement. Exits with 77 where TensorFlow cannot be had.
"""

import argparse
import datetime
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "experiment"))

import cluster  # noqa: E402
import links  # noqa: E402
import programs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
UNAVAILABLE = 77
LIMIT = 300  # seconds for one training; against hangs only
WORKERS = SERVERS = 2
FILES = {"format": "idx", "images": "/data/train-images-idx3-ubyte.gz",
         "labels": "/data/train-labels-idx1-ubyte.gz"}
TASKS = [f"ps-{i}" for i in range(SERVERS)] + [f"worker-{i}" for i in range(WORKERS)]
PORT = 2222  # of every TensorFlow task, where each has an address of its own
# Bars: against TensorFlow's placement of that name, on links of 1 Gbit/s and without.
CASES = {
    "mnist_cnn": {"model": {"name": "mnist_cnn", "dropout": 0.5}, "batch": 128, "unit": "images/s",
                  "bars": {"sync": 1.25, "shared": 1.35, "async": 1.5},
                  "link_bars": {"round robin": 2.0, "partitioned": 1.25}},
    "mlp": {"model": {"name": "mlp", "hidden": [4096, 4096]}, "batch": 16, "unit": "steps/s",
            "bars": {"sync": 1.4, "shared": 2.5, "async": 1.5},
            "link_bars": {"round robin": 3.5, "partitioned": 1.8}},
}


class Bench:
    def __init__(self, args, network=None):
        self.args = args
        self.network = network
        # Both sides alike: what else this machine does then takes less from either.
        self.priority = args.priority.split() if args.priority else []

    def on(self, task):
        """What starts a command where the task is to be."""
        return self.network.enter(task) if self.network else []

    def tensorflow(self, name, sync, placement):
        """Global steps per second."""
        hosts = cluster.free_ports(SERVERS + WORKERS)
        if self.network:
            hosts = [f"{self.network.addresses[task]}:{PORT}" for task in TASKS]
        arguments = ["--model", name, "--data", self.args.data, "--batch", str(CASES[name]["batch"]), "--steps",
                     str(self.args.steps), "--warm-up", str(self.args.warm_up)]
        arguments += ["--sync"] if sync else []
        arguments += ["--partitioned"] if placement == "partitioned" else []
        return cluster.train([self.args.python, "-B", HERE / "task.py"], hosts, SERVERS, arguments, self.args.out,
                             lambda task: [*self.on(task), *self.priority])

    def ours(self, name, sync):
        case = CASES[name]
        job = {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
               "metadata": {"name": "bench"},
               "spec": {"volumes": [{"name": "data", "mountPath": "/data"}],
                        "ps": {"replicas": SERVERS}, "worker": {"replicas": WORKERS},
                        "training": {"model": case["model"], "data": FILES,
                                     "batchSize": case["batch"], "steps": self.args.steps,
                                     "threads": 1,  # as TensorFlow's workers have
                                     "sharedMemory": "Auto" if self.args.shared_memory else "Never",
                                     "update": {"mode": "Sync" if sync else "Async"},
                                     "optimizer": {"name": "RMSProp", "learningRate": 0.001},
                                     "checkpoint": {"everySeconds": 604800}}}}
        flags = links.flags(self.network, TASKS) if self.network else []
        with tempfile.TemporaryDirectory(dir=self.args.out) as scratch:
            scratch = pathlib.Path(scratch)
            (scratch / "job.json").write_text(json.dumps(job))
            subprocess.run([*self.on("launcher"), *self.priority, self.args.bin / "trainyard", "run",
                            "-f", scratch / "job.json", "--dir", scratch / "run", "--volume",
                            f"data={self.args.data}", *flags], check=True, timeout=LIMIT,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            return programs.steady(scratch / "run", self.args.warm_up)

    def rounds(self):
        results = []
        for name in self.args.cases:
            for mode in self.args.modes:
                runs = {side: [] for side in [*self.args.placements, "ours"]}
                for _ in range(self.args.rounds):
                    for side in runs:
                        sync = mode == "sync"
                        runs[side].append(self.ours(name, sync) if side == "ours" else
                                          self.tensorflow(name, sync, side))
                        print(f"{name} {mode} {side}: "
                              f"{runs[side][-1]['steps_per_second']:.2f} steps/s", flush=True)
                results += [{"case": name, "mode": mode, "placement": placement,
                             "ours": runs["ours"], "tensorflow": runs[placement]}
                            for placement in self.args.placements]
        return results


def per_second(result, side):
    """The median in the unit of the case."""
    case = CASES[result["case"]]
    steps = statistics.median(run["steps_per_second"] for run in result[side])
    if case["unit"] == "steps/s":
        return steps
    return steps * case["batch"] * (WORKERS if result["mode"] == "sync" else 1)


def bar_of(result, link, shared_memory):
    case = CASES[result["case"]]
    if link:
        return case["link_bars"][result["placement"]]
    return case["bars"]["shared" if shared_memory and result["mode"] == "sync" else result["mode"]]


def table(results, link, shared_memory):
    lines = ["| what | ours | TensorFlow | its placement | ratio | bar | |",
             "|--|--|--|--|--|--|--|"]
    for result in results:
        case = CASES[result["case"]]
        ratio = statistics.median(
            a["steps_per_second"] / b["steps_per_second"]
            for a, b in zip(result["ours"], result["tensorflow"]))
        bar = bar_of(result, link, shared_memory)
        lines.append(
            f"| {result['case']}, batch {case['batch']}, {result['mode']} | "
            f"{per_second(result, 'ours'):.2f} {case['unit']} | "
            f"{per_second(result, 'tensorflow'):.2f} {case['unit']} | {result['placement']} | "
            f"{ratio:.2f}x | >= {bar}x | {'reached' if ratio >= bar else 'missed'} |")
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where our programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where the results go")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", type=pathlib.Path)
    parser.add_argument("--python", type=pathlib.Path, help="a Python that has TensorFlow 2.21")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=60, type=int)
    parser.add_argument("--warm-up", default=10, type=int, help="steps that are not measured")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--modes", nargs="+", choices=["sync", "async"], default=["sync", "async"])
    parser.add_argument("--shared-memory", action="store_true",
                        help="ours passes gradients and weights through shared memory, theirs over TCP")
    parser.add_argument("--link", help="bandwidth of every task's link, such as 1Gbit; needs root")
    parser.add_argument("--placements", nargs="+", choices=["round robin", "partitioned"],
                        help="of TensorFlow's variables: whole in turn, or in two parts each "
                             "(default: the former, with --link both)")
    parser.add_argument("--priority", metavar="COMMAND",
                        help="starts every task of both, such as 'chrt -r 10', where the machine has "
                             "other work to do")
    args = parser.parse_args()
    if args.placements is None:
        args.placements = ["round robin", "partitioned"] if args.link else ["round robin"]
    args.out, args.bin = args.out.absolute(), args.bin.absolute()
    return args


def measure(args):
    if not args.link:
        return Bench(args).rounds()
    hosts = {task: links.bits_per_second(args.link) for task in TASKS}
    with links.Network(hosts | {"launcher": links.UNSHAPED}) as network:
        return Bench(args, network).rounds()


def main():
    args = parse()
    if args.link and (reason := links.why_not()):
        print(f"no links: {reason}", file=sys.stderr)
        return UNAVAILABLE
    # Ended from elsewhere, it takes everything down as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.out.mkdir(parents=True, exist_ok=True)
    if args.python is None:
        args.python = cluster.tensorflow(args.out / "venv")
        if args.python is None:
            print("TensorFlow's wheels cannot be installed", file=sys.stderr)
            return UNAVAILABLE
    around = programs.Surroundings()
    results = measure(args)
    head = (f"{programs.machine()}, {datetime.date.today().isoformat()}, "
            f"{'links of ' + args.link if args.link else 'loopback'}"
            f"{', ours through shared memory' if args.shared_memory else ''}"
            f"{', ' + args.priority if args.priority else ''}, median of "
            f"{args.rounds} rounds of {args.steps - args.warm_up} steps; {around.text()}\n\n")
    (args.out / "results.json").write_text(json.dumps(
        {"machine": programs.machine(), "date": datetime.date.today().isoformat(), "around": around.text(),
         "link": args.link, "priority": args.priority, "results": results}, indent=1) + "\n")
    text = head + table(results, args.link, args.shared_memory)
    (args.out / "results.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
