#!/usr/bin/env python3
"""bench/experiment runs, measures what it says, and takes everything down again. How near the times come
to the cost model is not judged: this machine does other things too."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])


def namespaces_of(pid):
    return [path.name for path in pathlib.Path("/run/netns").glob(f"trainyard-{pid}-*")]


def main():
    with tempfile.TemporaryDirectory() as out:
        running = subprocess.Popen(
            [sys.executable, "-B", SOURCE / "bench" / "experiment" / "experiment.py", "--bin", BIN,
             "--out", out, "--quick"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        printed, errors = running.communicate(timeout=550)
        if running.returncode == 77:
            print("skipped:", errors.strip())
            return 77
        assert running.returncode == 0, errors + printed
        assert not namespaces_of(running.pid), namespaces_of(running.pid)
        results = json.loads((pathlib.Path(out) / "results.json").read_text())
        runs = results["links"]["runs"]
        assert [r["placement"] for r in runs] == ["roundrobin", "fixedsize", "balanced"], runs
        for run in runs:
            # Seven workers' gradients cannot pass a link faster than it is.
            assert run["measured_seconds"] > 0.9 * run["communication_seconds"], run
        step = {run["placement"]: run["communication_seconds"] for run in runs}
        assert step["roundrobin"] > step["balanced"], step
        page = (pathlib.Path(out) / "mnist.html").read_text()
        assert all(f"mnist-{placement}" in page for placement in step), page[:1000]
        assert (pathlib.Path(out) / "results.md").read_text() in printed
    return 0


if __name__ == "__main__":
    sys.exit(main())
