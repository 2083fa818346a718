#!/usr/bin/env python3
"""Jobs whose model is a program's own: on parameter servers and in a ring, with programs and servers killed, and with
programs that do what they should not."""
import json
import os
import pathlib
import re
import signal
import subprocess
import unittest

from program_runs import BIN, LIMIT, ProgramRuns

STEPS = 120


class ProgramRunsTest(ProgramRuns):
    program = pathlib.Path(__file__).parent / "line_program.py"
    steps = STEPS

    def held(self, name, servers=2):
        """A job whose worker-1 is held in the middle of a step, when all have told of the one before: a worker that
        is killed between a step's end and its line would leave a hole in what `uses` counts."""
        step = STEPS // 4
        run, launcher = self.start(name, servers=servers, LINE=f"worker-1=hold:{step}")
        told = run / "tasks/worker-0/positions.jsonl"
        self.wait_until(run, (run.parent / "held").exists)
        self.wait_until(run, lambda: any(json.loads(line)["step"] == step - 1
                                         for line in told.read_text().splitlines(keepends=True) if line[-1] == "\n"))
        return run, launcher

    def expect_trained(self, run, output, digest=None):
        self.assertRegex(output, rf"result: succeeded steps={STEPS} accuracy=1\.0000")
        self.assertIn(f"done at step {STEPS}: 3.0", self.logs(run))
        self.assertEqual(self.uses(run), {place: 1 for place in range(16 * STEPS)})
        if digest:
            self.assertEqual(self.digest(run), digest)

    def test_trains_on_servers(self):
        expected = self.undisturbed()
        for servers in (1, 3):
            run, launcher = self.start(f"servers-{servers}", servers=servers)
            self.expect_trained(run, self.finish(run, launcher), expected)

    def test_a_path_that_is_too_long_for_a_socket(self):
        run, launcher = self.start("a-folder-with-a-name-of-more-than-a-hundred-characters-" + "x" * 60)
        self.expect_trained(run, self.finish(run, launcher), self.undisturbed())

    def test_trains_in_a_ring(self):
        run, launcher = self.start("ring", workers=3, servers=0)
        self.expect_trained(run, self.finish(run, launcher))

    def kill_in_a_step(self, name, whom):
        run, launcher = self.held(name)
        os.kill(whom(run), signal.SIGKILL)
        (run.parent / "go").touch()
        output = self.finish(run, launcher)
        self.expect_trained(run, output, self.undisturbed())
        self.assertNotIn("repeated", output + self.logs(run))

    def test_a_killed_program_costs_no_step(self):
        self.kill_in_a_step("killed-program", lambda run: self.child(run, "worker-1"))

    def test_a_killed_program_of_the_chief_costs_no_step(self):
        self.kill_in_a_step("killed-chief", lambda run: self.child(run, "worker-0"))

    def test_a_killed_member_costs_no_step(self):
        self.kill_in_a_step("killed-member", lambda run: self.runtime(run, "worker-1"))

    def test_a_killed_server_costs_no_step(self):
        self.kill_in_a_step("killed-server", lambda run: self.runtime(run, "ps-1"))

    def test_a_killed_coordinator_costs_no_step(self):
        self.kill_in_a_step("killed-coordinator", lambda run: self.runtime(run, "ps-0"))

    def test_goes_on_where_all_were_killed(self):
        run, launcher = self.held("all-killed")
        launcher.kill()
        launcher.wait()
        again = subprocess.run([BIN / "trainyard", "resume", run], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, timeout=LIMIT)
        self.assertEqual(again.returncode, 0, again.stdout + self.logs(run))
        self.expect_trained(run, again.stdout, self.undisturbed())

    def refused(self, line, reason):
        """A job that fails with that reason."""
        run, launcher = self.start(line.partition("=")[2].partition(":")[0], retries=3, LINE=line)
        output = self.finish(run, launcher, code=1)
        self.assertRegex(output, "result: failed reason=.*" + re.escape(reason), self.logs(run))
        return run

    def test_another_model_on_one_worker_is_refused_by_name(self):
        self.refused("worker-1=widen", "another model than the job has: variable 0: slope float32 [4], here slope "
                                       "float32 [3]")

    def test_the_reason_of_a_program_that_gives_up_is_the_jobs(self):
        self.refused("worker-1=abort:60", "ValueError at step 60")

    def test_fewer_samples_than_the_step_has(self):
        self.refused("worker-1=short:60", "worker-1: exit code 3: step 60: 7 samples were computed, it has 8")

    def test_a_program_that_ends_early_is_started_again_but_not_for_ever(self):
        run = self.refused("worker-1=exit:60", "BackoffLimitExceeded: worker-1")
        self.assertIn("the program ended its session before the job was over: exit code 7", self.logs(run))


if __name__ == "__main__":
    unittest.main()
