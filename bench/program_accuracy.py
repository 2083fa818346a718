"""Accuracy of examples/pytorch over several orders of the samples: the plain script in one process, on parameter
servers, and in a ring (global batch 128 each).

    python3 bench/program_accuracy.py --bin build/dev/bin [--seeds 5]

The network begins with the same weights each time. From one step to the next its accuracy moves by a point, so a run's is
the mean of its evaluations from step 600 to step 1,200. Needs python3-torch and dataset-fashion-mnist. Prints the table
of docs/results.md.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import programs  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = SOURCE / "examples/pytorch"
LIMIT = 300  # seconds; against hangs only
STEPS, COUNTED = 1200, 4  # evaluations, of which there is one each 200 steps
BAR = 0.005
# plain_loader.py, with another order of the samples than that of the seed of the weights.
PLAIN = """
import runpy, sys, torch, fashion
made = fashion.convolutions
def convolutions():
    net = made()
    torch.manual_seed(int(sys.argv[1]))
    return net
fashion.convolutions = convolutions
runpy.run_path("plain_loader.py")
"""
WAYS = {"1 server, 1 worker": ["--set", "ps.replicas=1", "--set", "worker.replicas=1"],
        "2 servers, 2 workers": ["--set", "ps.replicas=2", "--set", "worker.replicas=2"],
        "ring of 3": ["--set", "strategy=AllReduce", "--set", "ps=", "--set", "worker.replicas=3"]}


def plain(args, variables, seed):
    done = subprocess.run([args.python, "-c", PLAIN, str(seed)], cwd=EXAMPLES, env=variables, capture_output=True, text=True,
                          timeout=LIMIT, check=True)
    return mean_of(map(float, re.findall(r"accuracy (0\.\d+)", done.stdout)))


def ours(args, variables, job, flags, seed):
    with tempfile.TemporaryDirectory() as scratch:
        run = pathlib.Path(scratch) / "run"
        subprocess.run([args.bin / "trainyard", "run", "-f", job, "--dir", run, *flags, "--set", f"training.seed={seed}",
                        "--set", f"training.steps={STEPS}"], env=variables, capture_output=True, timeout=LIMIT, check=True)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        return mean_of(line["accuracy"] for line in lines if "accuracy" in line)


def mean_of(accuracies):
    found = list(accuracies)
    if len(found) != STEPS // 200:
        raise RuntimeError(f"{len(found)} evaluations, expected {STEPS // 200}")
    return statistics.mean(found[-COUNTED:])


def job_file(folder, python):
    text = (EXAMPLES / "parameter_server.yaml").read_text(encoding="utf-8")
    file = folder / "job.yaml"
    file.write_text(text.replace("[python3, parameter_server.py]", f"[{python}, {EXAMPLES}/parameter_server.py]"))
    return file


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where our programs are")
    parser.add_argument("--python", default="/usr/bin/python3", help="a Python that has torch")
    parser.add_argument("--seeds", default=5, type=int)
    args = parser.parse_args()
    args.bin = args.bin.absolute()
    around = programs.Surroundings()
    found = {"plain": [], **{way: [] for way in WAYS}}
    with tempfile.TemporaryDirectory() as scratch:
        file = job_file(pathlib.Path(scratch), args.python)
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "STEPS": str(STEPS), "PYTHONDONTWRITEBYTECODE": "1",
                     "PYTHONPATH": str(SOURCE / "python"),
                     "TRAINYARD_LIBRARY": str(args.bin.parent / "lib/libtrainyard.so")}
        for seed in range(1, args.seeds + 1):
            found["plain"].append(plain(args, variables, seed))
            for way, flags in WAYS.items():
                found[way].append(ours(args, variables, file, flags, seed))
            print(seed, {way: values[-1] for way, values in found.items()}, flush=True)
    print(f"\n{programs.machine()}, {datetime.date.today().isoformat()}, {args.seeds} seeds; {around.text()}\n")
    print("| trained | accuracy, mean of seeds | standard deviation | beside plain | bar | |\n|--|--|--|--|--|--|")
    reference = statistics.mean(found["plain"])
    for way, values in found.items():
        beside = statistics.mean(values) - reference
        told = "| | |" if way == "plain" else f"{100 * beside:+.2f} points | 0.5 | " + (
            "reached |" if abs(beside) <= BAR else "missed |")
        print(f"| {way} | {statistics.mean(values):.4f} | {statistics.stdev(values):.4f} | {told}")


if __name__ == "__main__":
    main()
