#!/usr/bin/env python3
"""Jobs whose model is a program's own with embedding tables on the parameter servers: rows that it has looked up ahead
or not, with programs and servers killed, and programs that do what they should not."""
import json
import os
import pathlib
import re
import signal

import side_by_side
from program_runs import ProgramRuns

TABLE = "tables: [{name: rows, dim: 2, rows: {max: 100000}}]"
MODES = {"Async": ["update.mode=Async"], "BoundedDelay": ["update.mode=BoundedDelay", "update.maxDelay=2"],
         "backup workers": ["update.backupWorkers=1"]}


class TablesTest(ProgramRuns):
    program = pathlib.Path(__file__).parent / "table_program.py"
    optimizer = "{name: SGD, learningRate: 0.5}"
    steps, least = 200, 0.9
    longest = ("test_modes_in_which_nobody_waits_for_all",)

    def start(self, name, **given):
        return super().start(name, fields=TABLE, **given)

    def refused(self, name, *texts, retries=0, **given):
        run, launcher = self.start(name, retries=retries, **given)
        launcher.communicate(timeout=120)
        self.assertNotEqual(launcher.returncode, 0)
        for text in texts:
            self.assertIn(text, self.logs(run))

    def test_any_number_of_servers_and_rows_looked_up_ahead_give_one_result(self):
        for name, given in {"one": {"servers": 1}, "three": {"servers": 3}, "ahead": {"TABLE": "ahead"},
                            "wrong": {"TABLE": "wrong"}}.items():
            run, launcher = self.start(name, **given)
            self.trained(run, self.finish(run, launcher), self.undisturbed())

    def test_rows_are_those_of_plain_descent(self):
        for name in ("twin", "twin,ahead"):
            run, launcher = self.start(name, workers=1, TABLE=name)
            self.trained(run, self.finish(run, launcher))
            differs = re.findall(r"twin differs by (\S+)", self.logs(run))
            self.assertTrue(differs, self.logs(run))
            self.assertLess(max(map(float, differs)), 1e-4)

    def test_a_killed_program_costs_no_step(self):
        for more in ("", ",ahead"):
            run, launcher = self.start(f"killed{more}", TABLE=f"hold{more}")
            self.wait_until_held(run)
            os.kill(self.child(run, "worker-1"), signal.SIGKILL)
            (run.parent / "go").touch()
            self.trained(run, self.finish(run, launcher), self.undisturbed())

    def test_a_killed_server_costs_no_step_and_all_killed_go_on_from_the_checkpoint(self):
        for name, whom in {"server": "ps-1", "all": None}.items():
            run, launcher = self.start(f"killed-{name}", TABLE="slow,hold-kept")
            self.wait_until_held(run)
            if whom:
                os.kill(self.runtime(run, whom), signal.SIGKILL)
            else:
                launcher.kill()
                launcher.wait()
                launcher = None
            (run.parent / "go").touch()
            self.trained(run, self.finish(run, launcher or self.launch(run.parent)), self.undisturbed())
            if whom:
                status = json.loads((run / "status.json").read_text())["status"]
                self.assertEqual(status.get("lostSteps", 0), 0)

    def test_modes_in_which_nobody_waits_for_all(self):
        self.steps = 1000  # of one worker's samples
        # Lower than elsewhere: on a busy machine a gradient may be of weights from long ago.
        common = ["deterministic=false", "optimizer.learningRate=0.15"]
        for name, settings in MODES.items():
            flags = [word for one in common + settings for word in ("--set", f"training.{one}")]
            # Beside each other, so that a mode takes the time of one.
            for run, launcher in [self.start(f"{name} {more}", flags=flags, workers=3, TABLE=more)
                                  for more in ("", "ahead")]:
                self.trained(run, self.finish(run, launcher), each_once=False)

    def test_a_gradient_that_is_no_number_is_named(self):
        run, launcher = self.start("nan", TABLE="nan")
        output = launcher.communicate(timeout=120)[0]
        self.assertEqual(launcher.returncode, 1, output + self.logs(run))
        self.assertRegex(output, r'failed reason="ProgramFailed: .*step 30: table rows: the gradient of id 10\d\d is not finite')

    def test_a_full_table_is_named(self):
        run, launcher = ProgramRuns.start(self, "full", fields=TABLE.replace("100000", "40"), TABLE="many")
        output = launcher.communicate(timeout=120)[0]
        self.assertEqual(launcher.returncode, 1, output + self.logs(run))
        self.assertRegex(output, r'failed reason="TableFull: .*table rows: .* rows\.max is 40')

    def test_what_must_not_be(self):
        self.refused("bad-id", "ids are whole numbers of 64 bits", TABLE="bad-id")
        self.refused("bad-table", "the job has no table 'faults'; there are rows", TABLE="bad-table")
        self.refused("outside", "this belongs into the loop of job.steps()", TABLE="outside")
        run, launcher = ProgramRuns.start(self, "none", retries=0)
        launcher.communicate(timeout=120)
        self.assertIn("the job has no table 'rows'; there are none", self.logs(run))


if __name__ == "__main__":
    side_by_side.main(at_once=3, verbosity=2)
