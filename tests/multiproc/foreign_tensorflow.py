#!/usr/bin/env python3
"""TensorFlow's own parameter servers, by the examples/foreign/tensorflow_*.yaml through the binary; and what they send
and receive, as the agents count it, beside what the placement of the variables implies.

foreign_tensorflow.py TRAINYARD VENV: VENV gets the wheels of deploy/wheels_tensorflow.txt. Exits 77 when
there are none because the package index cannot be reached.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(SOURCE / "deploy"))
from venv_of import make_venv  # noqa: E402

SOON = SOURCE / "tests/multiproc/tensorflow_soon.py"
SKIPPED = 77
STEPS = 200 if "TRAINYARD_LONG" in os.environ else 100
REPLICA_STEPS = 200
HANGS_SECONDS = 400
DATA = "/usr/share/datasets/fashion-mnist"


def processes_with(text):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


def trained(trainyard, job, run, *more):
    """What the command printed, and each task's log; a job that does not end is stopped, and fails with both."""
    command = [trainyard, "run", "-f", str(job), "--dir", str(run), *more]
    with subprocess.Popen(command, cwd=job.parent, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        try:
            printed, late = process.communicate(timeout=HANGS_SECONDS)[0], ""
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            printed, late = process.communicate(timeout=HANGS_SECONDS)[0], "stopped: it did not end"
    logs = {task.name: (task / "task.log").read_text() for task in (run / "tasks").iterdir()}
    assert process.returncode == 0 and not late, (late, printed, {task: log[-2000:] for task, log in logs.items()})
    return printed, logs


def serves(trainyard, python):
    text = (SOURCE / "examples/foreign/tensorflow_ps.yaml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        # A copy of the script, so that its processes can be told from others.
        script = pathlib.Path(folder) / "tensorflow_ps.py"
        script.write_text((SOURCE / "examples/foreign/tensorflow_ps.py").read_text())
        job = pathlib.Path(folder) / "job.yaml"
        job.write_text(text.replace("command: [python3, examples/foreign/tensorflow_ps.py]",
                                    f"command: [{python}, {SOON}, {script}]"))
        run = pathlib.Path(folder) / "run"
        printed, logs = trained(trainyard, job, run)
        assert printed.splitlines()[-1].startswith("result: succeeded "), printed
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


# Of one step of one worker of examples/foreign/tensorflow_fashion.py: each weight goes to the worker, each gradient
# comes back, 4 bytes a number. Round robin begins with the step counter, on ps-0.
LAYERS = (784 * 400, 400 * 200, 200 * 10)
BYTES = {1: {"ps-0": 4 * (LAYERS[1] + 10), "ps-1": 4 * (LAYERS[0] + LAYERS[2])},
         2: {"ps-0": 2 * (sum(LAYERS) + 10), "ps-1": 2 * (sum(LAYERS) + 10)}}


def traffic(trainyard, python, folder, partitions):
    """The directory of a run, whose servers' bytes per step are as the placement implies."""
    run = folder / ("partitioned" if partitions > 1 else "round-robin")
    job = folder / f"{run.name}.yaml"
    text = (SOURCE / "examples/foreign/tensorflow_fashion.yaml").read_text()
    job.write_text(text.replace("python3, examples", f"{python}, {SOON}, {SOURCE}/examples")
                   .replace("name: tensorflow-fashion", f"name: {run.name}")
                   .replace("- --ps_hosts", f"- --steps={STEPS}\n              - --partitions={partitions}\n"
                            "              - --ps_hosts"))
    _, logs = trained(trainyard, job, run, "--volume", f"data={DATA}")
    steps = sum(int(re.search(r"done: (\d+) steps", logs[worker])[1]) for worker in ("worker-0", "worker-1"))
    last = json.loads((run / "traffic.jsonl").read_text().splitlines()[-1])
    for server in last["ps"]:
        wanted = BYTES[partitions][server["task"]]
        for way in ("receivedBytes", "transmittedBytes"):
            got = server[way] / steps
            print(f"{run.name} {server['task']} {way} per step: {got:,.0f}, placed {wanted:,} ({got / wanted - 1:+.2%})")
            assert abs(got / wanted - 1) < 0.05, (last, steps, logs)
    return run


def counts(trainyard, python):
    with tempfile.TemporaryDirectory() as folder:
        runs = [traffic(trainyard, python, pathlib.Path(folder), partitions) for partitions in (1, 2)]
        shown = subprocess.run([trainyard, "report", *runs, "--text"], cwd=folder, text=True, capture_output=True)
        assert shown.returncode == 0, shown.stderr
        # Side by side: how much of all traffic each server has.
        shares = {(run, ps): float(share) for run, ps, share in
                  re.findall(r"(?m)^(round-robin|partitioned) +(ps-\d) .* ([\d.]+) %$", shown.stdout)}
        print(shown.stdout)
        assert 78 < shares["round-robin", "ps-1"] < 82, shown.stdout
        assert 49 < shares["partitioned", "ps-1"] < 51, shown.stdout


def supervised(trainyard, python, folder, sync):
    """A script under tf.train.Supervisor, with `sync` by SyncReplicasOptimizer; it is run as it is, flags and all."""
    run = folder / ("sync-replicas" if sync else "supervisor")
    job = folder / f"{run.name}.yaml"
    more = f"- --train_steps={REPLICA_STEPS}\n" + "              - --sync_replicas\n" * sync
    job.write_text((SOURCE / "examples/foreign/tensorflow_replica.yaml").read_text()
                   .replace("python3, examples", f"{python}, {SOURCE}/examples")
                   .replace("name: tensorflow-replica", f"name: {run.name}")
                   .replace("- --log_device_placement\n", f"- --log_device_placement\n              {more}"))
    checkpoints = folder / f"{run.name}-checkpoints"
    checkpoints.mkdir()
    printed, logs = trained(trainyard, job, run, "--volume", f"train={checkpoints}")
    ends = {task: log[-2000:] for task, log in logs.items()}
    assert printed.splitlines()[-1].startswith("result: succeeded "), printed
    steps = [re.findall(r"training step \d+ done \(global step: (\d+)\), loss ([\d.]+)", logs[worker])
             for worker in ("worker-0", "worker-1")]
    print(f"{run.name}: {[len(one) for one in steps]} gradients, the chief's last step and loss {steps[0][-1]}")
    # A gradient makes a step, or two do, of which some come too late and are dropped. A few are on their way at the
    # end, or not printed any more.
    least, most = (2 * REPLICA_STEPS - 6, 4 * REPLICA_STEPS) if sync else (REPLICA_STEPS - 6, REPLICA_STEPS + 6)
    assert least <= sum(map(len, steps)) <= most, (steps, ends)
    assert int(steps[0][-1][0]) >= REPLICA_STEPS and float(steps[0][-1][1]) < 0.5, steps
    assert list(checkpoints.glob("model.ckpt-*.index")), "the Supervisor saved nothing"
    assert processes_with(str(folder)) == [], "left running"


def main():
    trainyard, venv = sys.argv[1], pathlib.Path(sys.argv[2])
    python = make_venv(venv, SOURCE / "deploy/wheels_tensorflow.txt")
    if python is None:
        print("skipped: the Python package index cannot be reached, so there is no TensorFlow")
        return SKIPPED
    serves(trainyard, python)
    counts(trainyard, python)
    with tempfile.TemporaryDirectory() as folder:
        for sync in (False, True):
            supervised(trainyard, python, pathlib.Path(folder), sync)
    return 0


if __name__ == "__main__":
    sys.exit(main())
