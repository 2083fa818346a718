#!/usr/bin/env python3
"""A PyTorch model of the user's own whose update the job makes: the weights are torch's own, whoever dies, comes and
goes, and with how many servers; and loops that do what they should not."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import unittest

import program_runs
from program_runs import BIN, LIMIT, ProgramRuns


class ServerOptimizerTest(ProgramRuns):
    program = pathlib.Path(__file__).parent / "torch_program.py"
    batch = 32

    def twin(self, name, more="", **given):
        run, launcher = self.start(name, workers=1, PROGRAM="twin" + more, **given)
        self.trained(run, self.finish(run, launcher))
        differs = re.search(r"twin differs by (\S+)", self.logs(run))
        self.assertTrue(differs, self.logs(run))
        self.assertLess(float(differs[1]), 1e-5)

    def test_the_weights_are_those_of_torchs_sgd(self):
        self.twin("twin", servers=2)
        self.assert_hits_recorded(self.folder / "twin" / "run")

    def assert_hits_recorded(self, run):
        """Of its batches' whole numbers of samples, more in the end."""
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        hits = [record["training_accuracy"] * self.batch for record in records if "loss" in record]
        self.assertEqual(hits, [round(each) for each in hits])
        self.assertGreater(hits[-1] / self.batch, self.least)

    def test_the_weights_are_those_of_torchs_sgd_in_a_ring(self):
        self.twin("twin-ring", servers=0)

    def test_any_number_of_servers_gives_the_same_weights(self):
        for servers in (1, 3):
            run, launcher = self.start(f"servers-{servers}", servers=servers)
            self.trained(run, self.finish(run, launcher), self.undisturbed())

    def test_a_loader_that_reads_ahead_gives_the_same_weights(self):
        run, launcher = self.start("workers", PROGRAM="workers")
        self.trained(run, self.finish(run, launcher), self.undisturbed())

    def test_three_workers_in_a_ring(self):
        expected = self.undisturbed(servers=0, workers=3)
        run, launcher = self.start("ring", servers=0, workers=3)
        self.trained(run, self.finish(run, launcher), expected)

    def kill_in_a_step(self, name, whom, **given):
        expected = self.undisturbed(**given)
        run, launcher = self.start(name, PROGRAM="workers,hold", **given)
        self.wait_until_held(run)
        os.kill(whom(run), signal.SIGKILL)
        (run.parent / "go").touch()
        self.trained(run, self.finish(run, launcher), expected)

    def test_a_killed_program_costs_no_step(self):
        self.kill_in_a_step("killed", lambda run: self.child(run, "worker-1"))

    def test_a_killed_program_in_a_ring_costs_no_step(self):
        self.kill_in_a_step("killed-ring", lambda run: self.child(run, "worker-1"), servers=0, workers=3)

    def test_a_killed_server_costs_no_step(self):
        self.kill_in_a_step("killed-server", lambda run: self.runtime(run, "ps-0"))

    def test_all_killed_go_on_from_the_checkpoint(self):
        self.steps = 400  # many more than until there is a checkpoint
        expected = self.undisturbed()
        run, launcher = self.start("all-killed", PROGRAM="slow,hold-kept")
        self.wait_until_held(run)
        launcher.kill()
        launcher.wait()
        (run.parent / "go").touch()
        self.assertTrue(list((run / "checkpoints").glob("step-[1-9]*.json")), "no checkpoint behind the first")
        self.trained(run, self.finish(run, self.launch(run.parent)), expected)

    def scale(self, run, **counts):
        """Edits the running job, and waits until it trains with so many."""
        flags = [part for name, count in counts.items() for part in (f"--{name}", str(count))]
        done = subprocess.run([BIN / "trainyard", "scale", run, *flags], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stdout + self.logs(run))

    def test_workers_and_servers_come_and_go(self):
        self.steps = 400
        run, launcher = self.start("scaled", PROGRAM="slow,workers", servers=2)
        steps = run / "tasks/worker-0/positions.jsonl"

        def taken():
            return steps.read_text().count("\n") if steps.exists() else 0

        for counts in ({"workers": 4}, {"ps": 3}, {"workers": 1}, {"ps": 1}, {"workers": 3}):
            before = taken()
            self.wait_until(run, lambda: taken() > before + 5)
            self.scale(run, **counts)
        (run.parent / "go").touch()
        self.trained(run, self.finish(run, launcher))

    def test_parts_of_a_batch_are_the_whole(self):
        # The twin takes each batch as a whole.
        self.twin("parts", servers=2, more=",parts")

    def test_what_models_have_besides(self):
        for servers in (2, 0):
            run, launcher = self.start(f"mixed-{servers}", PROGRAM="mixed", servers=servers)
            output = self.finish(run, launcher)
            self.assertIn(f"result: succeeded steps={self.steps} ", output)
            states = set(re.findall(r"done program: (.*)", self.logs(run)))
            self.assertEqual(len(states), 1, states)
            # It got no gradient, and SGD leaves it as it was.
            self.assertIn("'idle': 3.0", states.pop())

    def own(self, name, disturb=None, workers=3, more=""):
        """A job whose program makes the update, with what happens to it."""
        expected = self.undisturbed(PROGRAM="own", servers=0, workers=3)
        run, launcher = self.start(name, PROGRAM="own" + more, servers=0, workers=workers)
        if disturb is not None:
            self.wait_until_held(run)
            disturb(run)
            (run.parent / "go").touch()
        self.trained(run, self.finish(run, launcher), expected)
        # Also of those that were started again in the middle.
        told = set(re.findall(r"steps \d+, rate .*", self.logs(run)))
        self.assertEqual(told, {f"steps {self.steps}, rate {0.01 / 2 ** (self.steps // 30):.6f}"})

    def test_an_optimizer_of_its_own(self):
        self.own("own")

    def test_an_optimizer_of_its_own_whose_program_is_killed(self):
        self.own("own-killed", lambda run: os.kill(self.child(run, "worker-1"), signal.SIGKILL), more=",hold,workers")

    def test_an_optimizer_of_its_own_whose_coordinator_is_killed(self):
        self.own("own-chief", lambda run: os.kill(self.runtime(run, "worker-0"), signal.SIGKILL), more=",hold")

    def test_an_optimizer_of_its_own_where_all_are_killed(self):
        self.steps = 400
        expected = self.undisturbed(PROGRAM="own", servers=0, workers=3)
        run, launcher = self.start("own-all", PROGRAM="own,slow,hold-kept", servers=0, workers=3)
        self.wait_until_held(run)
        launcher.kill()
        launcher.wait()
        (run.parent / "go").touch()
        self.trained(run, self.finish(run, self.launch(run.parent)), expected)

    def test_workers_with_an_optimizer_of_their_own_come_and_go(self):
        self.steps = 400
        run, launcher = self.start("own-scaled", PROGRAM="own,slow", servers=0)
        steps = run / "tasks/worker-0/positions.jsonl"
        for workers in (4, 1, 3):
            before = steps.read_text().count("\n") if steps.exists() else 0
            self.wait_until(run, lambda: steps.exists() and steps.read_text().count("\n") > before + 5)
            self.scale(run, workers=workers)
        (run.parent / "go").touch()
        self.trained(run, self.finish(run, launcher))

    def test_a_step_without_samples_for_some(self):
        # 640 = 3 x 213 + 1: of the last step's sample two workers have none, and make the update all the same.
        run, launcher = self.start("tail", PROGRAM="own,parts", servers=0, workers=3, batch=213, length="passes: 1")
        self.assertIn("result: succeeded steps=4 ", self.finish(run, launcher))
        self.assert_each_once(run, 640)
        states = set(re.findall(r"done program: (.*)", self.logs(run)))
        self.assertEqual(len(states), 1, states)

    def test_gradients_leave_while_others_are_computed(self):
        self.steps = 30
        run, launcher = self.start("timeline", PROGRAM="own,wide", servers=0, batch=128, flags=["--timeline"])
        self.assertIn("result: succeeded", self.finish(run, launcher))
        spans = json.loads((run / "timeline.json").read_text().rstrip().rstrip(",") + "]")
        spans = [span for span in spans if span["ph"] == "X" and span["pid"] == 0]
        computed = {span["args"]["step"]: span["ts"] + span["dur"] for span in spans if span["name"] == "compute"}
        left = {span["args"]["step"]: span["ts"] for span in spans if span["name"] == "bucket 0"}
        self.assertEqual(set(computed), set(range(30)))
        early = [step for step in computed if left[step] < computed[step]]
        self.assertGreater(len(early), 15, (computed, left))

    def test_an_optimizer_of_its_own_beside_servers_is_refused(self):
        self.refused("own", "parameter servers make the update")

    def newest(self, run):
        """(epoch, step) of what any worker has told of last."""
        told = [(-1, -1)]
        for path in run.glob("tasks/worker-*/positions.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            records = [json.loads(line) for line in lines[-1:] if line.endswith("\n")]
            told += [(record["epoch"], record["step"]) for record in records]
        return max(told)

    def kill_at_random(self, name, kills, **given):
        """Programs and servers, each when the job has got over the one before. No step is lost, and no bit."""
        self.steps = 400
        expected = self.undisturbed(**given)
        run, launcher = self.start(name, **{**given, "PROGRAM": given.get("PROGRAM", "") + ",slow"})
        chance, before = random.Random(22), (0, 0)
        for _ in range(kills):
            self.wait_until(run, lambda: self.newest(run) > (before[0] + 1, before[1]) if before[0] else
                            self.newest(run) > (0, 5))
            before = self.newest(run)
            victim = chance.choice([path.name for path in sorted(run.glob("tasks/*-*"))])
            pid = self.runtime(run, victim) if victim.startswith("ps-") else self.child(run, victim)
            os.kill(pid, signal.SIGKILL)
        (run.parent / "go").touch()
        output = self.finish(run, launcher)
        self.assertIn(f"result: succeeded steps={self.steps} ", output)
        self.assertEqual(self.digest(run), expected)
        status = json.loads((run / "status.json").read_text())["status"]
        self.assertEqual((status.get("lostSteps", 0), status["restarts"]), (0, kills))

    def test_ten_random_kills(self):
        self.kill_at_random("random", 10)

    def test_ten_random_kills_in_a_ring(self):
        self.kill_at_random("random-ring", 10, servers=0, workers=3, PROGRAM="own")

    def refused(self, what, reason, **given):
        run, launcher = self.start(f"refused-{what}", PROGRAM=what, retries=1, **given)
        output = self.finish(run, launcher, code=1)
        self.assertRegex(output, f"result: failed reason=.*(?:{reason})", self.logs(run))

    def test_an_exception_is_the_jobs_reason(self):
        self.refused("raise", r"worker-1: step 30: ValueError: an image is upside down \(torch_program.py, line \d+: "
                              r"raise ValueError\(\\\"an image is upside down\\\"\)\)")

    def test_a_loss_that_is_not_finite(self):
        self.refused("nan", "worker-1: step 30.*: (?:the gradient is not finite|the loss is nan)")

    def test_a_gradient_that_is_computed_again(self):
        self.refused("twice", "was computed again after it had left")

    def test_a_step_that_is_not_taken(self):
        self.refused("forget", "step 30: its batch was taken, but the optimizer's step")

    def test_another_model_on_one_worker(self):
        self.refused("add", "another model than the job has: .*later.weight")


if __name__ == "__main__":
    program_runs.require_torch()
    unittest.main(verbosity=2)
