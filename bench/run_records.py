"""What the records of a run (metrics.jsonl) say of its steps."""

import json


def read(folder, file="metrics.jsonl"):
    """The records so far; none where the run has not begun. Each was written whole."""
    path = folder / file
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def training(records):
    """Those of steps."""
    return [r for r in records if "train_seconds" in r]


def step_seconds(records):
    """From the end of the first step to the last one recorded."""
    first, *_, last = training(records)
    return (last["train_seconds"] - first["train_seconds"]) / (last["step"] - first["step"])
