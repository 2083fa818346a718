#!/usr/bin/env python3
"""Tests that are one program run each their own cases, and all of them together every case once.

    group_test.py GROUP...
"""
import os
import pathlib
import subprocess
import sys
import unittest

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


if __name__ == "__main__":
    GROUPS = [pathlib.Path(path) for path in sys.argv[1:]]
    unittest.main(argv=sys.argv[:1])
