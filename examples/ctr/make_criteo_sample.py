#!/usr/bin/env python3
"""Makes files of the form of Criteo's clicks, to try examples/ctr/criteo.yaml with.

    python3 examples/ctr/make_criteo_sample.py DIR [--samples N] [--eval N] [--seed N]

Writes DIR/train.txt and DIR/eval.txt. What is in them is made up: nothing in them was ever shown to anybody or
clicked on, and figures of a job over them say nothing of Criteo's data. Each value of a category has a weight, and so
has each integer; whoever knows them would know the probability of a click.
"""
import argparse
import math
import pathlib
import random

INTEGERS, CATEGORIES = 13, 26
# Different values of each category: few of some, many of others, as in the data itself.
SIZES = [10 ** (1 + column % 4) for column in range(CATEGORIES)]


class Truth:
    """What values mean: drawn once, the same for both files."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.values = [[draw.getrandbits(32) for _ in range(size)] for size in SIZES]
        self.weights = [[draw.gauss(0, 0.35) for _ in range(size)] for size in SIZES]
        self.integers = [draw.gauss(0, 0.12) for _ in range(INTEGERS)]

    def line(self, draw):
        logit = -1.2
        fields = []
        for weight in self.integers:
            value = int(draw.expovariate(1) ** 3) - (draw.random() < 0.02)
            missing = draw.random() < 0.1
            logit += 0 if missing else weight * math.log1p(max(value, 0))
            fields.append("" if missing else str(value))
        for values, weights in zip(self.values, self.weights):
            # The first values are in many of the lines.
            which = int(len(values) * draw.random() ** 3)
            missing = draw.random() < 0.05
            logit += 0 if missing else weights[which]
            fields.append("" if missing else f"{values[which]:08x}")
        clicked = draw.random() < 1 / (1 + math.exp(-logit))
        return "\t".join([str(int(clicked)), *fields]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=100_000, help="to train on")
    parser.add_argument("--eval", type=int, default=10_000, help="to evaluate on")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    truth = Truth(options.seed)
    options.dir.mkdir(parents=True, exist_ok=True)
    for number, (name, samples) in enumerate((("train.txt", options.samples), ("eval.txt", options.eval))):
        draw = random.Random(f"{options.seed} {number}")
        with open(options.dir / name, "w", encoding="ascii") as file:
            file.writelines(truth.line(draw) for _ in range(samples))
    print(f"{options.dir}: {options.samples} made-up samples to train on, {options.eval} to evaluate on")


if __name__ == "__main__":
    main()
