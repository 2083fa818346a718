"""What replicas cost: bytes that parameter servers receive, and the time of a step, with and without them.

Computing is simulated (the time of a step and no more), so that seven workers fit on a machine of few cores;
processes, pushes, pulls and updates are real. Runs in turns, prints a table.

    python3 bench/replicas.py --bin build/dev/bin [--rounds 3] [--steps 40] [--tcp] [--update Async] [--model mlp]

With --update Async a step is a push, which waits for no other worker's; mlp has 80 MB of weights.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import programs  # noqa: E402

SHAPES = [(2, 2, 0.2), (7, 2, 0.6)]  # workers, servers, seconds of computing
MODELS = {"mnist_cnn": "name: mnist_cnn", "mlp": "name: mlp, hidden: [4096, 4096]"}
BYTES_BEYOND = 0.02  # of the bar: 1 / workers and so much
JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: replicas}
spec:
  ps: {replicas: SERVERS}
  worker: {replicas: WORKERS}
  training:
    model: {MODEL, simulatedStepSeconds: SECONDS}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 4096, evalSamples: 10}
    batchSize: 8
    sharedMemory: SHARED
    chunkReplicas: KEPT
    steps: STEPS
    update: {mode: UPDATE}
    optimizer: {name: RMSProp, learningRate: 0.001}
    checkpoint: {everySeconds: 600}
"""


def last_record(path):
    return json.loads(path.read_text().splitlines()[-1])


def run(args, shape, kept):
    """Milliseconds of the median step, and bytes received by all servers in a step."""
    workers, servers, computing = shape
    text = JOB
    for name, value in {"SERVERS": servers, "WORKERS": workers, "SECONDS": computing, "STEPS": args.steps,
                        "KEPT": "Always" if kept else "Never", "SHARED": "Never" if args.tcp else "Auto",
                        "UPDATE": args.update, "MODEL": MODELS[args.model]}.items():
        text = text.replace(name, str(value))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "job.yaml").write_text(text)
        seconds = programs.median_step(programs.run_job(args.bin, folder / "job.yaml", folder / "run"))
        traffic = last_record(folder / "run/traffic.jsonl")
    received = sum(ps["receivedBytes"] for ps in traffic["ps"])
    return seconds * 1e3, received / args.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=40, type=int)
    parser.add_argument("--tcp", action="store_true", help="gradients do not go through shared memory")
    parser.add_argument("--update", default="Sync", choices=["Sync", "Async"])
    parser.add_argument("--model", default="mnist_cnn", choices=list(MODELS))
    args = parser.parse_args()
    print("| workers x servers | bytes received in a step | | step | |\n|--|--|--|--|--|")
    for shape in SHAPES:
        kept, bare = [], []
        for _ in range(args.rounds):
            kept.append(run(args, shape, True))
            bare.append(run(args, shape, False))
        more = statistics.median(k[1] / b[1] - 1 for k, b in zip(kept, bare))
        slower = statistics.median(k[0] / b[0] - 1 for k, b in zip(kept, bare))
        # Without common steps each push goes to the replica, and not their mean.
        bar = (1 / shape[0] if args.update == "Sync" else 1) + BYTES_BEYOND
        print(f"| {shape[0]}x{shape[1]} | {statistics.median(k[1] for k in kept) / 1e6:.1f} MB | {more:+.1%} "
              f"(bar {bar:.1%}: {'reached' if more <= bar else 'missed'}) "
              f"| {statistics.median(k[0] for k in kept):.1f} ms | {slower:+.1%} |", flush=True)


if __name__ == "__main__":
    main()
