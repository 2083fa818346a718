"""What network.encryption costs: the time of a step of 2 workers over TCP, with 2 parameter servers and with
AllReduce, in turns.

Computing is real. Both sides of every connection are on this machine, so that its cores encrypt and decrypt.

    python3 bench/encryption.py --bin build/dev/bin [--rounds 3] [--steps 30]
"""
import argparse
import itertools
import os
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import programs  # noqa: E402

# With the samples of a step; mlp has 80 MB of weights.
MODELS = {"mnist_cnn": ("name: mnist_cnn", 128), "mlp": ("name: mlp, hidden: [4096, 4096]", 8)}
STRATEGIES = {"2 parameter servers": "ps: {replicas: 2}", "AllReduce": "strategy: AllReduce"}
JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: encryption}
spec:
  network: {encryption: ENCRYPTION}
  STRATEGY
  worker: {replicas: 2}
  training:
    model: {MODEL}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 4096, evalSamples: 10}
    batchSize: BATCH
    sharedMemory: Never
    chunkReplicas: Never
    steps: STEPS
    optimizer: {name: RMSProp, learningRate: 0.001}
    checkpoint: {everySeconds: 600}
"""


def step_seconds(bin_dir, name, strategy, encryption, steps):
    """The median step's."""
    model, batch = MODELS[name]
    text = JOB
    for word, value in {"ENCRYPTION": encryption, "STRATEGY": STRATEGIES[strategy], "MODEL": model, "BATCH": batch,
                        "STEPS": steps}.items():
        text = text.replace(word, str(value))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "job.yaml").write_text(text)
        return programs.median_step(programs.run_job(bin_dir, folder / "job.yaml", folder / "run"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--steps", default=30, type=int)
    args = parser.parse_args()
    print(f"{programs.machine()}, load {os.getloadavg()[0]:.1f}")
    print("| model | | None, ms by round | TLS | |\n|--|--|--|--|--|")
    for name, strategy in itertools.product(MODELS, STRATEGIES):
        plain, encrypted = [], []
        for _ in range(args.rounds):
            plain.append(step_seconds(args.bin, name, strategy, "None", args.steps))
            encrypted.append(step_seconds(args.bin, name, strategy, "TLS", args.steps))
        ratio = statistics.median(e / p for e, p in zip(encrypted, plain))
        texts = [", ".join(f"{1000 * s:.0f}" for s in seconds) for seconds in (plain, encrypted)]
        print(f"| {name} | {strategy} | {texts[0]} | {texts[1]} | {ratio:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
