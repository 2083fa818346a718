"""The jobs of the experiment: seven workers, two parameter servers, three placements."""

import json

WORKERS = 7
SERVERS = 2
PLACEMENTS = {
    "roundrobin": {"strategy": "RoundRobin"},
    "fixedsize": {"strategy": "FixedSize", "fixedSize": {"shards": 2, "axis": 0}},
    "balanced": {"strategy": "Balanced"},
}
MODELS = {
    "mnist": {"model": {"name": "mnist_cnn", "dropout": 0.5}, "shape": [28, 28, 1], "classes": 10},
    "vgg19": {"model": {"name": "vgg19"}, "shape": [224, 224, 3], "classes": 1000},
}
FASHION = {"format": "idx", "images": "/data/train-images-idx3-ubyte.gz",
           "labels": "/data/train-labels-idx1-ubyte.gz",
           "evalImages": "/data/t10k-images-idx3-ubyte.gz",
           "evalLabels": "/data/t10k-labels-idx1-ubyte.gz"}


def job(name, placement, training):
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {"volumes": [{"name": "data", "mountPath": "/data"}],
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


def computed(placement, steps, batch):
    """mnist_cnn learns Fashion-MNIST."""
    return job(f"fashion-{placement}", placement, {
        "model": MODELS["mnist"]["model"], "data": FASHION, "batchSize": batch, "steps": steps,
        "evaluateEverySteps": max(1, steps // 6),
        "optimizer": {"name": "RMSProp", "learningRate": 0.001,
                      "decay": {"every": 200, "rate": 0.5}},
        "checkpoint": {"everySeconds": 604800}})


def write(description, path):
    path.write_text(json.dumps(description, indent=1) + "\n")
    return path
