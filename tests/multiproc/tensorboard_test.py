#!/usr/bin/env python3
"""TensorBoard shows the events of a run: its scalars, and the placement as a text and as a graph.

tensorboard_test.py TRAINYARD VENV: VENV gets the wheels of deploy/wheels.txt. Exits 77 when there are none because
the package index cannot be reached.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "deploy"))
from venv_of import make_venv  # noqa: E402

SKIPPED = 77
# Against hangs only.
SECONDS = 300
JOB = """apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: shown}
spec:
  ps: {replicas: 2}
  worker: {replicas: 2}
  training:
    model: {name: mlp, hidden: [32]}
    data: {format: synthetic, shape: [8, 8, 1], classes: 4, samples: 512, evalSamples: 64}
    batchSize: 16
    steps: 40
    evaluateEverySteps: 20
    optimizer: {name: SGD, learningRate: 0.01}
"""


def train(trainyard, folder):
    """The run directory of a finished job."""
    job = folder / "job.yaml"
    job.write_text(JOB)
    done = subprocess.run([trainyard, "run", "-f", job, "--dir", folder / "run"], cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
    assert done.returncode == 0, done.stdout
    return folder / "run"


class TensorBoard:
    """The server, until the end of a `with`."""

    def __init__(self, python, events, log):
        self.log = log
        with log.open("wb") as output:
            self.child = subprocess.Popen([python, "-m", "tensorboard.main", "--logdir", events, "--port", "0",
                                           "--host", "127.0.0.1", "--load_fast", "false"],
                                          stdout=output, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait(60)

    def wait(self, what, condition):
        end = time.monotonic() + SECONDS
        while not (found := condition()):
            assert self.child.poll() is None, f"no {what}: {self.log.read_text()}"
            assert time.monotonic() < end, f"timed out after {SECONDS} s waiting for {what}: {self.log.read_text()}"
            time.sleep(0.2)
        return found

    def ask(self, path, parse=True, **parameters):
        """The answer in JSON, or its text; nothing while there is none."""
        url = self.wait("address", lambda: re.search(r"at (http://127\.0\.0\.1:\d+)/", self.log.read_text()))[1]
        try:
            with urllib.request.urlopen(f"{url}/data/{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
                return json.load(answer) if parse else answer.read().decode()
        except urllib.error.URLError:
            return None

    def ask_text(self, path, **parameters):
        return self.ask(path, parse=False, **parameters)


def check(board, run):
    tags = board.wait("run", lambda: board.ask("plugin/scalars/tags"))
    assert list(tags) == ["."], tags
    assert {"loss", "accuracy", "learning_rate", "examples_per_second"} <= set(tags["."]), tags
    # [wall time, step, value]
    shown = {tag: board.ask("plugin/scalars/scalars", run=".", tag=tag) for tag in ("loss", "accuracy")}
    written = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for tag, points in shown.items():
        wanted = {record["step"]: record[tag] for record in written if tag in record}
        found = {step: value for _, step, value in points}
        assert set(found) == set(wanted), (tag, found, wanted)
        assert all(abs(found[step] - wanted[step]) < 1e-5 for step in wanted), (tag, found, wanted)
    assert [step for _, step, _ in shown["accuracy"]] == [20, 40], shown
    texts = board.wait("text", lambda: board.ask("plugin/text/text", run=".", tag="placement"))
    page = texts[0]["text"]  # as HTML
    assert "<table>" in page, page
    assert {"ps-0", "ps-1"} <= set(re.findall(r"ps-\d", page)), page
    check_graph(board, run)
    return len(shown["loss"])


def check_graph(board, run):
    """Each part of a variable is a node on the server that holds it."""
    assert board.wait("graph", lambda: board.ask("plugin/graphs/info"))["."]["run_graph"]
    text = board.ask_text("plugin/graphs/graph", run=".", limit_attr_size=1024, large_attrs_key="_too_large_attrs")
    nodes = [block for block in re.split(r"^node \{$", text, flags=re.M)[1:] if 'op: "VariableV2"' in block]
    found = {re.search(r'name: "([^"]+)"', block)[1]: re.search(r'device: "([^"]+)"', block)[1] for block in nodes}
    assert set(found.values()) == {"/job:ps/task:0", "/job:ps/task:1"}, found
    page = (run / "report.html").read_text()
    for name in found:
        assert name.split("/")[0] in page, (name, page)
    assert 'device: "/job:worker"' in text, text
    inputs = re.findall(r'^  input: "([^"]+)"', text, flags=re.M)
    assert sorted(inputs) == sorted(found), (inputs, found)


def main():
    trainyard, venv = sys.argv[1], pathlib.Path(sys.argv[2])
    python = make_venv(venv, SOURCE / "deploy/wheels.txt")
    if python is None:
        print("skipped: the Python package index cannot be reached, so there is no TensorBoard")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        run = train(trainyard, pathlib.Path(folder))
        with TensorBoard(python, run / "events", pathlib.Path(folder) / "log") as board:
            points = check(board, run)
    print(f"TensorBoard showed {points} losses and the placement")
    return 0


if __name__ == "__main__":
    sys.exit(main())
