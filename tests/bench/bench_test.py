#!/usr/bin/env python3
"""bench/bench.py runs, checks its values, and writes what docs/results.md promises. Speed is not judged."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])


def main():
    if shutil.which("iperf3") is None:
        print("iperf3 is not installed")
        return 77
    with tempfile.TemporaryDirectory() as out:
        run = subprocess.run(
            [sys.executable, SOURCE / "bench" / "bench.py", "--bin", BIN, "--out", out, "--rounds", "1",
             "--steps", "2", "--only", "push-pull"], stdout=subprocess.PIPE, text=True, timeout=110)
        assert run.returncode == 0, f"exit code {run.returncode}"
        results = json.loads((pathlib.Path(out) / "results.json").read_text())
        cases = results["push_pull"]["cases"]
        assert sorted(cases) == ["large 1x1", "large 2x2", "small 1x1", "small 2x2"], sorted(cases)
        for name, runs in cases.items():
            assert runs[0]["bytes"] == 64 << 20 and runs[0]["milliseconds"] > 0, (name, runs)
        table = (pathlib.Path(out) / "results.md").read_text()
        assert table in run.stdout and "64 MiB, 1x1, against the bar" in table, table
    return 0


if __name__ == "__main__":
    sys.exit(main())
