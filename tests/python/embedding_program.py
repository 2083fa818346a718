#!/usr/bin/env python3
"""Trains a network with trainyard.nn's EmbeddingBag and Embedding. EMBEDDING says what it shall do otherwise, as names
with commas:

    twin      the same network with torch's own layers is trained by torch's SGD on the same batches
    ahead     rows are looked up a batch ahead
    workers   the loader has processes that read ahead
    parts     each batch in two backward passes
    stray     a layer is left out of the model
    hold      in step 60 worker-1 writes the file "held" into the folder HOLD, once, and waits for "go"
"""
import os

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, Dataset

import holds
import trainyard as ty
import trainyard.nn
import trainyard.torch as tyt

SAMPLES, TESTS, IDS, DIM, WORDS = 1600, 200, 50, 4, 3
WANTED = set(filter(None, os.environ.get("EMBEDDING", "").split(",")))
truth = torch.randn(IDS, generator=torch.Generator().manual_seed(0))


class Clicks(Dataset):
    """Words, the first of them a user; clicked where their truths add up to more than nothing."""

    def __init__(self, count, seed):
        self.words = torch.randint(IDS, (count, WORDS), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, at):
        return self.words[at], (truth[self.words[at]].sum() > 0).float()


class Net(nn.Module):
    """Of three bags over one table, one of them twice, and of one row over another one."""

    def __init__(self, bag, row):
        super().__init__()
        torch.manual_seed(3)
        self.sums, self.means, self.roots, self.user = bag("sum"), bag("mean"), bag("sqrtn"), row()
        self.head = nn.Sequential(nn.Linear(4 * DIM, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, words):
        flat, offsets = words.reshape(-1), torch.arange(0, words.numel(), WORDS)
        parts = [self.sums(words), self.means(flat, offsets), self.roots(words), self.user(words[:, 0])]
        return self.head(torch.cat(parts, 1)).squeeze(1)


class TorchBag(nn.Module):
    """A bag of torch's own over weights that several share."""

    def __init__(self, weight, mode):
        super().__init__()
        self.weight, self.mode = weight, mode

    def forward(self, words, offsets=None):
        mode = "mean" if self.mode == "mean" else "sum"
        bags = nn.functional.embedding_bag(words, self.weight, offsets, mode=mode)
        return bags / WORDS ** 0.5 if self.mode == "sqrtn" else bags


def twin_of(net):
    """With what the job's tables begin with; the layers above are the same."""
    words, users = nn.Parameter(torch.zeros(IDS, DIM)), nn.Parameter(torch.zeros(IDS, DIM))

    class Row(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = users

        def forward(self, ids):
            return nn.functional.embedding(ids, self.weight)

    twin = Net(lambda mode: TorchBag(words, mode), Row)
    twin.head.load_state_dict(net.head.state_dict())
    return twin


def backward(net, optimizer, x, y):
    """The loss of the batch."""
    if "parts" not in WANTED:
        loss = binary_cross_entropy_with_logits(net(x), y)
        loss.backward()
        return loss
    half = len(x) // 2
    with optimizer.no_sync():
        first = binary_cross_entropy_with_logits(net(x[:half]), y[:half], reduction="sum") / len(x)
        first.backward()
    second = binary_cross_entropy_with_logits(net(x[half:]), y[half:], reduction="sum") / len(x)
    second.backward()
    return first.detach() + second


def score(job, net, loader):
    logits, labels = [], []
    with torch.no_grad():
        for x, y in job.evaluate(loader):
            logits.append(net(x))
            labels.append(y)
            job.scored_clicks(logits[-1], labels[-1])
    if "twin" in WANTED:
        logits, labels = torch.cat(logits), torch.cat(labels) > 0
        pairs = logits[labels][:, None] - logits[~labels][None]
        print(f"AUC of this worker's samples: {(pairs > 0).float().mean():.4f}", flush=True)


def main():
    job = ty.job()
    net = Net(lambda mode: ty.nn.EmbeddingBag(job, "words", mode), lambda: ty.nn.Embedding(job, "users"))
    stray = ty.nn.Embedding(job, "users") if "stray" in WANTED else None
    twin = twin_of(net)
    descent = torch.optim.SGD(twin.parameters(), lr=0.1)
    optimizer = tyt.ServerOptimizer(net, job)
    loader = DataLoader(Clicks(SAMPLES, 1), num_workers=2 if "workers" in WANTED else 0,
                        batch_sampler=job.batches(SAMPLES))
    tests = DataLoader(Clicks(TESTS, 2), batch_sampler=job.evaluation_batches(TESTS, 64))
    ids = (lambda batch: {"words": batch[0], "users": batch[0][:, 0]}) if "ahead" in WANTED else None
    print(f"{net.sums!r}", flush=True)
    for x, y in job.steps(loader, lambda: score(job, net, tests), ids=ids):
        holds.in_step(job, WANTED, 60)
        optimizer.zero_grad()
        if stray is not None:
            stray(x)
        loss = backward(net, optimizer, x, y)
        optimizer.step(loss)
        if "twin" in WANTED:
            descent.zero_grad()
            binary_cross_entropy_with_logits(twin(x), y).backward()
            descent.step()
    if "twin" in WANTED:
        away = max((a - b).abs().max().item() for a, b in zip(net.head.parameters(), twin.head.parameters()))
        print(f"twin differs by {away:.2g}", flush=True)


main()
