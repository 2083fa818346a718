#!/usr/bin/env python3
"""Runs the scenarios against a real apiserver, or those whose names hold one of the given words.

    scenarios.py [WORD...] [--at-once N] [--keep-log]
    scenarios.py --check        only whether each name of catalog.py has its function

A scenario is a function `scenario_NN_name(case)` in cases/*.py. Exits 77 where no apiserver can be had.
"""
import argparse
import concurrent.futures
import importlib
import os
import pathlib
import re
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import catalog  # noqa: E402
from harness.case import Case  # noqa: E402
from harness.world import world  # noqa: E402


def find():
    """{number: [functions]} of cases/*.py."""
    found = {}
    for path in sorted((HERE / "cases").glob("*.py")):
        module = importlib.import_module(f"cases.{path.stem}")
        for name, function in vars(module).items():
            match = re.fullmatch(r"scenario_(\d\d)_\w+", name)
            if match and callable(function):
                found.setdefault(int(match[1]), []).append(function)
    return found


def check(found):
    """Prints what is wrong with the names; whether they are right."""
    problems = catalog.problems({number: [f.__name__ for f in made] for number, made in found.items()})
    for problem in problems:
        print(problem, file=sys.stderr)
    return not problems


class Run:
    """Runs functions and counts."""

    def __init__(self, made, keep_log):
        self.world = made
        self.keep_log = keep_log
        self.passed, self.failed = [], {}  # {name: its exception}

    def one(self, function):
        begun = time.monotonic()
        name = function.__name__
        number = re.fullmatch(r"scenario_(\d\d)_\w+", name)[1]
        case = Case(self.world, f"scenario-{number}-{os.getpid()}", self.world.folder / name)
        failure = raised = None
        try:
            case.open()
            function(case)
        except Exception as error:
            failure, raised = f"{traceback.format_exc()}\n{case.describe()}", error
        if self.keep_log and not failure:
            print(case.describe())
        try:
            case.close()
        except Exception as error:
            failure, raised = failure or traceback.format_exc(), raised or error
        word = "failed" if failure else "passed"
        print(f"{name}: {word} ({time.monotonic() - begun:.1f} s)" + (f"\n{failure}" if failure else ""), flush=True)
        if failure:
            self.failed[name] = (f"{raised}".splitlines() or [type(raised).__name__])[0]
        else:
            self.passed.append(name)

    def all(self, functions, at_once):
        """Those marked `alone` come last, one after the other."""
        together = [f for f in functions if not getattr(f, "alone", False)]
        # The long ones first, so that nobody waits for them in the end.
        together.sort(key=lambda f: -getattr(f, "seconds", 0))
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for future in [pool.submit(self.one, function) for function in together]:
                future.result()
        for function in functions:
            if getattr(function, "alone", False):
                self.one(function)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--at-once", type=int, default=10)
    parser.add_argument("--keep-log", action="store_true", help="print what each scenario left behind")
    arguments = parser.parse_args()
    found = find()
    complete = check(found)
    if arguments.check:
        print(f"{len(found)} scenarios are written down")
        return 0 if complete else 1
    functions = [made[0] for _, made in sorted(found.items())
                 if not arguments.words or any(word in made[0].__name__ for word in arguments.words)]
    pending = [number for number in catalog.PENDING if number not in found]
    with world() as made:
        run = Run(made, arguments.keep_log)
        run.all(functions, arguments.at_once)
        troubles = list(made.kubelet.failures)
    for trouble in troubles:
        print(f"the fake kubelet could not do something:\n{trouble}", file=sys.stderr)
    for name, reason in run.failed.items():
        print(f"failed: {name}: {reason[:300]}")
    for number in pending:
        print(f"pending: {catalog.title(number)}: {catalog.PENDING[number]}")
    print(f"scenarios: {len(run.passed) + len(run.failed)} ran, {len(run.passed)} passed, {len(pending)} pending")
    return 0 if complete and run.passed and not run.failed else 1


if __name__ == "__main__":
    sys.exit(main())
