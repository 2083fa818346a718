"""What a worker costs before and while it trains: the time from its program's start to the end of its first step, and
the most that it had resident (VmHWM), in the job of `training`.

The first step holds all that comes before it: libraries, data, the parameter servers, which start at the same time,
and the step itself.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import memory  # noqa: E402
import programs  # noqa: E402

BAR_FIRST_STEP = 0.5  # seconds
BAR_RESIDENT = 60e6  # bytes
LOOK = 0.002  # seconds


def times_of(pid):
    """Seconds since boot at which the process was started, and its processor time until now; None: it is gone.
    proc(5): fields 22, 14 and 15 of stat."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    tick = os.sysconf("SC_CLK_TCK")
    return int(fields[19]) / tick, (int(fields[11]) + int(fields[12])) / tick


def watch(run, folder):
    """By worker: seconds to the end of its first step, by the clock and of the processor, and bytes resident at most
    until the run ends."""
    first, most = {}, {}
    while run.poll() is None:
        for task, pid in memory.pids_of(folder).items():
            if not task.startswith("worker-"):
                continue
            most[task] = max(most.get(task, 0), memory.in_status(pid, "VmHWM") or 0)
            steps = folder / "tasks" / task / "positions.jsonl"
            if task not in first and steps.exists() and steps.stat().st_size > 0 and (times := times_of(pid)):
                first[task] = (time.clock_gettime(time.CLOCK_BOOTTIME) - times[0], times[1])
        time.sleep(LOOK)
    return {task: {"first_step_seconds": seconds, "cpu_seconds": cpu, "resident_bytes": most[task]}
            for task, (seconds, cpu) in first.items()}


def measure(bin_dir, out, data, rounds, steps):
    result = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=out) as scratch:
            scratch = pathlib.Path(scratch)
            file = scratch / "job.yaml"
            file.write_text(programs.job_text(steps))
            with subprocess.Popen([bin_dir / "trainyard", "run", "-f", file, "--dir", scratch / "run", "--volume",
                                   f"data={data}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as run:
                seen = watch(run, scratch / "run")
            if run.returncode != 0 or not seen:
                raise RuntimeError(f"the job ended with {run.returncode}, workers seen: {sorted(seen)}")
            result.append(seen)
    return result
