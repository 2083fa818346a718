"""Softmax regression on Fashion-MNIST with NumPy alone: trainyard run -f softmax.yaml"""
import gzip
import os
import pathlib

import numpy as np

import trainyard as ty

# Debian's package dataset-fashion-mnist.
FOLDER = pathlib.Path(os.environ.get("TRAINYARD_VOLUME_DATA", "/usr/share/datasets/fashion-mnist"))


def read(name, skip):
    """The bytes of an IDX file behind its header: http://yann.lecun.com/exdb/mnist, 'FILE FORMATS'."""
    with gzip.open(FOLDER / f"{name}.gz", "rb") as file:
        return np.frombuffer(file.read(), np.uint8)[skip:]


def pictures(kind):
    return (read(f"{kind}-images-idx3-ubyte", 16).reshape(-1, 784).astype(np.float32) / 255,
            read(f"{kind}-labels-idx1-ubyte", 8))


def probabilities(x):
    logits = x @ weights + bias
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    return exponents / exponents.sum(1, keepdims=True)


def evaluate():
    for numbers in job.evaluate(tests):
        job.scored((probabilities(test_images[numbers]).argmax(1) == test_labels[numbers]).sum(), len(numbers))


images, labels = pictures("train")
test_images, test_labels = pictures("t10k")
weights, bias = np.zeros((784, 10), np.float32), np.zeros(10, np.float32)
job = ty.job()
arrays = ty.Arrays(job, {"weights": weights, "bias": bias})
tests = job.evaluation_batches(len(test_images), 1000)
# What the job says is read: batches of sample numbers may be a loader themselves.
for numbers in job.steps(job.batches(len(images)), evaluate):
    x, y = images[numbers], labels[numbers]
    p = probabilities(x)
    loss, hits = -np.log(p[np.arange(len(y)), y] + 1e-9).sum(), (p.argmax(1) == y).sum()
    p[np.arange(len(y)), y] -= 1
    arrays.step({"weights": x.T @ p, "bias": p.sum(0)}, loss, hits)
