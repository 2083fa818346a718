#!/usr/bin/env python3
"""Fits a sum of rows of an embedding table to samples, without any framework. TABLE says what it shall do otherwise, as
names with commas:

    ahead      it says a batch ahead which rows it will look up
    wrong      the same, and names other rows than it looks up
    hold       worker-1, in step 40, between its rows and their gradients: writes the file "held" into the folder HOLD,
               once, and waits for "go"
    hold-kept  the same in the first step after a checkpoint of a step that was taken
    slow       each step takes a while, until there is "go"
    many       each step trains 2,000 rows more
    nan        worker-1's gradient of step 30 is no number
    bad-id, bad-table, outside   what must not be
    twin       the same steps are made beside it, and the last rows are compared
"""
import array
import os

import holds
import trainyard as ty

SAMPLES, EVALUATED, RATE = 640, 64, 0.5
WANTED = set(filter(None, os.environ.get("TABLE", "").split(",")))


def ids_of(number):
    """Some come often, one of each sample only there; one twice in a sample."""
    return [number % 37, 1000 + number % 11, (1 << 40) + number, number % 37]


def factor(number):
    return (number % 5) / 5


def wanted(number):
    return 0.1 * (number % 37) - 0.2 * (number % 11) + 0.3 * factor(number)


class Loader:
    """Batches of sample numbers."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        yield from self.batches


def predict(rows, number, bias):
    return bias + sum(row[0] + row[1] * factor(number) for row in rows)


def errors_of(numbers, rows, bias):
    """By sample: prediction less what is wanted; four rows each."""
    return [predict(rows[4 * i:4 * i + 4], number, bias) - wanted(number) for i, number in enumerate(numbers)]


def look_up(job, numbers):
    ids = [each for number in numbers for each in ids_of(number)]
    if "bad-id" in WANTED and job.step == 5:
        ids[0] = 0.5
    return ids, job.rows("faults" if "bad-table" in WANTED else "rows", ids).tolist()


def evaluate(job, loader, bias, twin):
    for numbers in job.evaluate(loader):
        ids, rows = look_up(job, numbers)
        errors = errors_of(numbers, rows, bias[0])
        job.scored(sum(abs(error) < 0.15 for error in errors), len(errors), sum(error ** 2 / 2 for error in errors))
        if "twin" in WANTED:
            away = max(abs(a - b) for each, row in zip(ids, rows) for a, b in zip(row, twin.get(each, (0, 0))))
            print(f"twin differs by {max(away, abs(bias[0] - twin['bias'][0])):.2g}", flush=True)


def gradients_of(job, numbers, errors):
    gradients = array.array("f")
    for number, error in zip(numbers, errors):
        gradients.extend([error, error * factor(number)] * 4)
    if "nan" in WANTED and job.index == 1 and job.step == 30:
        gradients[3] = float("nan")
    return gradients


def take_twins_step(twin, numbers, ids, gradients, errors):
    rate = RATE / len(numbers)
    for i, each in enumerate(ids):
        row = twin.setdefault(each, [0.0, 0.0])
        row[0] -= rate * gradients[2 * i]
        row[1] -= rate * gradients[2 * i + 1]
    twin["bias"][0] -= rate * sum(errors)


def ahead(numbers):
    moved = 3 if "wrong" in WANTED else 0
    return {"rows": [each + moved for number in numbers for each in ids_of(number)]}


def main():
    job = ty.job()
    bias, twin = array.array("f", [0.0]), {"bias": [0.0]}
    arrays = ty.Arrays(job, {"bias": bias})
    if "outside" in WANTED:
        job.rows("rows", [1])
    tests = Loader(job.evaluation_batches(EVALUATED, 16))
    looks = ahead if WANTED & {"ahead", "wrong"} else None
    for numbers in job.steps(Loader(job.batches(SAMPLES)), lambda: evaluate(job, tests, bias, twin), ids=looks):
        ids, rows = look_up(job, numbers)
        holds.in_step(job, WANTED, 40)
        errors = errors_of(numbers, rows, bias[0])
        gradients = gradients_of(job, numbers, errors)
        job.push_rows("rows", ids, gradients)
        if "many" in WANTED:
            first = (2 << 40) + 2000 * (2 * job.step + job.rank)
            job.push_rows("rows", range(first, first + 2000), array.array("f", [0.0] * 4000))
        if "twin" in WANTED:
            # Both halves of a push count.
            take_twins_step(twin, numbers, ids, gradients, errors)
        arrays.step({"bias": array.array("f", [sum(errors)])}, sum(error ** 2 / 2 for error in errors))
    print(f"ended {job.ending.name}", flush=True)


main()
