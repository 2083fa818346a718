#!/usr/bin/env python3
"""Trains a small network over a job's ServerOptimizer. PROGRAM says what it shall do otherwise, as names with commas:

    twin      a copy of the network is trained by torch's SGD on the same batches, and must have the same weights
    workers   the loader has processes that read ahead
    parts     each batch in four backward passes
    mixed     parameters of 16 bits, one that is frozen, one without a gradient, a sparse gradient, tied weights
    nan, raise, twice, forget, add   something that must not be, at worker-1's step 30
    slow      each step takes a while, until the folder HOLD has a file "go"
    own       torch's own optimizer and schedule make the update (strategy AllReduce)
    wide      a network of 20 MB
    hold      in step 60 worker-1 writes the file "held" into that folder, once, and waits for "go"
    hold-kept the same in the first step after a checkpoint of a step that was taken
"""
import copy
import os

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import holds
import trainyard as ty
import trainyard.torch as tyt

FEATURES, CLASSES, SAMPLES = 12, 4, 640
WANTED = set(filter(None, os.environ.get("PROGRAM", "").split(",")))


def samples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator)
    directions = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x @ directions).argmax(1))


class Mixed(nn.Module):
    """What models of users have besides float32 weights."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(CLASSES * 4, FEATURES, sparse=True)
        self.body = nn.Linear(FEATURES, FEATURES).to(torch.bfloat16)
        self.frozen = nn.Linear(FEATURES, FEATURES)
        self.frozen.requires_grad_(False)
        self.idle = nn.Parameter(torch.ones(3))
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(FEATURES, CLASSES)
        self.tied = self.head

    def forward(self, x):
        looked_up = self.rows((x[:, 0].abs() * 3).long().clamp(max=CLASSES * 4 - 1))
        x = self.frozen(self.body((x + looked_up).to(torch.bfloat16)).float())
        return self.tied(x * self.scale)


def network():
    torch.manual_seed(3)
    if "mixed" in WANTED:
        return Mixed()
    if "wide" in WANTED:
        layers = [nn.Linear(1024, 1024) for _ in range(4)]
        return nn.Sequential(nn.Linear(FEATURES, 1024), *layers, nn.Linear(1024, CLASSES))
    # Without dropout the twin, whose random numbers are others, is the same network.
    drop = nn.Identity() if WANTED & {"twin", "parts"} else nn.Dropout(0.1)
    norm = nn.Identity() if "parts" in WANTED else nn.BatchNorm1d(24)
    return nn.Sequential(nn.Linear(FEATURES, 24), norm, nn.ReLU(), drop, nn.Linear(24, CLASSES))


def misbehave(job, optimizer, net, loss):
    """At worker-1's step 30."""
    if job.step != 30 or job.index != 1:
        return loss
    if "raise" in WANTED:
        raise ValueError("an image is upside down")
    if "twice" in WANTED:
        loss.backward(retain_graph=True)
    if "nan" in WANTED:
        return loss * float("nan")
    return loss


class Own:
    """As ServerOptimizer is used, over torch's optimizer."""

    def __init__(self, job, net):
        self.adam = torch.optim.Adam(net.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.adam, 30, 0.5)
        self.state = tyt.State(job, net, self.adam, self.schedule)
        self.state.values["steps"] = 0
        self.zero_grad, self.no_sync = self.adam.zero_grad, self.state.no_sync

    def step(self, loss, hits):
        with self.state.commit(loss, hits) as complete:
            if complete:
                self.adam.step()
                self.schedule.step()
                self.state.values["steps"] += 1


def train(job, net, twin, optimizer, loader):
    torchs = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    for x, y in job.steps(loader, lambda: score(job, net)):
        holds.in_step(job, WANTED, 60)
        optimizer.zero_grad()
        hits = None
        if "parts" in WANTED:
            with optimizer.no_sync():
                for part, wanted in zip(x.chunk(4)[:-1], y.chunk(4)[:-1]):
                    (cross_entropy(net(part), wanted, reduction="sum") / len(x)).backward()
            (cross_entropy(net(x.chunk(4)[-1]), y.chunk(4)[-1], reduction="sum") / len(x)).backward()
            loss = cross_entropy(net(x), y).detach()
        else:
            logits = net(x)
            loss = misbehave(job, optimizer, net, cross_entropy(logits, y))
            loss.backward()
            hits = (logits.argmax(1) == y).sum()
        if "forget" in WANTED and job.step == 30:
            continue
        optimizer.step(loss, hits)
        if "twin" in WANTED:
            torchs.zero_grad()
            cross_entropy(twin(x), y).backward()
            torchs.step()


def score(job, net):
    net.eval()
    for x, y in job.evaluate(test_loader):
        job.scored((net(x).argmax(1) == y).sum(), len(y))
    net.train()


job = ty.job()
net = network()
if "add" in WANTED and job.index == 1:
    net.add_module("later", nn.Linear(2, 2))
twin = copy.deepcopy(net)
optimizer = Own(job, net) if "own" in WANTED else tyt.ServerOptimizer(net, job)
count = 0 if "workers" not in WANTED else 2
loader = DataLoader(samples(SAMPLES, 1), num_workers=count, batch_sampler=job.batches(SAMPLES))
test_loader = DataLoader(samples(200, 2), batch_sampler=job.evaluation_batches(200, 64))
train(job, net, twin, optimizer, loader)
state = {name: value.float().sum().item() for name, value in net.state_dict().items()}
print(f"{job.ending.name.lower()} {job.name}: {state}", flush=True)
if "own" in WANTED:
    print(f"steps {optimizer.state.values['steps']}, rate {optimizer.schedule.get_last_lr()[0]:.6f}", flush=True)
if "twin" in WANTED:
    worst = max((a - b).abs().max().item() for a, b in zip(net.parameters(), twin.parameters()))
    print(f"twin differs by {worst:.2g}", flush=True)
