#!/usr/bin/env python3
"""Runs the tests of a build folder and ends with a line "N passed, N failed, N skipped".

With --total it runs nothing: the line is the sum over the last runs in several build folders. A folder
whose tests did not run to the end since then counts as one failure.

A ctest entry is a whole test program; where the program is GoogleTest's, its cases are counted one by
one (from the XML that GTEST_OUTPUT asks for), else the entry counts as one case. Fast tests run side
by side, then all others in two lanes (ty_set_lane in cmake/targets.cmake), because they start processes
of their own, most of whose time is waiting.

Exits 1 when a case failed, a program died, or no case ran at all.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

FAST = "unit"
FAILED = "failed: "
LANES = 2
RESULTS = "test-results"
TOTALS = "totals.json"


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = []  # (name, first line of the reason)
        self.skipped = []  # (name, reason)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def line(self):
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"

    def code(self):
        return 0 if self.passed and not self.failed else 1


def last_line(text):
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def told_failures(text):
    """What a program that is not GoogleTest's says of its end: its lines "failed: ...", else its last line."""
    lines = [line[len(FAILED):].strip() for line in (text or "").splitlines() if line.startswith(FAILED)]
    return ", ".join(lines) or last_line(text)


def read_cases(path):
    """Totals of one GoogleTest XML file."""
    totals = Totals()
    for case in ET.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failure, skipped = case.find("failure"), case.find("skipped")
        if failure is not None:
            totals.failed.append((name, " ".join(failure.get("message", "").split())))
        elif skipped is not None:
            # "file:line" stands on a line of its own before the reason.
            totals.skipped.append((name, last_line(skipped.get("message")) or "no reason given"))
        elif case.get("status") == "notrun":
            totals.skipped.append((name, "disabled"))
        else:
            totals.passed += 1
    return totals


def read_program(entry, xml_folder):
    """Totals of one ctest entry: its GoogleTest cases where there are any, else itself."""
    name, status = entry.get("name"), entry.get("status")
    totals = Totals()
    unreadable = ""
    for path in sorted(xml_folder.glob(f"{name}.xml")) + sorted(xml_folder.glob(f"{name}_[0-9]*.xml")):
        try:
            totals.add(read_cases(path))
        except ET.ParseError as error:
            unreadable = f"{path.name}: {error}"
    has_cases = totals.passed or totals.failed or totals.skipped
    failure, skipped = entry.find("failure"), entry.find("skipped")
    if status == "fail" or unreadable:
        if not totals.failed:  # died, timed out, or failed after its last case
            why = failure.get("message", "") if failure is not None else ""
            told = told_failures(entry.findtext("system-out"))
            totals.failed.append((name, unreadable or ": ".join(filter(None, (why, told))) or "failed"))
    elif status in ("notrun", "disabled"):
        reason = skipped.get("message", "") if skipped is not None else ""
        if reason == "SKIP_RETURN_CODE=77":
            reason = last_line(entry.findtext("system-out")) or reason
            totals.skipped.append((name, reason))
        else:  # not built, a missing fixture: it should have run
            totals.failed.append((name, reason or "did not run"))
    elif not has_cases:
        totals.passed += 1
    return totals


def run_tier(build, results, tier, selection, jobs):
    """Runs one ctest selection; returns its totals."""
    xml_folder = results / tier
    xml_folder.mkdir(parents=True)
    junit = results / f"{tier}.xml"
    environment = dict(os.environ, GTEST_OUTPUT=f"xml:{xml_folder}/", GTEST_COLOR="no")
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=ignore",
               "--output-junit", str(junit), "-j", str(jobs), *selection]
    code = subprocess.run(command, env=environment).returncode
    totals = Totals()
    if junit.exists():
        for entry in ET.parse(junit).getroot().iter("testcase"):
            totals.add(read_program(entry, xml_folder))
    if code != 0 and not totals.failed:
        totals.failed.append((f"ctest ({tier})", f"exit code {code}"))
    return totals


def run_build(build, label):
    """Runs what is selected; returns its totals, which are written down too."""
    results = build / RESULTS
    shutil.rmtree(results, ignore_errors=True)
    tiers = []
    if label in (None, FAST):
        tiers.append((FAST, ["-L", f"^{FAST}$"], max(2, os.cpu_count() or 2)))
    if label is None:
        tiers.append(("rest", ["-LE", f"^{FAST}$"], LANES))
    elif label != FAST:
        tiers.append((label, ["-L", f"^{label}$"], 1))
    totals = Totals()
    for tier, selection, jobs in tiers:
        totals.add(run_tier(build, results, tier, selection, jobs))
    (results / TOTALS).write_text(json.dumps(vars(totals)), encoding="utf-8")
    return totals


def read_totals(build):
    """What run_build() wrote down, each case with the folder's name."""
    totals = Totals()
    try:
        written = json.loads((build / RESULTS / TOTALS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        totals.failed.append((build.name, "its tests did not run"))
        return totals
    totals.passed = written["passed"]
    totals.failed = [(f"{build.name}: {name}", reason) for name, reason in written["failed"]]
    totals.skipped = [(f"{build.name}: {name}", reason) for name, reason in written["skipped"]]
    if totals.passed + len(totals.failed) == 0:
        totals.failed.append((build.name, "no test ran"))
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, nargs="+")
    parser.add_argument("--label", help="only tests of this label")
    parser.add_argument("--total", action="store_true", help="sum of the last runs")
    arguments = parser.parse_args()
    if len(arguments.build) > 1 and not arguments.total:
        parser.error("several folders only with --total")

    totals = Totals()
    for build in arguments.build:
        build = build.resolve()
        totals.add(read_totals(build) if arguments.total else run_build(build, arguments.label))

    print()
    for name, reason in totals.skipped:
        print(f"skipped: {name}: {reason}")
    for name, reason in totals.failed:
        print(f"failed: {name}: {reason[:300]}")
    if totals.passed + len(totals.failed) == 0:
        print("no test ran")
    print(totals.line(), flush=True)
    sys.exit(totals.code())


if __name__ == "__main__":
    main()
