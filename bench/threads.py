"""What training.threads brings: images a second of one worker beside one parameter server.

Computing is real. Runs in turns, prints a table; the numbers of threads are what the cores of the machine
are good for, with the server and the launcher on the same cores.

    python3 bench/threads.py --bin build/dev/bin [--rounds 3] [--steps 60] [--threads 1 2]
"""
import argparse
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import programs  # noqa: E402

BATCH = 128
JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: threads}
spec:
  ps: {replicas: 1}
  worker: {replicas: 1}
  training:
    model: {name: mnist_cnn, dropout: 0.5}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 4096, evalSamples: 10}
    batchSize: BATCH
    threads: THREADS
    steps: STEPS
    optimizer: {name: RMSProp, learningRate: 0.001}
    checkpoint: {everySeconds: 600}
"""


def images_per_second(bin_dir, threads, steps):
    """By the median step."""
    text = JOB
    for name, value in {"BATCH": BATCH, "THREADS": threads, "STEPS": steps}.items():
        text = text.replace(name, str(value))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "job.yaml").write_text(text)
        return BATCH / programs.median_step(programs.run_job(bin_dir, folder / "job.yaml", folder / "run"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=60, type=int)
    parser.add_argument("--threads", default=["1", "2"], nargs="+", help="Auto, or numbers; the first is compared with")
    args = parser.parse_args()
    measured = {threads: [] for threads in args.threads}
    for _ in range(args.rounds):
        for threads in args.threads:
            measured[threads].append(images_per_second(args.bin, threads, args.steps))
    print("| threads | images/s, by round | than with the first |\n|--|--|--|")
    for threads, rates in measured.items():
        ratio = statistics.median(r / f for r, f in zip(rates, measured[args.threads[0]]))
        print(f"| {threads} | {', '.join(f'{r:.0f}' for r in rates)} | {ratio:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
