#!/usr/bin/env python3
"""Horovod's own tests for PyTorch, over trainyard by its names.

    horovod_suite.py [--tests FOLDER] [--size 2] [--only TEXT] [--limit SECONDS]

Takes test_torch.py from FOLDER (of a checkout of Horovod), else from the sdist of 0.20.2, which is downloaded
into a temporary folder: no newer sdist has tests in it. With neither it exits 77. Every test runs in
processes of its own, one for each rank, so that one that fails leaves the next a clean start. Ends with a line
`N passed, N failed, N left out`; before it, what failed, and what was left out with reasons.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import ranks  # finds the package  # noqa: E402
from horovod_test import launch  # noqa: E402

RELEASE = "0.20.2"
MODULE = "test_torch"
SKIPPED = "left out: "

# What cannot pass, and why. Such tests are run all the same, and counted as left out when they fail.
REASONS = (
    (r"join", "join() is not supported, and says what to use instead"),
    (r"adasum|delta_optimizer", "Adasum is not supported, and says what to use instead"),
    (r"timeline", "there is no timeline"),
)
# Of the sdist's tests, which are older than what is answered to.
OLDER = (
    (r"_(allgather|broadcast)_grad$", "0.20 sums gradients over the ranks; 0.28, and this, averages them"),
    (r"_alltoall(_grad)?$", "told splits 0.20 gives the tensor alone; 0.28, and this, the received splits too"),
    (r"_dynamic_requires_grad$", "expects a gradient of zeros where there was none; here such a parameter keeps none"),
    (r"_broadcast_state$", "makes a number of each option, and newer optimizers have options that are None"),
)


def find_tests(folder):
    """The folder of test_torch.py below `folder`, or None."""
    found = sorted(pathlib.Path(folder).rglob(f"{MODULE}.py"))
    return found[0].parent if found else None


def download(folder):
    """Horovod's sdist, unpacked into `folder`; raises OSError or CalledProcessError."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
                    f"horovod=={RELEASE}", "--dest", folder], check=True, timeout=600)
    with tarfile.open(next(pathlib.Path(folder).glob("horovod-*.tar.gz"))) as archive:
        archive.extractall(folder)


def stand_in_pytest():
    """The decorators that the tests use, where pytest is not installed."""
    marks = types.SimpleNamespace(
        skip=lambda reason="": unittest.skip(reason),
        skipif=lambda condition, reason="": unittest.skipIf(condition, reason))
    module = types.ModuleType("pytest")
    module.mark, module.skip = marks, unittest.SkipTest
    return module


def stand_in_common():
    """What the tests take from a module of helpers that the sdist lacks."""
    module = types.ModuleType("common")
    module.mpi_env_rank_and_size = lambda: (
        int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"]))
    module.skip_or_fail_gpu_test = lambda test, text: test.skipTest(text)

    @contextlib.contextmanager
    def temppath():
        with tempfile.TemporaryDirectory() as folder:
            yield os.path.join(folder, "file")

    module.temppath = temppath
    return module


def load(tests):
    """Horovod's test module with horovod answered by trainyard, on any Python and torch."""
    import inspect
    sys.path[:0] = [str(tests), str(tests.parent / "utils")]
    try:
        import pytest  # noqa: F401
    except ImportError:
        sys.modules["pytest"] = stand_in_pytest()
    try:
        import common  # noqa: F401
    except ImportError:
        sys.modules["common"] = stand_in_common()
    if not hasattr(inspect, "getargspec"):
        inspect.getargspec = inspect.getfullargspec
    try:
        import distutils.version  # noqa: F401
    except ImportError:
        _stand_in_distutils()
    import torch
    if not hasattr(torch, "FatalError"):
        torch.FatalError = RuntimeError
    import trainyard.compat
    trainyard.compat.install()
    return __import__(MODULE)


def _stand_in_distutils():
    version = types.ModuleType("distutils.version")
    version.LooseVersion = lambda text: [int(part) for part in re.findall(r"\d+", text)[:3]]
    package = types.ModuleType("distutils")
    package.version = version
    sys.modules.update({"distutils": package, "distutils.version": version})


def names_of(module):
    """Every test of the module as Class.method."""
    loader = unittest.TestLoader()
    return [f"{kind.__name__}.{name}" for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, unittest.TestCase)
            and kind.__module__ == module.__name__ for name in loader.getTestCaseNames(kind)]


def run_rank(tests, name):
    """One test as one rank; the exit code tells whether it passed."""
    suite = unittest.TestLoader().loadTestsFromName(name, load(tests))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(suite)
    for _, reason in result.skipped:
        print(SKIPPED + reason)
    sys.stdout.flush()
    # The other ranks may still be in an operation that this one has left: no clean end for it.
    os._exit(0 if result.wasSuccessful() else 1)


def run_test(tests, name, size, limit):
    """(passed, failed or left out; why) of one test."""
    command = [str(pathlib.Path(__file__).resolve()), "--tests", str(tests), "--rank", name]
    results = launch(size, *command, limit=limit, more={
        rank: {"HOROVOD_RANK": rank, "HOROVOD_SIZE": size, "HOROVOD_LOCAL_RANK": rank,
               "HOROVOD_LOCAL_SIZE": size, "HOROVOD_DYNAMIC_PROCESS_SETS": 1} for rank in range(size)})
    text = "\n".join(f"rank {rank}:\n{output[-1500:]}" for rank, (_, output) in enumerate(results))
    skipped = re.findall(rf"^{SKIPPED}(.*)$", text, re.MULTILINE)
    if all(code == 0 for code, _ in results):
        return ("left out", skipped[0] or "marked so") if skipped else ("passed", "")
    reasons = REASONS + (OLDER if RELEASE in str(tests) else ())
    known = next((why for pattern, why in reasons if re.search(pattern, name)), None)
    return ("left out", known) if known else ("failed", text)


def run_all(tests, size, only, limit):
    listed = subprocess.run([sys.executable, __file__, "--tests", str(tests), "--list"], check=True,
                            stdout=subprocess.PIPE, text=True, timeout=limit).stdout.split()
    counts, left_out = collections.Counter(), collections.defaultdict(list)
    for name in [one for one in listed if not only or only in one]:
        how, why = run_test(tests, name, size, limit)
        counts[how] += 1
        print(f"{how}: {name}", flush=True)
        if how == "failed":
            print(why, flush=True)
        elif how == "left out":
            left_out[why].append(name)
    for why, names in left_out.items():
        print(f"{len(names)} left out: {why}: {', '.join(names)}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['left out']} left out")
    return 1 if counts["failed"] or not counts["passed"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=pathlib.Path)
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one test")
    parser.add_argument("--rank", metavar="TEST", help="run this test as one rank")
    parser.add_argument("--list", action="store_true", help="print the names of the tests")
    options = parser.parse_args()
    library = ranks.find_library()
    if not library or not os.path.exists(library):
        print("skipped: libtrainyard.so is not built: TRAINYARD_LIBRARY or TRAINYARD_BIN says where")
        return ranks.SKIPPED
    if options.rank:
        run_rank(options.tests, options.rank)
    if options.list:
        print("\n".join(names_of(load(options.tests))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            tests = find_tests(options.tests) if options.tests else (download(folder), find_tests(folder))[1]
        except (OSError, subprocess.SubprocessError) as error:
            print(f"skipped: no sdist of horovod {RELEASE}: {error}")
            return ranks.SKIPPED
        if tests is None:
            where = options.tests or f"the sdist of horovod {RELEASE}"
            print(f"skipped: no {MODULE}.py in {where}: give a checkout's `test` folder by --tests")
            return ranks.SKIPPED
        return run_all(tests, options.size, options.only, options.limit)


if __name__ == "__main__":
    sys.exit(main())
