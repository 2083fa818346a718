"""Tests of torch's distributed_test.py, each in a process of its own that is forked from one with torch loaded."""
import dataclasses
import functools
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

FAILED, LEFT_OUT = 1, 77

# Their bodies have a way for gloo and one for nccl, and none for others.
AS_GLOO = ("test_accumulate_gradients_no_sync",)


def load(backend):
    """The class of the tests for a backend. Torch's decorators leave out what is not for the backend they are told of
    as the module is imported: it is gloo then, so that what they keep for gloo is run over any backend."""
    sys.modules.setdefault("expecttest", stand_in_expecttest())
    # The decorators look at these too.
    os.environ.update(BACKEND="gloo", INIT_METHOD="file:///")
    from torch.testing._internal.distributed import distributed_test as module
    if module.torch.__version__.startswith("1."):
        mend_shards()
    if backend != "gloo":
        import trainyard.torch  # noqa: F401
        module.BACKEND = os.environ["BACKEND"] = backend

    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            module.INIT_METHOD = os.environ["INIT_METHOD"]
            self._start_processes(multiprocessing.get_context("fork").Process)

        def run_test(self, name, pipe):
            """In a rank whose process group is made."""
            if name.startswith(AS_GLOO):
                module.BACKEND = "gloo"
            super().run_test(name, pipe)

    return Suite


def stand_in_expecttest():
    """What torch's helpers for tests import, and these tests do not use."""
    module = types.ModuleType("expecttest")
    module.ACCEPT, module.TestCase = False, unittest.TestCase
    return module


def mend_shards():
    """torch 1.13 has an object as the default of a field, in a module that tests of DDP import. Python 3.11 refuses
    that of classes that cannot be hashed."""
    made = dataclasses.dataclass

    def hashed(kind=None, **options):
        if kind is None:
            return functools.partial(hashed, **options)
        kind = made(kind, **options)
        kind.__hash__ = kind.__hash__ or object.__hash__
        return kind

    with unittest.mock.patch("dataclasses.dataclass", hashed):
        import torch.distributed._shard.sharded_tensor.metadata  # noqa: F401


def serve(pipe, backend, size):
    """Sends the names of all tests, then for each (name, seconds) that comes (how it went, its output or the reason);
    until None comes."""
    logging.basicConfig()  # before torch's tests tell it to say more
    # Importing them leaves files too.
    with tempfile.TemporaryDirectory(prefix="trainyard-torch-") as folder:
        tempfile.tempdir = folder
        # The module looks at these as it is imported.
        os.environ.update(TMPDIR=folder, WORLD_SIZE=str(size), TEMP_DIR=folder, OMP_NUM_THREADS="1")
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
