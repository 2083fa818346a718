"""Tasks of one job that are started by hand, and what they leave in their folder."""
import json
import os
import pathlib
import subprocess
import time


class HandTasks:
    """Processes by the name of their task; `folder` has the logs and the run, `patience` is seconds."""

    def __init__(self, folder, patience):
        self.patience = patience
        self.folder = pathlib.Path(folder)
        self.processes = {}

    def launch(self, name, command, step_ms, file=None):
        """Steps take so long at least, so that the task can be disturbed on its way; with `file` while there is one."""
        slow = f"worker.compute=delay({step_ms})" + (f",while={file}" if file else "")
        environment = dict(os.environ, TRAINYARD_FAILPOINTS=slow)
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def wait(self, name):
        return self.processes[name].wait(timeout=self.patience)

    def positions(self, name):
        try:
            lines = (self.folder / "run/tasks" / name / "positions.jsonl").read_text().splitlines()
        except OSError:
            return []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def reach(self, name, step):
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            records = self.positions(name)
            if records and records[-1]["step"] >= step:
                return
            assert all(p.poll() is None for p in self.processes.values()), self.logs()
            time.sleep(0.05)
        raise AssertionError(f"timed out after {self.patience} s waiting for {name} to reach step {step}: {self.logs()}")

    def logs(self):
        return "\n".join(p.name + ":\n" + p.read_text() for p in sorted(self.folder.glob("*.log")))

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
