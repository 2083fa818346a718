"""Jobs whose model is a program's own, in processes: how tests start them, disturb them, and what they look at."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
LIMIT = 120  # seconds; against hangs only

JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {{name: program}}
spec:
  strategy: {strategy}
  {ps}
  runPolicy: {{backoffLimit: 1000}}
  worker:
    replicas: {workers}
    template:
      spec:
        containers:
          - name: task
            command: [{python}, {program}]
            env: {env}
  training:
    model: {{name: program}}
    globalBatchSize: {batch}
    {length}
    seed: 1
    deterministic: true
    evaluateEverySteps: 50
    checkpoint: {{everySeconds: 1}}
    optimizer: {optimizer}
"""


class ProgramRuns(unittest.TestCase):
    """Jobs of `program`, which takes `steps` steps and finds its package."""

    program = pathlib.Path()
    steps = 120
    batch = 16
    optimizer = "{name: Momentum, learningRate: 0.05, momentum: 0.9}"
    python = sys.executable
    least = 0.8  # accuracy of trained()

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="trainyard-program-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.site = cls.folder / "site"
        shutil.copytree(SOURCE / "python/trainyard", cls.site / "trainyard", ignore=shutil.ignore_patterns("*.pyc"))
        (cls.site / "trainyard/libtrainyard.so").symlink_to((BIN.parent / "lib/libtrainyard.so").resolve())
        cls.expected = {}
        cls.once = threading.RLock()  # for what several cases need and one computes

    def start(self, name, workers=2, servers=2, retries=None, batch=None, length=None, fields="", flags=(),
              **variables):
        """(The run's folder, the process of `trainyard run` with `flags`). The program finds `variables` in its
        environment, and in HOLD the folder above. `length`: the job's field, in place of `steps`; `fields`: more of
        `training`, a line each."""
        folder = self.folder / name
        folder.mkdir()
        told = {"PYTHONPATH": str(self.site), "HOLD": str(folder), "OMP_NUM_THREADS": "1", **variables}
        env = json.dumps([{"name": key, "value": value} for key, value in told.items()])
        text = JOB.format(
            strategy="ParameterServer" if servers else "AllReduce", ps=f"ps: {{replicas: {servers}}}" if servers else "",
            workers=workers, python=self.python, program=self.program, env=env, batch=batch or self.batch,
            length=length or f"steps: {self.steps}", optimizer=self.optimizer)
        if retries is not None:
            text = text.replace("backoffLimit: 1000", f"backoffLimit: {retries}")
        text += "".join(f"    {line}\n" for line in fields.splitlines())
        (folder / "job.yaml").write_text(text, encoding="utf-8")
        return folder / "run", self.launch(folder, flags)

    def launch(self, folder, flags=()):
        """Starts the job, or goes on with it."""
        command = [BIN / "trainyard", "run", "-f", folder / "job.yaml", "--dir", folder / "run", *flags]
        launcher = subprocess.Popen(command,
                                    cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.end, launcher)
        return launcher

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

    def undisturbed(self, **given):
        """The digest of the job that nothing happens to."""
        key = json.dumps([self.steps, given], sort_keys=True)
        with self.once:
            if key not in self.expected:
                run, launcher = self.start(f"undisturbed-{len(self.expected)}", **given)
                self.finish(run, launcher)
                self.expected[key] = self.digest(run)
            return self.expected[key]

    def trained(self, run, output, digest=None, each_once=True):
        """It has taken all of its steps, learned, and read every place of the stream once."""
        accuracy = re.search(rf"result: succeeded steps={self.steps} accuracy=(\S+)", output)
        self.assertTrue(accuracy, output + self.logs(run))
        self.assertGreater(float(accuracy[1]), self.least)
        if each_once:
            self.assert_each_once(run, self.batch * self.steps)
        if digest:
            self.assertEqual(self.digest(run), digest)

    def assert_each_once(self, run, places):
        """The steps that count have read each of so many places of the stream once, and no other."""
        uses = self.uses(run)
        wrong = {place: times for place, times in uses.items() if times != 1 or place >= places}
        wrong |= {place: 0 for place in range(places) if place not in uses}
        self.assertFalse(wrong, "places of the stream, and how often they were read")

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

    def wait_until_held(self, run):
        """Until a program is held in the middle of a step and all workers have told of the one before: a worker that
        is killed between a step's end and its line would leave a hole in what `uses` counts."""
        self.wait_until(run, (run.parent / "held").exists)
        workers = list(run.glob("tasks/worker-*"))
        self.wait_until(run, lambda: len({self.last_told(worker) for worker in workers}) == 1)

    @staticmethod
    def last_told(task):
        """The step of the last whole line of a worker's; -1: none."""
        told = task / "positions.jsonl"
        lines = told.read_text().splitlines(keepends=True) if told.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        return json.loads(whole[-1])["step"] if whole else -1

    def wait_until(self, run, true):
        deadline = time.monotonic() + LIMIT
        while not true():
            self.assertLess(time.monotonic(), deadline, self.logs(run))
            time.sleep(0.005)

    def child(self, run, task):
        """The process of the program: the runtime's child."""
        runtime = json.loads((run / f"tasks/{task}/agent.json").read_text())["childPid"]
        return int(pathlib.Path(f"/proc/{runtime}/task/{runtime}/children").read_text().split()[0])

    def runtime(self, run, task):
        return json.loads((run / f"tasks/{task}/agent.json").read_text())["childPid"]


def require_torch():
    """Ends the process as a skipped test where there is none."""
    try:
        import torch  # noqa: F401
    except ImportError:
        print("torch is not installed (Debian: python3-torch)")
        sys.exit(77)
