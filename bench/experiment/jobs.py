"""The jobs of the experiment: seven workers, two parameter servers, three placements."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import fashion  # noqa: E402

WORKERS = 7
SERVERS = 2
TASKS = [f"ps-{i}" for i in range(SERVERS)] + [f"worker-{i}" for i in range(WORKERS)]
BATCH = 32  # of a worker that learns
PLACEMENTS = {
    "roundrobin": {"strategy": "RoundRobin"},
    "fixedsize": {"strategy": "FixedSize", "fixedSize": {"shards": 2, "axis": 0}},
    "balanced": {"strategy": "Balanced"},
}
MODELS = {
    "mnist": {"model": {"name": "mnist_cnn", "dropout": 0.5}, "shape": [28, 28, 1], "classes": 10},
    "vgg19": {"model": {"name": "vgg19"}, "shape": [224, 224, 3], "classes": 1000},
}


def job(name, placement, training, volumes=fashion.VOLUMES[:1]):
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {"volumes": volumes,
                     "ps": {"replicas": SERVERS}, "worker": {"replicas": WORKERS},
                     "training": {**training, "placement": PLACEMENTS[placement]}}}


def simulated(model, placement, steps, step_seconds, replicas="Never"):
    """Nobody computes, a step takes its seconds and what the exchange adds. The data plays no part,
    so there is next to none. `replicas`: training.chunkReplicas."""
    kind = MODELS[model]
    return job(f"{model}-{placement}", placement, {
        "model": {**kind["model"], "simulatedStepSeconds": step_seconds},
        "data": {"format": "synthetic", "shape": kind["shape"], "classes": kind["classes"],
                 "samples": 2 * WORKERS},
        "batchSize": 1, "steps": steps, "chunkReplicas": replicas, "optimizer": {"name": "SGD", "learningRate": 0.01},
        # Writing the model down is not what is measured.
        "checkpoint": {"everySeconds": 604800}})


def learning(placement, steps, every):
    """mnist_cnn learns Fashion-MNIST, scored each `every` steps. One seed: all begin with the same weights and see the same
    images."""
    return job(f"learning-{placement}", placement, {
        "model": MODELS["mnist"]["model"], "seed": 1, "data": fashion.DATA, "batchSize": BATCH, "steps": steps,
        "evaluateEverySteps": every, "chunkReplicas": "Never",
        "optimizer": {"name": "RMSProp", "learningRate": 0.001}, "checkpoint": {"everySeconds": 604800}}, fashion.VOLUMES)


def write(description, path):
    path.write_text(json.dumps(description, indent=1) + "\n")
    return path
