"""The long-running programs of a cluster, children of its first process."""
import os
import pathlib
import subprocess
import time


class Broken(Exception):
    """The cluster did not come up, or a part of it ended by itself."""


class Daemons:
    """Starts programs with their output in log/NAME.log and their process ids in pids/NAME."""

    def __init__(self, published):
        self.published = pathlib.Path(published)
        for name in ("log", "pids", "hold"):
            (self.published / name).mkdir(exist_ok=True)
        self.commands = {}
        self.running = {}  # process id -> name
        self.waiting = set()  # killed from outside, not started again yet

    def start(self, name, *command, **more):
        self.commands[name] = (command, more)
        with open(self.published / "log" / f"{name}.log", "ab") as log:
            child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log,
                                     stderr=subprocess.STDOUT, **more)
        self.running[child.pid] = name
        (self.published / "pids" / name).write_text(str(child.pid))
        child.returncode = 0  # collected by tick(), not by the destructor of Popen

    def tick(self):
        """Collects ended processes. One of ours that was killed from outside is started again, once no
        file hold/NAME says to wait; one that ended by itself breaks the cluster."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            name = self.running.pop(pid, None)
            if name is None:
                continue  # an orphan that fell to the first process
            if not os.WIFSIGNALED(status):
                raise Broken(f"{name} ended with code {os.waitstatus_to_exitcode(status)}: {self.last_line(name)}")
            self.waiting.add(name)
        for name in sorted(self.waiting):
            if not (self.published / "hold" / name).exists():
                self.waiting.discard(name)
                command, more = self.commands[name]
                self.start(name, *command, **more)

    def last_line(self, name):
        text = (self.published / "log" / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return (text.strip().splitlines() or ["no output"])[-1][:400]

    def wait_for(self, what, condition, seconds=180):
        """Waits until `condition()` is true; an OSError in it counts as not yet."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tick()
            try:
                if condition():
                    return
                why = "not yet"
            except OSError as error:
                why = str(error)
            time.sleep(0.05)
        raise Broken(f"timed out after {seconds:g} s waiting for {what} ({why}); logs: {self.published}/log")
