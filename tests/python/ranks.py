"""Starts ranks as processes: for tests of groups.

A test file runs its cases in processes of itself: Ranks starts `FILE --case NAME` once for each rank, with the
variables that a launcher sets. Importing this finds the package.
"""
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import side_by_side

SKIPPED = 77
LIMIT_SECONDS = 120
SOURCE = pathlib.Path(os.environ.get("TRAINYARD_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(SOURCE / "python"))


def python_path():
    """Where programs find the package."""
    return os.pathsep.join([str(SOURCE / "python"), os.environ.get("PYTHONPATH", "")])


def find_library():
    """Where libtrainyard.so is; None where nobody said."""
    named = os.environ.get("TRAINYARD_LIBRARY")
    programs = os.environ.get("TRAINYARD_BIN")
    if named or not programs:
        return named
    return str(pathlib.Path(programs).parent / "lib/libtrainyard.so")


def expect(kind, function, *words):
    """The error, which must be of the kind and have all of the words."""
    try:
        function()
    except kind as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return error
    raise AssertionError(f"{kind} was not raised")


_given_ports = set()
_giving_ports = threading.Lock()


def free_port():
    """One whose successor is free too, as MASTER_PORT needs it; above those that the kernel gives to others. None is given
    twice: ranks of another case may be about to listen there."""
    while True:
        port = random.randrange(61000, 65000, 2)
        with _giving_ports:
            if port in _given_ports:
                continue
            _given_ports.add(port)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                continue


class Ranks:
    """Processes of one group. All are killed at the end."""

    def __init__(self, script, case, count, **environment):
        self.folder = tempfile.TemporaryDirectory(prefix="ty-ranks-")
        self.case = case
        self.end = time.monotonic() + LIMIT_SECONDS
        port = free_port()
        self.processes, self.logs = [], []
        for rank in range(count):
            log = open(f"{self.folder.name}/{rank}.log", "w+b")
            values = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank),
                      "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                      "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1", "TMPDIR": self.folder.name}
            library = find_library()
            if library:
                values["TRAINYARD_LIBRARY"] = library
            values.update(environment)
            self.logs.append(log)
            self.processes.append(subprocess.Popen(
                [sys.executable, script, "--case", case], env=values, stdout=log, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        for log in self.logs:
            log.close()
        self.folder.cleanup()

    def output(self, rank):
        """What a rank has printed so far."""
        return pathlib.Path(self.logs[rank].name).read_text(errors="replace")

    def wait_for(self, rank, words):
        """Waits until a rank has printed `words`."""
        while words not in self.output(rank):
            self._check(rank, f"printed {words!r}")
            time.sleep(0.02)

    def wait_until_asleep(self, rank):
        """Until a rank's main thread waits for something, or is gone."""
        while self._is_running(rank):
            self._check(None, f"rank {rank} waited for anything")
            time.sleep(0.001)

    def _is_running(self, rank):
        stat = pathlib.Path(f"/proc/{self.processes[rank].pid}/stat").read_text()
        return stat.rpartition(") ")[2].startswith("R")

    def wait(self, rank):
        """The exit status of a rank."""
        while self.processes[rank].poll() is None:
            self._check(None, f"rank {rank} ended")
            time.sleep(0.01)
        return self.processes[rank].returncode

    def _check(self, rank, what):
        if time.monotonic() > self.end:
            raise AssertionError(f"timed out after {LIMIT_SECONDS} s before {what}: {self.outputs()}")
        if rank is not None and self.processes[rank].poll() is not None and what.split("'")[1] not in self.output(rank):
            raise AssertionError(f"rank {rank} ended before it {what}: {self.outputs()}")

    def outputs(self):
        return "\n".join(f"{self.case}, rank {rank}:\n{self.output(rank)}" for rank in range(len(self.logs)))


class RankTest(unittest.TestCase):
    """Runs cases in ranks of their own."""

    script = ""

    def run_case(self, case, count, **environment):
        """All ranks carry the case out and end well."""
        with Ranks(self.script, case, count, **environment) as ranks:
            for rank in range(count):
                status = ranks.wait(rank)
                self.assertEqual(status, 0, f"rank {rank} ended with {status}\n{ranks.outputs()}")


def main(script, cases, test_case, at_once=1):
    """Runs a case where this process is a rank, else the tests, so many of them at a time."""
    if len(sys.argv) > 2 and sys.argv[1] == "--case":
        cases[sys.argv[2]]()
        return 0
    library = find_library()
    if not library or not os.path.exists(library):
        print("skipped: libtrainyard.so is not built: TRAINYARD_LIBRARY or TRAINYARD_BIN says where")
        return SKIPPED
    test_case.script = script
    side_by_side.main(at_once, module=test_case.__module__)
    return 0
