#!/usr/bin/env python3
"""tests/run_tests.py counts cases, gives reasons, and fails when it should."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

RUN_TESTS = pathlib.Path(__file__).resolve().parent.parent / "run_tests.py"

# Stands in for a GoogleTest program: writes XML where GTEST_OUTPUT says.
PROGRAM = """#!/usr/bin/env python3
import os, sys
xml = {xml!r}
if xml:
    open(os.environ["GTEST_OUTPUT"][4:] + os.path.basename(sys.argv[0]) + ".xml", "w").write(
        "<testsuites><testsuite>" + xml + "</testsuite></testsuites>")
print({output!r})
sys.exit({code})
"""
GOOD = '<testcase name="{}" classname="Suite" status="run" result="completed"/>'
BAD = ('<testcase name="bad" classname="Suite" status="run" result="completed">'
       '<failure message="a.cc:1&#x0A;1 is not 2"/></testcase>')
SKIPPED = ('<testcase name="later" classname="Suite" status="run" result="skipped">'
           '<skipped message="a.cc:7&#x0A;not root&#x0A;"/></testcase>')


class RunTests(unittest.TestCase):
    def setUp(self):
        self.build = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.build)
        self.entries = []

    def program(self, name, xml="", output="", code=0, label="unit", properties=""):
        path = self.build / name
        path.write_text(PROGRAM.format(xml=xml, output=output, code=code))
        path.chmod(0o755)
        self.entries.append(f'add_test({name} "{path}")\n'
                            f'set_tests_properties({name} PROPERTIES LABELS "{label}" {properties})\n')

    def run_it(self, *arguments):
        (self.build / "CTestTestfile.cmake").write_text("".join(self.entries))
        done = subprocess.run([sys.executable, RUN_TESTS, self.build, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def last_line(self, output):
        return output.rstrip("\n").splitlines()[-1]

    def test_cases_of_all_tiers_are_added_up(self):
        self.program("a_test", GOOD.format("x") + GOOD.format("y") + SKIPPED)
        self.program("b_test", GOOD.format("z"), label="multiproc")
        self.program("script")
        code, output = self.run_it()
        self.assertEqual(self.last_line(output), "4 passed, 0 failed, 1 skipped")
        self.assertIn("skipped: Suite.later: not root", output)
        self.assertEqual(code, 0)

    def test_a_failed_case_is_named_with_its_output(self):
        self.program("a_test", GOOD.format("x") + BAD, output="all that it printed", code=1)
        code, output = self.run_it()
        self.assertEqual(self.last_line(output), "1 passed, 1 failed, 0 skipped")
        self.assertIn("failed: Suite.bad: a.cc:1 1 is not 2", output)
        self.assertIn("all that it printed", output)
        self.assertEqual(code, 1)

    def test_a_script_that_fails_says_what_failed(self):
        self.program("script", output="much\nfailed: first\nmore\nfailed: second\nin all 2", code=1)
        self.program("other", output="the\nlast line", code=1)
        output = self.run_it()[1]
        self.assertRegex(output, "(?m)^failed: script: .*first, second$")
        self.assertRegex(output, "(?m)^failed: other: .*the last line$|^failed: other: .*last line$")

    def test_a_program_that_dies_after_its_last_case_fails(self):
        self.program("a_test", GOOD.format("x"), code=9)
        code, output = self.run_it()
        self.assertEqual(self.last_line(output), "1 passed, 1 failed, 0 skipped")
        self.assertEqual(code, 1)

    def test_a_program_that_hangs_fails(self):
        self.program("a_test", output="started", properties="TIMEOUT 1")
        path = self.build / "a_test"
        path.write_text("#!/bin/sh\nexec sleep 30\n")
        code, output = self.run_it()
        self.assertEqual(self.last_line(output), "0 passed, 1 failed, 0 skipped")
        self.assertEqual(code, 1)

    def test_a_program_that_was_not_built_fails(self):
        self.program("a_test")
        (self.build / "a_test").unlink()
        code, output = self.run_it()
        self.assertEqual(self.last_line(output), "0 passed, 1 failed, 0 skipped")
        self.assertEqual(code, 1)

    def test_a_script_that_skips_gives_its_reason(self):
        self.program("ok")
        self.program("script", output="no such device", code=77, properties="SKIP_RETURN_CODE 77")
        code, output = self.run_it()
        self.assertEqual(self.last_line(output), "1 passed, 0 failed, 1 skipped")
        self.assertIn("skipped: script: no such device", output)
        self.assertEqual(code, 0)

    def test_no_test_at_all_fails(self):
        code, output = self.run_it()
        self.assertEqual(self.last_line(output), "0 passed, 0 failed, 0 skipped")
        self.assertEqual(code, 1)

    def test_one_label(self):
        self.program("a_test", GOOD.format("x"))
        self.program("b_test", GOOD.format("z"), label="multiproc")
        self.assertEqual(self.last_line(self.run_it("--label", "unit")[1]),
                         "1 passed, 0 failed, 0 skipped")
        self.assertEqual(self.last_line(self.run_it("--label", "multiproc")[1]),
                         "1 passed, 0 failed, 0 skipped")

    def total(self, *folders):
        done = subprocess.run([sys.executable, RUN_TESTS, "--total", *folders],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def test_the_total_is_the_sum_over_builds(self):
        self.program("a_test", GOOD.format("x") + GOOD.format("y") + SKIPPED)
        self.run_it()
        code, output = self.total(self.build, self.build)
        self.assertEqual(self.last_line(output), "4 passed, 0 failed, 2 skipped")
        self.assertIn(f"skipped: {self.build.name}: Suite.later: not root", output)
        self.assertEqual(code, 0)

    def test_a_failure_of_one_build_fails_the_total(self):
        self.program("a_test", GOOD.format("x") + BAD, code=1)
        self.run_it()
        code, output = self.total(self.build)
        self.assertEqual(self.last_line(output), "1 passed, 1 failed, 0 skipped")
        self.assertIn(f"failed: {self.build.name}: Suite.bad: a.cc:1 1 is not 2", output)
        self.assertEqual(code, 1)

    def test_what_is_left_out_is_listed_with_its_reason(self):
        self.program("a_test", GOOD.format("x"))
        self.run_it()
        other = self.build / "other"
        subprocess.run([sys.executable, RUN_TESTS, "--left-out", "70 minutes had passed", other], check=True)
        code, output = self.total(self.build, other)
        self.assertEqual(self.last_line(output), "1 passed, 0 failed, 1 skipped")
        self.assertIn("skipped: other: all of it: 70 minutes had passed", output)
        self.assertEqual(code, 0)
        # It passes nothing by itself.
        self.assertEqual(self.total(other)[0], 1)

    def test_a_build_whose_tests_did_not_run_fails_the_total(self):
        self.program("a_test", GOOD.format("x"))
        self.run_it()
        code, output = self.total(self.build, self.build / "nothing")
        self.assertEqual(self.last_line(output), "1 passed, 1 failed, 0 skipped")
        self.assertIn("failed: nothing: its tests did not run", output)
        self.assertEqual(code, 1)


if __name__ == "__main__":
    unittest.main()
