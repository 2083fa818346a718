"""The program of bench/large_tables.py. Each step trains NEW ids that have never been there until a table has ROWS, then
those of an earlier step. Writes when each step ended into a file of each worker's."""
import array
import os
import random
import time

import trainyard as ty

NEW, ROWS, DIM = int(os.environ["NEW"]), int(os.environ["ROWS"]), 16


class Loader:
    """Batches of sample numbers, which mean nothing."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        yield from self.batches


def ids_of(step, rank, workers):
    growing = max(1, ROWS // (NEW * workers))
    of_step = step if step < growing else random.Random(step).randrange(growing)
    return array.array("Q", random.Random(f"{of_step} {rank}").randbytes(8 * NEW))


def main():
    job = ty.job()
    arrays = ty.Arrays(job, {"bias": array.array("f", [0.0])})
    gradients = array.array("f", [0.01]) * (NEW * DIM)
    with open(f"{os.environ['STEPS']}-{job.index}", "a", encoding="utf-8") as steps:
        for _ in job.steps(Loader(job.batches(1000))):
            job.push_rows("rows", ids_of(job.step, job.rank, job.workers), gradients)
            arrays.step({"bias": array.array("f", [0.0])}, 0.0)
            steps.write(f"{job.step} {time.time():.4f}\n")
            steps.flush()


main()
