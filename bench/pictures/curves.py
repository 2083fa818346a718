"""What a run's records say of its convergence. Pure."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import run_records  # noqa: E402


def clock(records, waits_for_evaluations):
    """[(step, seconds since training began)] of the chief's records. Where everybody waits while the chief computes a
    score, such times do not count; elsewhere the others go on meanwhile."""
    steps = run_records.training(records)
    if waits_for_evaluations:
        return [(r["step"], r["train_seconds"]) for r in steps]
    began = steps[0]["time"] - steps[0]["train_seconds"]
    return [(r["step"], r["time"] - began) for r in steps]


def at(clock_, step):
    """Seconds at which `step` was reached, between the records beside it."""
    before = (0, 0.0)
    for place in clock_:
        if place[0] >= step:
            share = (step - before[0]) / (place[0] - before[0])
            return before[1] + share * (place[1] - before[1])
        before = place
    return before[1]


def curve(records, images_a_step, waits_for_evaluations):
    """[{updates, images, seconds, accuracy}] for each evaluation."""
    times = clock(records, waits_for_evaluations)
    return [{"updates": r["step"], "images": r["step"] * images_a_step, "seconds": round(at(times, r["step"]), 2),
             "accuracy": round(r["accuracy"], 4)} for r in records if "accuracy" in r]


def reached(points, target):
    """The first of them that has it, or None."""
    return next((point for point in points if point["accuracy"] >= target), None)
