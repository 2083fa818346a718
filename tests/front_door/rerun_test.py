#!/usr/bin/env python3
"""tests/run_tests.py runs again what timed out, nothing else, and does not forgive it twice."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

RUN_TESTS = pathlib.Path(__file__).resolve().parent.parent / "run_tests.py"

# Stands in for a GoogleTest program. `cases` maps a name to what becomes of it in one attempt after the
# other, the last for ever: "" passes, else the messages of its failures. Each attempt is a line of the
# file NAME.log.
PROGRAM = """#!/usr/bin/env python3
import os, sys
from xml.sax.saxutils import quoteattr
cases = {cases!r}
name, chosen = os.path.basename(sys.argv[0]), os.environ.get("GTEST_FILTER", "*")
negative = chosen.startswith("-")
listed = chosen.lstrip("-").split(":")
run = [c for c in cases if chosen == "*" or (("S." + c) in listed) != negative]
if "--gtest_list_tests" in sys.argv:
    wanted = [a.split("=")[1] for a in sys.argv if a.startswith("--gtest_filter=")]
    print("S.\\n" + "".join(f"  {{c}}\\n" for c in cases if "S." + c in wanted))
    sys.exit()
xml, bad = "", False
for case in run:
    with open(sys.argv[0] + ".log", "a+") as log:
        log.seek(0)
        attempt = log.read().splitlines().count(case)
        log.write(case + "\\n")
    outcome = cases[case][min(attempt, len(cases[case]) - 1)]
    print(f"[ RUN      ] S.{{case}}", flush=True)
    messages = [outcome] if isinstance(outcome, str) and outcome else list(outcome)
    print(f"[  FAILED  ] S.{{case}} (1 ms)" if messages else f"[       OK ] S.{{case}} (1 ms)", flush=True)
    bad = bad or bool(messages)
    xml += f'<testcase name="{{case}}" classname="S" status="run">' + "".join(
        f"<failure message={{quoteattr(m)}}/>" for m in messages) + "</testcase>"
folder = os.environ["GTEST_OUTPUT"][4:]
open(folder + name + ".xml", "w").write(f"<testsuites><testsuite>{{xml}}</testsuite></testsuites>")
sys.exit(bad)
"""
HANGS = """#!/bin/sh
echo "${{GTEST_FILTER:-all}}" >> $0.log
if [ -z "$GTEST_FILTER" ]; then
  echo '[ RUN      ] S.first'
  echo '[       OK ] S.first (1 ms)'
  echo '[ RUN      ] S.hangs'
  exec sleep 60
fi
{second}
"""
# A script that prints the next of these at each attempt, and fails unless that is "".
SCRIPT = """#!/usr/bin/env python3
import os, sys
outcomes = {outcomes!r}
with open(sys.argv[0] + ".log", "a+") as log:
    log.seek(0)
    attempt = len(log.read().splitlines())
    log.write("attempt\\n")
text = outcomes[min(attempt, len(outcomes) - 1)]
print(text)
sys.exit(bool(text))
"""
WAITED = "a.cc:7\nValue of: reached\n  Actual: false (timed out after 60 s waiting for a.cc:7)"
WRONG = "a.cc:9\n1 is not 2"
TRACEBACK = """Traceback (most recent call last):
  File "a.py", line 1, in a
    wait()
{}
what there was
"""


class Reruns(unittest.TestCase):
    def setUp(self):
        self.build = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.build)
        self.entries = []
        self.known = self.build / "flaky.txt"
        self.known.write_text("# none\n")

    def add(self, name, text, label, properties=""):
        path = self.build / name
        path.write_text(text)
        path.chmod(0o755)
        self.entries.append(f'add_test({name} "{path}")\n'
                            f'set_tests_properties({name} PROPERTIES LABELS "{label}" {properties})\n')
        (self.build / "CTestTestfile.cmake").write_text("".join(self.entries))

    def program(self, name, label="multiproc", properties="", **cases):
        self.add(name, PROGRAM.format(cases=cases), label, properties)

    def script(self, name, *outcomes, label="cluster"):
        self.add(name, SCRIPT.format(outcomes=outcomes), label)

    def attempts(self, name):
        log = self.build / f"{name}.log"
        return log.read_text().split() if log.exists() else []

    def run_it(self, *arguments):
        done = subprocess.run([sys.executable, RUN_TESTS, "--flaky", self.known, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = done.stdout.rstrip("\n").splitlines()
        return done.returncode, lines[-1], [line for line in lines if line.startswith(("flaky:", "failed:"))]

    def test_a_case_that_timed_out_is_run_again_alone_and_listed(self):
        self.program("a_test", good=[""], slow=[WAITED, ""])
        code, last, told = self.run_it(self.build)
        self.assertEqual((code, last), (0, "2 passed, 0 failed, 0 skipped"))
        self.assertEqual(len(told), 1)
        self.assertTrue(told[0].startswith("flaky: S.slow: a.cc:7 Value of"), told)
        self.assertEqual(self.attempts("a_test"), ["good", "slow", "slow"])

    def test_what_fails_twice_has_failed(self):
        self.program("a_test", slow=[WAITED, WRONG])
        code, last, told = self.run_it(self.build)
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(told, ["failed: S.slow: a.cc:9 1 is not 2"])

    def test_a_wrong_value_is_never_run_again(self):
        self.program("a_test", wrong=[WRONG, ""], first_wrong=[[WRONG, WAITED], ""])
        code, last, _ = self.run_it(self.build)
        self.assertEqual((code, last), (1, "0 passed, 2 failed, 0 skipped"))
        self.assertEqual(self.attempts("a_test"), ["wrong", "first_wrong"])

    def test_what_comes_of_a_wait_that_ran_out_does_not_count(self):
        self.program("a_test", slow=[[WAITED, WRONG], ""])
        self.assertEqual(self.run_it(self.build)[:2], (0, "1 passed, 0 failed, 0 skipped"))

    def test_a_unit_test_is_never_run_again(self):
        self.program("a_test", label="unit;threads", slow=[WAITED, ""])
        self.assertEqual(self.run_it(self.build)[:2], (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.attempts("a_test"), ["slow"])

    def hanging(self, second):
        """Hangs in its second case; the next attempt prints and does `second`."""
        self.add("a_test", HANGS.format(second=second), "multiproc", "TIMEOUT 2")

    def test_a_program_whose_time_is_over_goes_on_with_the_case_that_ran(self):
        xml = "".join(f'<testcase name="{name}" classname="S" status="run"/>' for name in ("hangs", "last"))
        self.hanging(f"echo '<testsuites>{xml}</testsuites>' > ${{GTEST_OUTPUT#xml:}}a_test.xml")
        code, last, told = self.run_it(self.build)
        self.assertEqual((code, last), (0, "3 passed, 0 failed, 0 skipped"))
        self.assertEqual(told, ["flaky: S.hangs: a_test timed out after 2 s"])
        self.assertEqual(self.attempts("a_test"), ["all", "-S.first"])

    def test_a_program_that_hangs_twice_has_failed(self):
        self.hanging("echo '[ RUN      ] S.hangs'; exec sleep 60")
        code, last, told = self.run_it(self.build)
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertEqual(told, ["failed: S.hangs: a_test timed out after 2 s"])

    def test_scripts(self):
        for name, text, attempts in (
                ("one", "failed: x: timed out after 60 s waiting for the pods", 2),
                ("two", TRACEBACK.format("AssertionError: timed out after 60 s waiting for the pods"), 2),
                ("three", TRACEBACK.format("subprocess.TimeoutExpired: Command 'x' timed out after 60 seconds"), 2),
                ("wrong", TRACEBACK.format("AssertionError: 1 != 2"), 1),
                ("quoted", TRACEBACK.format("AssertionError: 1 != 2\nwhat: timed out after 60 s"), 1),
                ("some", "failed: x: timed out after 60 s waiting for y\nfailed: z: 1 is not 2", 1),
                ("tests", "=" * 70 + "\n" + TRACEBACK.format("AssertionError: timed out after 6 s waiting for a")
                 + "=" * 70 + "\n" + TRACEBACK.format("AssertionError: 1 != 2"), 1),
                ("silent", "ended", 1)):
            with self.subTest(name):
                self.entries = []
                self.script(name, text, "")
                self.assertEqual(self.run_it(self.build)[0], attempts == 1)
                self.assertEqual(len(self.attempts(name)), attempts)

    def test_of_a_script_it_says_which_cases_failed_and_what_they_raised(self):
        line = "=" * 70
        cases = [f"{line}\n{kind}: {case} (__main__.A.{case})\n{'-' * 70}\n{TRACEBACK.format(raised)}" for kind, case, raised
                 in (("FAIL", "test_a", "AssertionError: 1 != 2"), ("ERROR", "test_b", "KeyError: 'step'"))]
        self.script("both", "\n".join([*cases, "FAILED (failures=1, errors=1)"]))
        told = self.run_it(self.build)[2]
        self.assertEqual(told, ["failed: both: test_a: AssertionError: 1 != 2, test_b: KeyError: 'step'"])

    def test_a_second_flaky_case_fails_the_run(self):
        self.program("a_test", slow=[WAITED, ""], other=[WAITED, ""])
        code, last, told = self.run_it(self.build)
        self.assertEqual((code, last), (1, "2 passed, 1 failed, 0 skipped"))
        self.assertIn("failed: flaky cases: 2 were run a second time in one run", told)

    def test_so_do_two_in_two_builds(self):
        self.program("a_test", slow=[WAITED, ""])
        self.assertEqual(self.run_it(self.build)[0], 0)
        code, last, _ = self.run_it("--total", self.build, self.build)
        self.assertEqual((code, last), (1, "2 passed, 1 failed, 0 skipped"))

    def test_a_known_flaky_case_fails_the_run(self):
        self.known.write_text("# comment\nS.slow: the disk is slow\n")
        self.program("a_test", slow=[WAITED, ""], good=[""])
        code, last, told = self.run_it(self.build)
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertTrue(told[0].startswith("failed: S.slow: flaky, as tests/flaky.txt says (the disk is slow):"))

    def test_many_that_time_out_are_not_all_run_again(self):
        self.program("a_test", **{f"slow{i}": [WAITED, ""] for i in range(6)})
        self.assertEqual(self.run_it(self.build)[:2], (1, "3 passed, 4 failed, 0 skipped"))

    def repeated(self, *arguments):
        done = subprocess.run([sys.executable, RUN_TESTS, *arguments, self.build],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout.rstrip("\n").splitlines()

    def test_repeat_counts_and_gives_reasons(self):
        self.program("a_test", label="unit", good=[""], wrong=["", WRONG, ""])
        code, lines = self.repeated("--repeat", "3", "--load", "1", "a_test")
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "a_test: 1 of 3 runs failed, 0 skipped, 1 processes beside it")
        self.assertEqual(lines[-2], "1 times: S.wrong: a.cc:9 1 is not 2")
        self.assertEqual(self.attempts("a_test").count("wrong"), 3)

    def test_repeat_finds_a_case_by_its_name(self):
        self.program("other_test", other=[""])
        self.program("a_test", good=[""], wrong=[WRONG])
        code, lines = self.repeated("--repeat", "2", "S.good")
        self.assertEqual((code, lines[-1]), (0, "S.good: 0 of 2 runs failed, 0 skipped, 0 processes beside it"))
        self.assertEqual(self.attempts("a_test"), ["good", "good"])
        self.assertNotEqual(self.repeated("--repeat", "1", "S.none")[0], 0)

    def test_the_times_of_the_lanes_are_added_up(self):
        self.program("a_test", good=[""])
        self.program("b_test", good=[""])
        self.script("c", "")
        done = subprocess.run([sys.executable, RUN_TESTS, self.build], stdout=subprocess.PIPE, text=True)
        self.assertRegex(done.stdout, r"(?m)^ +\d+\.\d  multiproc  a_test$")
        self.assertRegex(done.stdout, r"(?m)^lane multiproc: \d+ s in 2 entries$")
        self.assertRegex(done.stdout, r"(?m)^lane cluster: \d+ s in 1 entries$")


if __name__ == "__main__":
    unittest.main()
