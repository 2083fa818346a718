#!/usr/bin/env python3
"""torch's own tests of its backends, distributed_test.py, over trainyard and, beside it, over gloo.

    torch_suite.py [--size 3] [--only TEXT] [--limit SECONDS] [--backends gloo,trainyard]

They come with torch. Tests that torch has for gloo alone are run over trainyard too. Ends with a line for each
backend, `BACKEND: N passed, N failed, N left out`, and with what share of those that pass over gloo passes over
trainyard, and which do not; fails where that is below 95 %.
"""
import argparse
import collections
import importlib.util
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time

import torch_tests

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "deploy")]
import ranks  # finds the package  # noqa: E402
import venv_of  # noqa: E402

BACKENDS = ["gloo", "trainyard"]
BAR = 0.95

# What is not for other backends than torch's own, and why. Run all the same, and counted as left out when it fails.
REASONS = {
    "test_monitored_barrier": "torch.distributed.monitored_barrier itself refuses all backends but gloo",
}


class Backend:
    """A process that has torch and its tests loaded for one backend, and forks one for each test."""

    def __init__(self, name, size):
        context = multiprocessing.get_context("fork")
        self.name, self.outcomes, self.seconds = name, {}, 0.0
        self._pipe, other = context.Pipe()
        # Forked before torch is imported, which each backend does in its own way.
        self._process = context.Process(target=torch_tests.serve, args=(other, name, size))
        self._process.start()
        other.close()
        self.names = self._pipe.recv()

    def run(self, test, limit):
        """("passed" | "failed" | "left out", the last lines of its output, or why it is left out)"""
        begun = time.monotonic()
        self._pipe.send((test, limit))
        self.outcomes[test] = self._pipe.recv()
        self.seconds += time.monotonic() - begun
        return self.outcomes[test]

    def end(self):
        self._pipe.send(None)
        self._process.join()

    def those(self, how):
        return [test for test, (was, _) in self.outcomes.items() if was == how]


def find_library():
    """For the processes that are started too."""
    if "TRAINYARD_BIN" in os.environ:
        built = pathlib.Path(os.environ["TRAINYARD_BIN"]).resolve().parent / "lib/libtrainyard.so"
        os.environ.setdefault("TRAINYARD_LIBRARY", str(built))


def find_wheels():
    """What the tests import beside torch, for the processes that are started; False where it cannot be had."""
    if importlib.util.find_spec("expecttest") is not None:
        return True
    python = venv_of.make_venv(ROOT / "build/venvs/torch-suite", ROOT / "deploy/wheels_torch_suite.txt")
    if python is None:
        return False
    (packages,) = (python.parent.parent / "lib").glob("python*/site-packages")
    sys.path.append(str(packages))
    return True


def run_all(only, size, limit, names):
    """{name of a backend: Backend}, with the outcomes of all tests whose names have `only` in them."""
    backends = {name: Backend(name, size) for name in names}
    gloo = backends.get("gloo")
    for test in next(iter(backends.values())).names:
        if only not in test:
            continue
        for backend in backends.values():
            if backend is not gloo and gloo and gloo.outcomes[test][0] == "left out":
                backend.outcomes[test] = gloo.outcomes[test]  # it needs GPUs, or another number of ranks
                continue
            how, text = backend.run(test, limit)
            reason = next((why for name, why in REASONS.items() if test.startswith(name)), None)
            if how == "failed" and backend is not gloo and reason:
                backend.outcomes[test] = "left out", reason
            elif how == "failed":
                print(f"--- {backend.name}: {test}\n{text}", flush=True)
    for backend in backends.values():
        backend.end()
    return backends


def report(backends):
    """Prints the counts; whether enough of those that pass over gloo pass over ours too."""
    for name, backend in backends.items():
        by_reason = collections.defaultdict(list)
        for test in backend.those("left out"):
            by_reason[backend.outcomes[test][1]].append(test)
        print(f"{name}: {len(backend.those('passed'))} passed, {len(backend.those('failed'))} failed, "
              f"{len(backend.those('left out'))} left out, in {backend.seconds:.0f} s")
        if backend.those("failed"):
            print(f"  failed: {', '.join(backend.those('failed'))}")
        for reason, tests in sorted(by_reason.items(), key=lambda each: -len(each[1])):
            print(f"  {len(tests)} left out: {reason}: {', '.join(tests)}")
    if not all(name in backends for name in BACKENDS):
        return not any(backend.those("failed") for backend in backends.values())
    passed, ours = backends["gloo"].those("passed"), set(backends["trainyard"].those("passed"))
    missing = [test for test in passed if test not in ours]
    share = 1 - len(missing) / max(1, len(passed))
    print(f"of the {len(passed)} that pass over gloo {share:.1%} pass over trainyard; not: {', '.join(missing) or 'none'}")
    return share >= BAR


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=90)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    arguments = parser.parse_args()
    find_library()
    if not find_wheels():
        print("the package index cannot be reached")
        return 77
    return 0 if report(run_all(arguments.only, arguments.size, arguments.limit, arguments.backends.split(","))) else 1


if __name__ == "__main__":
    sys.exit(main())
