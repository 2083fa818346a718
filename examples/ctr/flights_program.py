#!/usr/bin/env python3
"""A wide and deep model in PyTorch whose embeddings are rows of the job's tables (flights_program.yaml).

    flights_program.py FOLDER        train.csv and eval.csv of flights.py
"""
import csv
import hashlib
import pathlib
import sys

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

import trainyard as ty
import trainyard.nn
import trainyard.torch as tyt

WORDS = ["carrier", "flight", "tailnum", "origin", "dest", "route", "hour", "weekday"]
NUMBERS = ["distance", "minutes"]
DIM = 8


def id_of(column, word):
    """64 bits, which columns do not share."""
    digest = hashlib.blake2b(f"{column}={word}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def read(path):
    """Ids of words, numbers, and whether the flight came late."""
    known = {}
    ids, numbers, late = [], [], []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            ids.append([known.setdefault((name, row[name]), id_of(name, row[name])) for name in WORDS])
            numbers.append([float(row[name] or 0) for name in NUMBERS])
            late.append(float(row["late"]))
    return TensorDataset(torch.tensor(ids), torch.tensor(numbers), torch.tensor(late))


class WideAndDeep(torch.nn.Module):
    def __init__(self, job):
        super().__init__()
        torch.manual_seed(1)
        self.deep = ty.nn.Embedding(job, "deep")
        self.wide = ty.nn.EmbeddingBag(job, "wide")
        self.hidden = torch.nn.Sequential(
            torch.nn.Linear(DIM * len(WORDS) + len(NUMBERS), 64), torch.nn.ReLU(),
            torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, ids, numbers):
        deep = self.hidden(torch.cat([self.deep(ids).flatten(1), numbers], 1))
        return (deep + self.wide(ids)).squeeze(1)


def evaluate(job, net, loader):
    with torch.no_grad():
        for ids, numbers, late in job.evaluate(loader):
            job.scored_clicks(net(ids, numbers), late)


def main():
    folder = pathlib.Path(sys.argv[1])
    train, tests = read(folder / "train.csv"), read(folder / "eval.csv")
    job = ty.job()
    net = WideAndDeep(job)
    optimizer = tyt.ServerOptimizer(net, job)
    loader = DataLoader(train, batch_sampler=job.batches(len(train)))
    test_loader = DataLoader(tests, batch_sampler=job.evaluation_batches(len(tests), 4096))
    looks_up = lambda batch: {"deep": batch[0], "wide": batch[0]}  # noqa: E731
    for ids, numbers, late in job.steps(loader, lambda: evaluate(job, net, test_loader), ids=looks_up):
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(net(ids, numbers), late)
        loss.backward()
        optimizer.step(loss)


main()
