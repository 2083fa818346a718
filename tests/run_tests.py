#!/usr/bin/env python3
"""Runs the tests of a build folder and ends with a line "N passed, N failed, N skipped".

    run_tests.py BUILD [--label LABEL]             run all tests, or those of a label
    run_tests.py --total BUILD...                  run nothing: the sum over the last runs
    run_tests.py --left-out WHY BUILD              run nothing: all of it counts as one skipped in a sum
    run_tests.py --repeat 20 --load 4 NAME [BUILD] one entry or case many times, beside 4 busy processes

In a sum, a folder whose tests did not run to the end since then counts as one failure.

A ctest entry is a whole test program; where the program is GoogleTest's, its cases are counted one by
one (from the XML that GTEST_OUTPUT asks for), else the entry counts as one case. Fast tests run side
by side, then all others, at most three at a time (ty_set_lane in cmake/targets.cmake), because they start
processes of their own, most of whose time is waiting. A case of these whose waits ran out is run again
(runner/rerun.py) and listed as flaky.

Exits 1 when a case failed, a program died, no case ran at all, or too much was flaky.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys

from runner import rerun, table
from runner.ctest import UNIT, Build
from runner.repeat import repeat
from runner.results import Totals

AT_ONCE = 3
RESULTS = "test-results"
TOTALS = "totals.json"


def tiers(label):
    """(name, what ctest selects, how many at a time) of the passes that are made."""
    if label in (None, UNIT):
        yield UNIT, ["-L", f"^{UNIT}$"], max(2, os.cpu_count() or 2)
    if label is None:
        yield "rest", ["-LE", f"^{UNIT}$"], AT_ONCE
    elif label != UNIT:
        yield label, ["-L", f"^{label}$"], AT_ONCE


def run_build(folder, label):
    """Runs what is selected; returns its totals, which are written down too."""
    results = folder / RESULTS
    shutil.rmtree(results, ignore_errors=True)
    build, totals = Build(folder), Totals()
    for tier, selection, jobs in tiers(label):
        entries = build.run(results / tier, selection, jobs)
        totals.flaky += rerun.run_again(build, results, entries)
        for entry in entries:
            totals.add_entry(entry, build.lane(entry.name))
    results.mkdir(exist_ok=True)
    (results / TOTALS).write_text(json.dumps(vars(totals)), encoding="utf-8")
    return totals


def leave_out(folder, why):
    totals = Totals()
    totals.skipped.append(("all of it", why))
    results = folder / RESULTS
    results.mkdir(parents=True, exist_ok=True)
    (results / TOTALS).write_text(json.dumps(dict(vars(totals), left_out=True)), encoding="utf-8")


def read_totals(folder):
    """What run_build() wrote down, each case with the folder's name."""
    totals = Totals()
    try:
        written = json.loads((folder / RESULTS / TOTALS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        totals.failed.append((folder.name, "its tests did not run"))
        return totals
    totals.passed = written["passed"]
    totals.failed = [(f"{folder.name}: {name}", reason) for name, reason in written["failed"]]
    totals.skipped = [(f"{folder.name}: {name}", reason) for name, reason in written["skipped"]]
    totals.flaky = written["flaky"]
    totals.times = [(f"{lane}", f"{folder.name}: {entry}", seconds) for lane, entry, seconds in written["times"]]
    if totals.passed + len(totals.failed) == 0 and not written.get("left_out"):
        totals.failed.append((folder.name, "no test ran"))
    return totals


def show(totals):
    print()
    table.print_times(totals.times)
    for name, reason in totals.skipped:
        print(f"skipped: {name}: {reason}")
    for name, reason in totals.failed:
        print(f"failed: {name}: {reason[:300]}")
    for name, reason in totals.flaky:
        print(f"flaky: {name}: {reason[:300]}")
    if totals.passed + len(totals.failed) == 0:
        print("no test ran")
    print(totals.line(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="+", help="build folders; with --repeat: NAME [BUILD]")
    parser.add_argument("--label", help="only tests of this label")
    parser.add_argument("--total", action="store_true", help="sum of the last runs")
    parser.add_argument("--left-out", metavar="WHY", help="note that a build's tests are not run, and why")
    parser.add_argument("--repeat", type=int, metavar="N", help="run one entry or case N times")
    parser.add_argument("--load", type=int, default=0, metavar="M", help="beside M processes that compute")
    parser.add_argument("--flaky", type=pathlib.Path, default=rerun.KNOWN, help="the known flaky cases")
    arguments = parser.parse_args()

    if arguments.repeat:
        name, folder = arguments.build if len(arguments.build) == 2 else (arguments.build[0], "build/dev")
        folder = pathlib.Path(folder).resolve()
        sys.exit(repeat(Build(folder), folder / "test-repeats", name, arguments.repeat, arguments.load))
    folders = [pathlib.Path(folder).resolve() for folder in arguments.build]
    if len(folders) > 1 and not arguments.total:
        parser.error("several folders only with --total")
    if arguments.left_out:
        leave_out(folders[0], arguments.left_out)
        return
    totals = Totals()
    for folder in folders:
        totals.add(read_totals(folder) if arguments.total else run_build(folder, arguments.label))
    rerun.judge(totals, rerun.read_known(arguments.flaky))
    show(totals)
    sys.exit(totals.code())


if __name__ == "__main__":
    main()
