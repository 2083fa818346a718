"""Tests of torch's distributed_test.py, each in a process of its own that is forked from one with torch loaded."""
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import unittest

FAILED, LEFT_OUT = 1, 77


def load(backend):
    """The class of the tests for a backend. Torch's decorators leave out what is not for the backend they are told of
    as the module is imported: it is gloo then, so that what they keep for gloo is run over any backend."""
    os.environ["BACKEND"] = "gloo"
    from torch.testing._internal.distributed import distributed_test as module
    if backend != "gloo":
        import trainyard.torch  # noqa: F401
        module.BACKEND = os.environ["BACKEND"] = backend

    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    return Suite


def serve(pipe, backend, size):
    """Sends the names of all tests, then for each (name, seconds) that comes (how it went, its output or the reason);
    until None comes."""
    # The module looks at these as it is imported.
    os.environ.update(WORLD_SIZE=str(size), TEMP_DIR=tempfile.gettempdir(), OMP_NUM_THREADS="1")
    suite = load(backend)
    pipe.send(unittest.TestLoader().getTestCaseNames(suite))
    for name, limit in iter(pipe.recv, None):
        pipe.send(outcome(suite, name, limit))


def outcome(suite, name, limit):
    """("passed" | "failed" | "left out", the last lines of its output, or why it is left out)"""
    with tempfile.TemporaryDirectory(prefix="trainyard-torch-") as folder, tempfile.TemporaryFile("w+") as output:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            run(suite, name, folder, output)
        status = wait(child, time.monotonic() + limit)
        end_session(child)
        output.seek(0)
        text = output.read()
    if status is None:
        return "failed", f"not over after {limit} s\n{text[-2000:]}"
    if status == LEFT_OUT:
        return "left out", text.splitlines()[-1]
    return "failed" if status else "passed", text[-3000:]


def run(suite, name, folder, output):
    """The forked process: one test with its ranks. Does not return."""
    os.setsid()
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite(name))
    if result.skipped:
        print("\n" + result.skipped[0][1])
    sys.stdout.flush()
    os._exit(LEFT_OUT if result.skipped else 0 if result.wasSuccessful() else FAILED)


def wait(child, end):
    """The exit status, or None of one that is not over in time."""
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return FAILED if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def end_session(child):
    """What a test leaves running would take time from the next."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
