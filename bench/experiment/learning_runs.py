"""Runs that learn behind links, ours and TensorFlow's: what learning.py draws."""

import contextlib
import datetime
import os
import pathlib
import sys
import threading
import time

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH), str(BENCH / "tensorflow")]

import cluster  # noqa: E402
import fashion  # noqa: E402
import jobs  # noqa: E402
import learning  # noqa: E402
import links  # noqa: E402
import programs  # noqa: E402
import run_records  # noqa: E402

PORT = 2222  # of every TensorFlow task: each has an address of its own
SAMPLE = 1.0  # seconds between two looks at TensorFlow's links


@contextlib.contextmanager
def watched(network):
    """What the servers' links carry meanwhile, as in our traffic.jsonl."""
    samples, over = [], threading.Event()

    def look():
        while True:
            carried = {ps: network.carried(ps) for ps in jobs.TASKS[:jobs.SERVERS]}
            samples.append({"time": time.time(), "ps": [
                {"task": ps, "wireReceivedBytes": received, "wireTransmittedBytes": sent}
                for ps, (received, sent) in carried.items()]})
            if over.wait(SAMPLE):
                return
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def ours(args, network, volumes, placement):
    folder = args.out / "runs" / f"learning-{placement}"
    file = jobs.write(jobs.learning(placement, args.learning_steps, args.every), args.out / f"{folder.name}.json")
    command = [*network.enter("launcher"), args.bin / "trainyard", "run", "-f", file, *volumes,
               *links.flags(network, jobs.TASKS)]
    records = fashion.train(command, folder, args.out / f"{folder.name}.log", args.target, args.after)
    return records, run_records.read(folder, "traffic.jsonl")


def theirs(args, network, placement):
    hosts = [f"{network.addresses[task]}:{PORT}" for task in jobs.TASKS]
    arguments = ["--model", "mnist_cnn", "--data", fashion.FASHION, "--evaluation", args.out / "evaluation", "--batch",
                 str(jobs.BATCH), "--steps", str(args.learning_steps), "--every", str(args.every), "--target",
                 str(args.target), "--after", str(args.after)] + (["--partitioned"] if placement == "fixedsize" else [])
    with watched(network) as samples:
        told = cluster.train([args.python, "-B", BENCH / "tensorflow" / "learn.py"], hosts, jobs.SERVERS, arguments, args.out,
                             network.enter, fashion.LIMIT)
    return told["records"], samples


def measure(args):
    volumes = fashion.volumes(args.out)
    args.python = cluster.tensorflow(args.tensorflow) if args.tensorflow else None
    if args.tensorflow and args.python is None:
        sys.exit("TensorFlow's wheels cannot be installed")
    results = {"machine": programs.machine(), "date": datetime.date.today().isoformat(), "load": os.getloadavg()[0],
               "link": args.link, "target": args.target, "workers": jobs.WORKERS, "batch": jobs.BATCH, "runs": []}
    runs = [(placement, lambda network, placement=placement: ours(args, network, volumes, placement))
            for placement in args.placements]
    if args.python:
        runs += [(f"tensorflow-{placement}", lambda network, placement=placement: theirs(args, network, placement))
                 for placement in args.placements if placement != "balanced"]
    with links.Network(links.tasks(jobs.TASKS, args.link)) as network:
        for name, run in runs:
            results["runs"].append(learning.told(name, *run(network), args.target))
            print(learning.line(results["runs"][-1]), flush=True)
    return results
