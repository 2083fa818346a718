#!/usr/bin/env python3
"""Jobs whose model is a program's own: on parameter servers and in a ring, with programs and servers killed, and with
programs that do what they should not."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
PROGRAM = pathlib.Path(__file__).parent / "line_program.py"
LIMIT = 120  # seconds; against hangs only
STEPS = 120

JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: line}}
spec:
  strategy: {strategy}
  {ps}
  runPolicy: {{backoffLimit: 3}}
  worker:
    replicas: {workers}
    template:
      spec:
        containers:
          - name: task
            command: [{python}, {program}]
            env:
              - {{name: PYTHONPATH, value: {site}}}
              - {{name: LINE, value: "{line}"}}
              - {{name: HOLD, value: {folder}}}
  training:
    model: {{name: program}}
    globalBatchSize: 16
    steps: {steps}
    seed: 1
    deterministic: true
    evaluateEverySteps: 50
    checkpoint: {{everySeconds: 1}}
    optimizer: {{name: Momentum, learningRate: 0.05, momentum: 0.9}}
"""


class ProgramRunsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="trainyard-program-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.site = cls.folder / "site"
        shutil.copytree(SOURCE / "python/trainyard", cls.site / "trainyard", ignore=shutil.ignore_patterns("*.pyc"))
        (cls.site / "trainyard/libtrainyard.so").symlink_to((BIN.parent / "lib/libtrainyard.so").resolve())
        cls.expected = None

    def start(self, name, workers=2, servers=2, line=""):
        folder = self.folder / name
        folder.mkdir()
        (folder / "job.yaml").write_text(JOB.format(
            strategy="ParameterServer" if servers else "AllReduce", ps=f"ps: {{replicas: {servers}}}" if servers else "",
            workers=workers, python=sys.executable, program=PROGRAM, site=self.site, line=line, steps=STEPS, folder=folder))
        launcher = subprocess.Popen([BIN / "trainyard", "run", "-f", folder / "job.yaml", "--dir", folder / "run"],
                                    cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.end, launcher)
        return folder / "run", launcher

    @staticmethod
    def end(launcher):
        launcher.kill()
        launcher.wait()
        launcher.stdout.close()

    def logs(self, run):
        return "".join(log.read_text() for log in sorted(run.glob("tasks/*/task.log")))

    def finish(self, run, launcher, code=0):
        output = launcher.communicate(timeout=LIMIT)[0]
        self.assertEqual(launcher.returncode, code, output + self.logs(run))
        return output

    def digest(self, run):
        return subprocess.run([BIN / "trainyard", "checkpoint", "digest", run], stdout=subprocess.PIPE, check=True,
                              text=True, timeout=LIMIT).stdout.split()[0]

    def undisturbed(self):
        if ProgramRunsTest.expected is None:
            run, launcher = self.start("undisturbed")
            self.finish(run, launcher)
            ProgramRunsTest.expected = self.digest(run)
        return ProgramRunsTest.expected

    def uses(self, run):
        """Of the steps that count, how often each place of the stream was read. What a worker took twice counts as
        it did in the later epoch."""
        newest = {}
        for log in run.glob("tasks/worker-*/positions.jsonl"):
            for line in log.read_text().splitlines():
                record = json.loads(line)
                key = log, record["step"]
                newest[key] = max(newest.get(key, record), record, key=lambda one: one["epoch"])
        uses = {}
        for record in newest.values():
            for place in range(record["first"], record["first"] + record["count"]):
                uses[place] = uses.get(place, 0) + 1
        return uses

    def wait_until(self, run, true):
        deadline = time.monotonic() + LIMIT
        while not true():
            self.assertLess(time.monotonic(), deadline, self.logs(run))
            time.sleep(0.005)

    def held(self, name, servers=2):
        """A job whose worker-1 is held in the middle of a step, when all have told of the one before: a worker that
        is killed between a step's end and its line would leave a hole in what `uses` counts."""
        step = STEPS // 4
        run, launcher = self.start(name, servers=servers, line=f"worker-1=hold:{step}")
        told = run / "tasks/worker-0/positions.jsonl"
        self.wait_until(run, (run.parent / "held").exists)
        self.wait_until(run, lambda: any(json.loads(line)["step"] == step - 1
                                         for line in told.read_text().splitlines(keepends=True) if line[-1] == "\n"))
        return run, launcher

    def child(self, run, task):
        """The process of the program: the runtime's child."""
        runtime = json.loads((run / f"tasks/{task}/agent.json").read_text())["childPid"]
        return int(pathlib.Path(f"/proc/{runtime}/task/{runtime}/children").read_text().split()[0])

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

    def runtime(self, run, task):
        return json.loads((run / f"tasks/{task}/agent.json").read_text())["childPid"]

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
        run, launcher = self.start(line.partition("=")[2].partition(":")[0], line=line)
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
