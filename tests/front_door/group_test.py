#!/usr/bin/env python3
"""Tests that are one program run each their own cases, and all of them together every case once.

    group_test.py GROUP...
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET

GROUPS = []


def cases(program, chosen=None):
    """"Suite.case" of all that the program would run."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GTEST_")}
    if chosen:
        environment["GTEST_FILTER"] = chosen
    listed = subprocess.run([program, "--gtest_list_tests"], env=environment, check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    found, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            found.append(suite + name)
        elif name.endswith("."):
            suite = name
    return found


def run_in_shares(program, shares, **variables):
    """(Exit code, names of cases, of those that failed) of a run of so many cases at a time."""
    with tempfile.TemporaryDirectory() as results:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GTEST_")}
        environment.update(variables, GTEST_OUTPUT=f"xml:{results}/", TRAINYARD_CASES_AT_ONCE=str(shares))
        code = subprocess.run([program], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        ran = [case for path in pathlib.Path(results).glob(f"{program.name}_[0-9]*.xml")
               for case in ET.parse(path).getroot().iter("testcase")]
    names = [f"{case.get('classname')}.{case.get('name')}" for case in ran]
    return code, sorted(names), sorted(name for name, case in zip(names, ran) if case.find("failure") is not None)


class Group(unittest.TestCase):
    def members(self, group):
        return sorted(path for path in group.parent.iterdir()
                      if path.is_symlink() and os.readlink(path) == group.name)

    def test_every_case_belongs_to_one_test(self):
        for group in GROUPS:
            tests = self.members(group)
            self.assertGreater(len(tests), 1, group)
            self.assertEqual(sorted(cases(group)), sorted(case for test in tests for case in cases(test)), group)

    def test_a_filter_leaves_out_of_the_tests_own_cases(self):
        for group in GROUPS:
            for test in self.members(group):
                own = cases(test)
                self.assertEqual(own[1:], cases(test, f"-{own[0]}"), test)
                self.assertEqual(own[:1], cases(test, own[0]), test)

    def test_shares_are_all_cases_once(self):
        some = self.members(GROUPS[0])[0]
        own = sorted(cases(some))
        self.assertEqual((0, own, []), run_in_shares(some, 3))
        left_out = [case for case in own if case != own[0]]
        self.assertEqual((0, left_out, []), run_in_shares(some, 2, GTEST_FILTER=f"-{own[0]}"))

    def test_a_share_that_fails_fails_the_test(self):
        # Without programs to start, all do.
        test = GROUPS[-1].parent / "wire_type_test"
        code, ran, failed = run_in_shares(test, 2, TRAINYARD_BIN="/nonexistent")
        self.assertEqual((1, sorted(cases(test))), (code, failed))
        self.assertEqual(ran, failed)


if __name__ == "__main__":
    GROUPS = [pathlib.Path(path) for path in sys.argv[1:]]
    unittest.main(argv=sys.argv[:1])
