"""Fashion-MNIST and a small network, the same in all examples of this folder."""
import functools
import gzip
import os
import pathlib

import torch
from torch import nn
from torch.utils.data import TensorDataset

# Debian's package dataset-fashion-mnist; in a job the volume `data`.
FOLDER = pathlib.Path(os.environ.get("TRAINYARD_VOLUME_DATA", "/usr/share/datasets/fashion-mnist"))
CHECKPOINT = pathlib.Path(os.environ.get("CHECKPOINT", "fashion.pt"))


def read(name):
    """The numbers of an IDX file: http://yann.lecun.com/exdb/mnist, 'FILE FORMATS'."""
    with gzip.open(FOLDER / f"{name}.gz", "rb") as file:
        content = file.read()
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return torch.frombuffer(bytearray(content[4 + 4 * dimensions:]), dtype=torch.uint8).reshape(shape)


@functools.cache
def data(kind="train"):
    """Images of [n, 784] from 0 to 1, labels of [n]; read once."""
    images, labels = read(f"{kind}-images-idx3-ubyte"), read(f"{kind}-labels-idx1-ubyte")
    return images.reshape(len(images), -1).float() / 255, labels.long()


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def pictures(kind="train"):
    """As torch's DataLoader takes them: images of [1, 28, 28], labels."""
    images, labels = data(kind)
    return TensorDataset(images.reshape(-1, 1, 28, 28), labels)


def convolutions():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(32 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, 10))


def batch(images, labels, step, size, rank=0, ranks=1):
    """The part of a step's `size` samples that belongs to a rank."""
    begin = step * size % (len(images) - size)
    part = slice(begin + size * rank // ranks, begin + size * (rank + 1) // ranks)
    return images[part], labels[part]


def accuracy(net):
    images, labels = data("t10k")
    with torch.no_grad():
        return (net(images).argmax(1) == labels).float().mean().item()


def resume(net, optimizer):
    """The step to go on from: 0, or that of the checkpoint that this script has written before."""
    if not CHECKPOINT.exists():
        return 0
    state = torch.load(CHECKPOINT)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def save(net, optimizer, step):
    write({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step})


def write(state):
    """The checkpoint appears under its name when it is whole."""
    fresh = CHECKPOINT.with_suffix(".new")
    torch.save(state, fresh)
    fresh.replace(CHECKPOINT)
