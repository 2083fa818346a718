#!/usr/bin/env python3
"""torch's own tests of its backends, distributed_test.py, over trainyard and, beside it, over gloo.

    torch_suite.py [--size 3] [--only TEXT] [--limit SECONDS] [--backends gloo,trainyard]

They come with torch. Each runs in processes of its own, one for each rank. Ends with a line for each backend,
`BACKEND: N passed, N failed, N left out`, and with what of gloo's does not pass over trainyard.
"""
import argparse
import io
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "deploy")]
import ranks  # finds the package  # noqa: E402,F401
import venv_of  # noqa: E402

BACKENDS = ["gloo", "trainyard"]


def find_library():
    """For the processes that are started too."""
    if "TRAINYARD_BIN" in os.environ:
        built = pathlib.Path(os.environ["TRAINYARD_BIN"]).resolve().parent / "lib/libtrainyard.so"
        os.environ.setdefault("TRAINYARD_LIBRARY", str(built))


def find_wheels():
    """What the tests import beside torch, for this process and those it starts; False where it cannot be had."""
    python = venv_of.make_venv(ROOT / "build/venvs/torch-suite", ROOT / "deploy/wheels_torch_suite.txt")
    if python is None:
        return False
    (packages,) = (python.parent.parent / "lib").glob("python*/site-packages")
    sys.path.append(str(packages))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(packages)]))
    return True


def load(backend):
    """The class of the tests, for a backend of which torch does not know that it has what gloo has."""
    import torch.testing._internal.common_distributed as common
    if backend == "trainyard":
        import trainyard.torch  # noqa: F401
        for having in [*common.DistTestCases.backend_feature.values(), *common.DistTestCases.skip_collective.values()]:
            if "gloo" in having:
                having.add("trainyard")
    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    class Suite(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    return Suite


def run_one(name):
    """In a process of its own: the test's outcome as its exit code, 0, 1, or 77 for left out."""
    suite = load(os.environ["BACKEND"])
    output = io.StringIO()
    result = unittest.TextTestRunner(stream=output, verbosity=2).run(suite(name))
    print(output.getvalue())
    sys.stdout.flush()
    os._exit(77 if result.skipped else 0 if result.wasSuccessful() else 1)


def names_of(only, size):
    # The module looks at these as it is imported.
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(size), TEMP_DIR=tempfile.gettempdir())
    return [name for name in unittest.TestLoader().getTestCaseNames(load("gloo")) if only in name]


def outcome(name, backend, size, limit):
    """("passed" | "failed" | "left out", the last lines of its output)"""
    with tempfile.TemporaryDirectory(prefix="trainyard-torch-") as folder:
        environment = {**os.environ, "BACKEND": backend, "WORLD_SIZE": str(size), "TEMP_DIR": folder,
                       "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen([sys.executable, __file__, "--one", name], env=environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return "failed", f"not over after {limit} s\n" + process.communicate()[0][-2000:]
    return {0: "passed", 77: "left out"}.get(process.returncode, "failed"), output[-2000:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=90)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return run_one(arguments.one)
    find_library()
    if not find_wheels():
        print("the package index cannot be reached")
        return 77
    outcomes = {backend: {} for backend in arguments.backends.split(",")}
    for name in names_of(arguments.only, arguments.size):
        for backend, of in outcomes.items():
            if backend != "gloo" and outcomes.get("gloo", {}).get(name) == "left out":
                of[name] = "left out"  # it needs GPUs, or is for another backend
                continue
            of[name], text = outcome(name, backend, arguments.size, arguments.limit)
            if of[name] == "failed" and outcomes.get("gloo", {}).get(name) != "failed":
                print(f"--- {backend}: {name}\n{text}", flush=True)
    for backend, of in outcomes.items():
        counts = [sum(each == what for each in of.values()) for what in ("passed", "failed", "left out")]
        print("{}: {} passed, {} failed, {} left out".format(backend, *counts))
    if len(outcomes) == 2:
        gloo, ours = outcomes.values()
        both = [name for name in gloo if gloo[name] == "passed"]
        print(f"of gloo's {len(both)}: {sum(ours[name] == 'passed' for name in both)} pass over trainyard; not "
              + ", ".join(name for name in both if ours[name] != "passed"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
