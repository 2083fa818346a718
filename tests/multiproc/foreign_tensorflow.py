#!/usr/bin/env python3
"""TensorFlow's own parameter servers, by examples/foreign/tensorflow_ps.yaml through the binary.

foreign_tensorflow.py TRAINYARD VENV: VENV gets the wheels of deploy/wheels_tensorflow.txt. Exits 77 when
there are none because the package index cannot be reached.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "tests"))
from venv_of import make_venv  # noqa: E402

SKIPPED = 77


def processes_with(text):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


def main():
    trainyard, venv = sys.argv[1], pathlib.Path(sys.argv[2])
    python = make_venv(venv, SOURCE / "deploy/wheels_tensorflow.txt")
    if python is None:
        print("skipped: the Python package index cannot be reached, so there is no TensorFlow")
        return SKIPPED
    text = (SOURCE / "examples/foreign/tensorflow_ps.yaml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        # A copy of the script, so that its processes can be told from others.
        script = pathlib.Path(folder) / "tensorflow_ps.py"
        script.write_text((SOURCE / "examples/foreign/tensorflow_ps.py").read_text())
        job = pathlib.Path(folder) / "job.yaml"
        job.write_text(text.replace("command: [python3, examples/foreign/tensorflow_ps.py]",
                                    f"command: [{python}, {script}]"))
        run = pathlib.Path(folder) / "run"
        done = subprocess.run([trainyard, "run", "-f", str(job), "--dir", str(run)], cwd=folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800)
        logs = {task.name: (task / "task.log").read_text() for task in (run / "tasks").iterdir()}
        assert done.returncode == 0, (done.stdout, logs)
        assert done.stdout.splitlines()[-1].startswith("result: succeeded "), done.stdout
        for worker in ("worker-0", "worker-1"):
            assert "done: last loss " in logs[worker], logs[worker]
        for ps in ("ps-0", "ps-1"):
            assert "serving" in logs[ps] and "signal 15: stops" in logs[ps], logs[ps]
        status = json.loads((run / "status.json").read_text())["status"]
        assert status["ps"]["succeeded"] == 2 and status["restarts"] == 0, status
        last = json.loads((run / "traffic.jsonl").read_text().splitlines()[-1])
        assert all(ps["receivedBytes"] > 0 for ps in last["ps"]), last
        assert processes_with(folder) == [], "left running"
    print("TensorFlow's parameter servers served and were ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
