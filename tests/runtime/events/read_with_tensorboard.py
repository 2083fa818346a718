#!/usr/bin/env python3
"""TensorBoard reads what runtime/events writes.

read_with_tensorboard.py WRITER VENV: makes the virtual environment VENV with the wheels pinned in
deploy/wheels.txt (kept for the next time; made anew when the list or the Python changes), lets WRITER write
events, and reads them with TensorBoard's EventAccumulator. Exits 77 when there are no wheels because
the package index cannot be reached.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(SOURCE / "deploy"))
from venv_of import make_venv  # noqa: E402

WHEELS = SOURCE / "deploy/wheels.txt"
SKIPPED = 77
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
scalars = {tag: [[e.wall_time, e.step, e.value] for e in accumulator.Scalars(tag)]
           for tag in accumulator.Tags()["scalars"]}
texts = {tag: [[e.step, e.tensor_proto.string_val[0].decode()] for e in accumulator.Tensors(tag)]
         for tag in accumulator.PluginTagToContent("text")}
print(json.dumps([scalars, texts]))
"""


def check(scalars, texts):
    # The text of each start: a table of which server holds which part.
    row = "| fc8_bia | 0 to 500 of 1,000, axis 0 | ps-0 | 2,000 |\n"
    assert texts == {"placement": [[1, row], [41, row]]}, texts
    assert set(scalars) == {"loss", "learning_rate", "examples_per_second", "accuracy"}, set(scalars)
    # The second start began at step 41: what the first one wrote from there on is gone.
    loss = scalars["loss"]
    assert [step for _, step, _ in loss] == list(range(1, 101)), [step for _, step, _ in loss]
    for wall_time, step, value in loss:
        first = step <= 40
        assert abs(value - (1 if first else 2) / step) <= 1e-6, (step, value)
        start = 1_700_000_000 if first else 1_700_000_100
        assert abs(wall_time - (start + step * 0.25)) < 1e-3, (step, wall_time)
    assert [(step, value) for _, step, value in scalars["accuracy"]] == [(100, 0.875)]
    assert all(abs(value - 0.001) < 1e-9 for _, _, value in scalars["learning_rate"])
    assert all(value == 2500.5 for _, _, value in scalars["examples_per_second"])


def main():
    writer, venv = sys.argv[1], pathlib.Path(sys.argv[2])
    python = make_venv(venv, WHEELS)
    if python is None:
        print("skipped: the Python package index cannot be reached, so there is no TensorBoard")
        return SKIPPED
    with tempfile.TemporaryDirectory() as job_dir:
        subprocess.run([writer, job_dir], check=True, timeout=60)
        files = sorted(os.listdir(os.path.join(job_dir, "events")))
        assert len(files) == 2, files
        read = subprocess.run([str(python), "-c", READER, os.path.join(job_dir, "events")],
                              check=True, timeout=300, stdout=subprocess.PIPE, text=True)
    check(*json.loads(read.stdout.splitlines()[-1]))
    print("TensorBoard read every scalar and text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
