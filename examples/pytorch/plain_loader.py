"""Fashion-MNIST in one process, as scripts with a DataLoader are: python3 plain_loader.py"""
import itertools
import os

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import fashion

STEPS, BATCH = int(os.environ.get("STEPS", 400)), 128

train, tests = fashion.pictures(), fashion.pictures("t10k")
net = fashion.convolutions()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(train, BATCH, shuffle=True)
test_loader = DataLoader(tests, 1000)


def evaluate():
    hits = 0
    for x, y in test_loader:
        hits += (net(x).argmax(1) == y).sum().item()
    print(f"accuracy {hits / len(tests):.4f}", flush=True)


passes = itertools.chain.from_iterable(itertools.repeat(loader))
for step, (x, y) in enumerate(itertools.islice(passes, STEPS), 1):
    optimizer.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 200 == 0:
        evaluate()
