"""Runs that learn Fashion-MNIST until they have an accuracy."""

import gzip
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time

import programs
import run_records

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
EVALUATION = 5000  # images; all 10,000 would take the chief a second each time
LIMIT = 900  # seconds of one run; against hangs only
VOLUMES = [{"name": "data", "mountPath": "/data"}, {"name": "evaluation", "mountPath": "/evaluation"}]
DATA = {"format": "idx", "images": "/data/train-images-idx3-ubyte.gz", "labels": "/data/train-labels-idx1-ubyte.gz",
        "evalImages": "/evaluation/t10k-images-idx3-ubyte.gz", "evalLabels": "/evaluation/t10k-labels-idx1-ubyte.gz"}


def volumes(folder):
    """The flags of `trainyard run` for VOLUMES, made below `folder`: the first EVALUATION images of those for tests."""
    made = folder / "evaluation"
    made.mkdir(parents=True, exist_ok=True)
    for name, header in (("t10k-images-idx3-ubyte.gz", 16), ("t10k-labels-idx1-ubyte.gz", 8)):
        data = gzip.decompress((FASHION / name).read_bytes())
        item = (len(data) - header) // 10000
        count = struct.pack(">I", EVALUATION)
        (made / name).write_bytes(gzip.compress(data[:4] + count + data[8:header] + data[header:header + item * EVALUATION],
                                                mtime=0))
    return ["--volume", f"data={FASHION}", "--volume", f"evaluation={made}"]


def train(command, folder, log, target, after, environment=None):
    """Runs `command`, a `trainyard run` into `folder`, to its end, or until `after` evaluations beyond the one that has
    `target`; its records."""
    shutil.rmtree(folder, ignore_errors=True)
    with open(log, "w") as output:
        running = subprocess.Popen([*command, "--dir", folder], stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})})
        with programs.ended(running):
            _watch(running, folder, target, after)
    found = run_records.read(folder)
    if not any("accuracy" in r for r in found):
        raise RuntimeError(f"{folder.name} failed:\n{log.read_text()[-2000:]}")
    return found


def _watch(running, folder, target, after):
    end, asked = time.monotonic() + LIMIT, False
    while running.poll() is None:
        scores = [r["accuracy"] for r in run_records.read(folder) if "accuracy" in r]
        first = next((i for i, score in enumerate(scores) if score >= target), len(scores))
        if not asked and (len(scores) - first > after or time.monotonic() > end):
            running.send_signal(signal.SIGINT)
            asked = True
        time.sleep(0.2)
