#!/usr/bin/env python3
"""Jobs whose model is a program's own: on parameter servers and in a ring, with programs and servers killed, and with
programs that do what they should not."""
import json
import os
import pathlib
import re
import signal
import subprocess

import side_by_side
from program_runs import BIN, LIMIT, ProgramRuns

STEPS = 120
LONG = 1500  # more than in the time until a checkpoint is taken, in steps of the program's PACE


class ProgramRunsTest(ProgramRuns):
    program = pathlib.Path(__file__).parent / "line_program.py"
    steps = STEPS
    longest = ("test_tells_whom_it_waits_for_until_the_model_is_declared",
               "test_a_program_that_ends_early_is_started_again_but_not_for_ever")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.own = {}

    def start(self, name, workers=2, servers=2, line="", update="", **given):
        return super().start(name, workers, servers, LINE=line, UPDATE=update, **given)

    def held(self, name, servers=2):
        """A job whose worker-1 is held in the middle of a step."""
        run, launcher = self.start(name, servers=servers, line=f"worker-1=hold:{STEPS // 4}")
        self.wait_until_held(run)
        return run, launcher

    def expect_trained(self, run, output, digest=None, steps=STEPS):
        self.assertRegex(output, rf"result: succeeded steps={steps} accuracy=1\.0000")
        self.assertRegex(self.logs(run), rf"done at step {steps}: (3\.0|2\.99)")
        self.assert_each_once(run, 16 * steps)
        if digest:
            self.assertEqual(self.digest(run), digest)

    def test_trains_on_servers(self):
        expected = self.undisturbed()
        for servers in (1, 3):
            run, launcher = self.start(f"servers-{servers}", servers=servers)
            self.expect_trained(run, self.finish(run, launcher), expected)

    def test_one_task_alone_has_the_disk(self):
        """What worker-0's program declares reaches the servers by ps-0, which waits for it."""
        run, launcher = self.start("one-disk", flags=["--set", "storage.access=Coordinator"])
        self.expect_trained(run, self.finish(run, launcher), self.undisturbed())

    def test_a_path_that_is_too_long_for_a_socket(self):
        run, launcher = self.start("a-folder-with-a-name-of-more-than-a-hundred-characters-" + "x" * 60)
        self.expect_trained(run, self.finish(run, launcher), self.undisturbed())

    def test_tells_whom_it_waits_for_until_the_model_is_declared(self):
        run, launcher = self.start("declaring", line="worker-0=hold-declare", flags=["--log-format", "json"])
        told = {}
        while set(told.values()) != {"declaring"} or len(told) != 4:
            record = json.loads(launcher.stdout.readline())
            told = {task["task"]: task["state"] for task in record.get("tasks", [])}
        (run.parent / "go").touch()
        self.finish(run, launcher)

    def test_trains_in_a_ring(self):
        run, launcher = self.start("ring", workers=3, servers=0)
        self.expect_trained(run, self.finish(run, launcher))

    def ends(self, run, steps=STEPS):
        """What the programs had in the end, the same of all, and how many they were."""
        ends = re.findall(rf"done at step {steps}: (.*)", self.logs(run))
        self.assertEqual(len(set(ends)), 1, ends)
        return [float(value) for value in ends[0].split()], len(ends)

    def test_makes_the_update_itself(self):
        run, launcher = self.start("jobs-update", workers=3, servers=0)
        self.expect_trained(run, self.finish(run, launcher))
        expected, _ = self.ends(run)
        run, launcher = self.start("own-update", workers=3, servers=0, update="own")
        self.expect_trained(run, self.finish(run, launcher))
        values, workers = self.ends(run)
        self.assertEqual(workers, 3)
        for value, wanted in zip(values, expected):
            self.assertAlmostEqual(value, wanted, delta=1e-5)
        self.assertIn(STEPS, self.states(run))
        manifest = json.loads(max((run / "checkpoints").glob(f"step-{STEPS}.*.json")).read_text())
        self.assertEqual((manifest["optimizer"], manifest["slots"]), ("the program's own", []))

    def test_a_worker_without_samples_makes_the_update_too(self):
        # Three steps of 170 samples, and one of the two that are left of two passes. Where the job makes the update,
        # a program with state is told of all steps all the same.
        for update in ("own", "counted"):
            run, launcher = self.start("standing-" + update, workers=3, servers=0, update=update, batch=170,
                                       length="passes: 2")
            self.finish(run, launcher)
            _, workers = self.ends(run, steps=4)
            self.assertEqual(workers, 3)
            self.assert_each_once(run, 512)

    def own_update(self, steps=STEPS):
        """The digest of a ring of three that is not disturbed."""
        with self.once:
            if steps not in ProgramRunsTest.own:
                run, launcher = self.start(f"own-undisturbed-{steps}", workers=3, servers=0, update="own",
                                           length=f"steps: {steps}")
                self.expect_trained(run, self.finish(run, launcher), steps=steps)
                ProgramRunsTest.own[steps] = self.digest(run)
            return ProgramRunsTest.own[steps]

    def states(self, run):
        return {int(path.name.split("-")[2].split(".")[0]) for path in run.glob("checkpoints/program-state.step-*.bin")}

    def kept_buffers(self, run):
        return {int(path.name.split("-")[1].split(".")[0]) for path in run.glob("checkpoints/buffers.step-*.safetensors")}

    def manifests(self, run):
        return {int(path.name.split("-")[1].split(".")[0]) for path in run.glob("checkpoints/step-*.json")}

    def kill_in_a_ring(self, name, line, whom, told=True):
        """A ring of three in which a program that is held is killed; `told`: its worker has written down all steps
        that count."""
        run, launcher = self.start(name, workers=3, servers=0, update="own", line=line)
        if told:
            self.wait_until_held(run)
        else:
            self.wait_until(run, (run.parent / "held").exists)
        os.kill(whom(run), signal.SIGKILL)
        (run.parent / "go").touch()
        output = self.finish(run, launcher)
        if told:
            self.expect_trained(run, output, self.own_update())
        self.assertEqual(self.digest(run), self.own_update())
        self.assertEqual(self.ends(run)[1], 3)
        return run

    def test_a_killed_program_gets_the_state_of_another(self):
        run = self.kill_in_a_ring("killed-state", "worker-1=hold:40", lambda run: self.child(run, "worker-1"))
        self.assertIn("load at step 40", (run / "tasks/worker-1/task.log").read_text())

    def test_a_killed_chief_gets_the_state_of_another(self):
        run = self.kill_in_a_ring("killed-chief-state", "worker-0=hold:40", lambda run: self.child(run, "worker-0"))
        self.assertIn("load at step 40", (run / "tasks/worker-0/task.log").read_text())

    def test_a_program_that_dies_between_sum_and_commit_costs_no_step(self):
        run = self.kill_in_a_ring("killed-summed", "worker-1=hold-summed:40", lambda run: self.child(run, "worker-1"),
                                  told=False)
        self.assertIn("load at step 41", (run / "tasks/worker-1/task.log").read_text())

    def test_a_program_that_dies_as_it_hands_its_state_over(self):
        # At the job's beginning worker-0's goes to the others.
        self.kill_in_a_ring("killed-save", "worker-0=hold-save:0", lambda run: self.child(run, "worker-0"))

    def test_a_program_that_dies_as_it_takes_a_state_over(self):
        self.kill_in_a_ring("killed-load", "worker-1=hold-load:0", lambda run: self.child(run, "worker-1"))

    def all_killed(self, name, servers, update, workers=3):
        """A job that is resumed at a checkpoint of a step between the first and the last."""
        run, launcher = self.start(name, workers=workers, servers=servers, update=update, line="worker-1=hold-kept",
                                   length=f"steps: {LONG}")
        self.wait_until_held(run)
        launcher.kill()
        launcher.wait()
        return run

    def resume(self, run, code=0):
        return self.finish(run, self.launch(run.parent), code)

    def test_a_ring_goes_on_with_its_programs_state_where_all_were_killed(self):
        run = self.all_killed("all-killed-state", 0, "own")
        newest = max(self.manifests(run))
        self.assertLessEqual(self.manifests(run), self.states(run))
        self.expect_trained(run, self.resume(run), self.own_update(LONG), steps=LONG)
        for worker in range(3):
            self.assertIn(f"load at step {newest}", (run / f"tasks/worker-{worker}/task.log").read_text())
        # Of the samples that a worker reads of 16, and of those that were read before all were killed.
        self.assertIn(f"seen {6 * LONG} samples", (run / "tasks/worker-0/task.log").read_text())
        self.assertLessEqual(self.manifests(run), self.kept_buffers(run))
        # Those of the checkpoints that are kept, and two more at most.
        self.assertLessEqual(self.manifests(run), self.states(run))
        self.assertLessEqual(len(self.states(run)), 7)

    def test_a_checkpoint_without_its_programs_state_is_named(self):
        run = self.all_killed("state-lost", 0, "own")
        lost = run / f"checkpoints/program-state.step-{max(self.manifests(run))}.bin"
        lost.unlink()
        self.assertRegex(self.resume(run, code=1), f"result: failed reason=.*{re.escape(str(lost))}: No such file")

    def test_state_on_servers(self):
        run = self.all_killed("state-servers", 2, "kept", workers=2)
        checkpoint = max(self.manifests(run))
        newest = max(step for step in self.states(run) if step <= checkpoint)
        self.expect_trained(run, self.resume(run), steps=LONG)
        for worker in range(2):
            self.assertIn(f"load at step {newest}", (run / f"tasks/worker-{worker}/task.log").read_text())
        self.assertIn(LONG, self.states(run))

    def scale(self, run, workers):
        scaled = subprocess.run([BIN / "trainyard", "scale", run, "--workers", str(workers)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        self.assertEqual(scaled.returncode, 0, scaled.stdout + self.logs(run))

    def test_state_goes_to_workers_that_join(self):
        # Every step checks that weights and state belong together. It would go on for hours.
        run, launcher = self.start("state-scaled", workers=2, servers=0, update="own", length="steps: 10000000")
        told = run / "tasks/worker-1/positions.jsonl"
        self.wait_until(run, lambda: told.exists() and told.read_text())
        self.scale(run, 3)
        joined = run / "tasks/worker-2/task.log"
        self.wait_until(run, lambda: joined.exists() and "load at step" in joined.read_text())
        self.scale(run, 1)
        self.wait_until(run, lambda: len(re.findall("left at step", self.logs(run))) == 2)
        suspended = subprocess.run([BIN / "trainyard", "suspend", run], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, timeout=LIMIT)
        self.assertEqual(suspended.returncode, 0, suspended.stdout + self.logs(run))
        launcher.communicate(timeout=LIMIT)
        stopped = re.search(r"stopped at step (\d+)", self.logs(run))
        self.assertTrue(stopped, self.logs(run))
        self.assertIn(int(stopped.group(1)), self.states(run) & self.manifests(run))

    def test_servers_leave_no_update_to_a_program(self):
        run, launcher = self.start("own-on-servers", update="own")
        self.assertRegex(self.finish(run, launcher, code=1), "result: failed reason=.*parameter servers make the update")
        self.assertFalse((run / "checkpoints/model.safetensors").exists())

    def kill_in_a_step(self, name, whom):
        run, launcher = self.held(name)
        os.kill(whom(run), signal.SIGKILL)
        (run.parent / "go").touch()
        output = self.finish(run, launcher)
        self.expect_trained(run, output, self.undisturbed())
        self.assertNotIn("repeated", output + self.logs(run))
        return run

    def test_a_killed_program_costs_no_step(self):
        run = self.kill_in_a_step("killed-program", lambda run: self.child(run, "worker-1"))
        self.assertRegex((run / "tasks/worker-1/task.log").read_text(), r"agent: process \d+ ended: exit code 137")

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
        # In the foreground, which `resume` is not where the launcher is gone.
        self.expect_trained(run, self.finish(run, self.launch(run.parent)), self.undisturbed())

    def refused(self, line, reason):
        """A job that fails with that reason."""
        run, launcher = self.start(line.partition("=")[2].partition(":")[0], line=line, retries=3)
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
    side_by_side.main(at_once=4)
