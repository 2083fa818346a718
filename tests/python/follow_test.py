"""`trainyard checkpoint follow` and the store that reads it (examples/serving): what it has in the end is what the job has,
whoever has died meanwhile."""
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

import side_by_side

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
STORE = SOURCE / "examples/serving/rows_store.py"
sys.path.insert(0, str(STORE.parent))
import rows_store  # noqa: E402

LIMIT = 120  # seconds; against hangs only
JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: followed}
spec:
  ps: {replicas: 2}
  worker: {replicas: 2}
  training:
    model: {name: wide_and_deep, hidden: [16, 8]}
    data:
      format: synthetic_ctr
      columns:
      - {name: user, kind: Id, ids: 3000}
      - {name: age, kind: Number}
      - {name: click, kind: Label}
      samples: 20000
    tables:
    - {name: user, features: [user], dim: 4, rows: {max: 10000}, initial: {distribution: Uniform, scale: 0.01},
       admit: {occurrences: 2}, evict: {afterSteps: 20, everySteps: 4}}
    batchSize: 32
    steps: STEPS
    seed: 3
    optimizer: {name: Adagrad, learningRate: 0.05}
    chunkReplicas: REPLICAS
    checkpoint: {everySeconds: 1, keep: 2FULL}
"""


class FollowTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="trainyard-follow-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.run_dir = self.folder / "run"
        # While it is there, a step takes so long that a job has many checkpoints yet to come.
        self.slow = self.folder / "slow"
        self.slow.touch()
        self.told = self.folder / "told"

    def launch(self, steps=300, full=3600, replicas="Auto"):
        text = JOB.replace("STEPS", str(steps)).replace("REPLICAS", replicas)
        text = text.replace("FULL", f", full: {{everySeconds: {full}}}" if full else "")
        (self.folder / "job.yaml").write_text(text, encoding="utf-8")
        job = subprocess.Popen([BIN / "trainyard", "run", "-f", self.folder / "job.yaml", "--dir", self.run_dir],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "TRAINYARD_FAILPOINTS": f"worker.compute=delay(100),while={self.slow}"})
        self.addCleanup(self.end, job)
        return job

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def wait_until(self, true):
        end = time.monotonic() + LIMIT
        while not true():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def kept(self):
        """The steps of which there are checkpoints."""
        return {int(path.name.split("-")[1].split(".")[0]) for path in (self.run_dir / "checkpoints").glob("step-*.json")}

    def follow(self, *flags, output="pieces"):
        return [BIN / "trainyard", "checkpoint", "follow", self.run_dir, "-o", self.folder / output, *flags]

    def keep(self, *flags, pieces=0, first=lambda: None):
        """The store beside the job, as the example says; its lines. With `pieces` the job may come to its end when the
        store has told of so many, after `first` is done."""
        follow = subprocess.Popen(self.follow(*flags), stdout=subprocess.PIPE, cwd=self.folder)
        self.addCleanup(self.end, follow)
        with open(self.told, "w", encoding="utf-8") as told:
            self.store = subprocess.Popen([sys.executable, STORE, self.folder / "rows.db"], stdin=follow.stdout, stdout=told)
        self.addCleanup(self.end, self.store)
        if pieces:
            first()
            self.wait_for_pieces(pieces)
            self.slow.unlink()
        self.assertEqual(self.store.wait(LIMIT), 0)
        self.assertEqual(follow.wait(LIMIT), 0)
        return self.told.read_text().splitlines()

    def wait_for_pieces(self, count):
        """Until the store has told of so many, which it does while the job goes on."""
        def there():
            ended = self.store.poll()
            told = self.told.read_text()
            self.assertTrue(ended is None or told.count("\n") >= count, f"the store ended with {ended}: {told}")
            return told.count("\n") >= count

        self.wait_until(there)

    def kill_a_server(self):
        """When the store has the rows of step 0 and of one that was taken."""
        self.wait_for_pieces(2)
        server = json.loads((self.run_dir / "tasks/ps-1/agent.json").read_text())["childPid"]
        os.kill(server, signal.SIGKILL)

    def pieces(self, *flags, code=0, output="pieces"):
        done = subprocess.run(self.follow(*flags, output=output), text=True, capture_output=True, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def exported(self):
        """(Rows by id, global step) of the newest checkpoint."""
        path = self.folder / "whole.safetensors"
        subprocess.run([BIN / "trainyard", "checkpoint", "export", self.run_dir, "-o", path], check=True,
                       stdout=subprocess.DEVNULL, timeout=LIMIT)
        arrays, metadata = rows_store.read_arrays(path)
        _, (_, dim), data = arrays["user/rows"]
        ids = rows_store.ids_of(arrays, "user/ids")
        rows = {each: data[4 * dim * i:4 * dim * (i + 1)] for i, each in enumerate(ids)}
        return rows, {name: array[2] for name, array in arrays.items() if "/" not in name}, int(metadata["trainyard.step"])

    def assert_store_has_the_job(self):
        store = sqlite3.connect(self.folder / "rows.db")
        self.addCleanup(store.close)
        rows, variables, step = self.exported()
        self.assertEqual(dict(store.execute("SELECT id, weights FROM rows WHERE name = 'user'")), rows)
        self.assertEqual(dict(store.execute("SELECT name, weights FROM variables")), variables)
        self.assertEqual(store.execute("SELECT step FROM state").fetchone()[0], step)

    def test_the_store_keeps_up_with_deltas(self):
        job = self.launch()
        self.wait_until((self.run_dir / "checkpoints").exists)
        lines = self.keep(pieces=4)
        self.assertEqual(job.wait(LIMIT), 0, job.stdout.read())
        self.assertGreater(len(lines), 3, lines)
        self.assert_store_has_the_job()

    def test_whole_checkpoints_are_compared(self):
        job = self.launch(full=None)
        self.wait_until((self.run_dir / "checkpoints").exists)
        self.assertGreater(len(self.keep(pieces=4)), 3)
        self.assertEqual(job.wait(LIMIT), 0, job.stdout.read())
        self.assert_store_has_the_job()

    def test_a_server_dies_and_the_job_goes_back(self):
        job = self.launch(replicas="Never")
        self.wait_until((self.run_dir / "checkpoints").exists)
        self.assertGreater(len(self.keep(pieces=4, first=self.kill_a_server)), 3)
        self.assertEqual(job.wait(LIMIT), 0, job.stdout.read())
        self.assertGreater(json.loads((self.run_dir / "status.json").read_text())["status"]["restarts"], 0)
        self.assert_store_has_the_job()

    def test_later_from_what_is_there(self):
        job = self.launch()
        self.wait_until(lambda: len(self.kept()) >= 2)
        self.keep("--once")
        found = subprocess.run([sys.executable, STORE, self.folder / "rows.db", "--step"], text=True,
                               stdout=subprocess.PIPE, timeout=LIMIT, check=True)
        since = int(found.stdout)
        self.wait_until(lambda: max(self.kept()) > since)
        self.keep("--since", str(since), pieces=1)
        self.assertEqual(job.wait(LIMIT), 0, job.stdout.read())
        self.assert_store_has_the_job()
        (last,), _ = self.pieces("--once", output="all")
        self.assertIsNone(last["since"])
        none, told = self.pieces("--once", "--since", str(last["step"]), output="none")
        self.assertEqual((none, told), ([], ""))
        gone = min(set(range(1, last["step"])) - self.kept())
        (all_rows,), told = self.pieces("--once", "--since", str(gone), output="unknown")
        self.assertIsNone(all_rows["since"])
        self.assertIn(f"there is no checkpoint of step {gone} any more: all rows come first", told)

    def test_wrong_places_are_named(self):
        done = subprocess.run([BIN / "trainyard", "checkpoint", "follow", self.folder / "nothing", "-o", self.folder / "out"],
                              text=True, capture_output=True, timeout=LIMIT, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no such directory", done.stderr)
        self.slow.unlink()
        job = self.launch(steps=5)
        self.assertEqual(job.wait(LIMIT), 0)
        (self.folder / "file").touch()
        none, told = self.pieces("--once", code=2, output="file")
        self.assertEqual(none, [])
        self.assertIn("file", told)

    def test_it_ends_with_ctrl_c(self):
        job = self.launch(steps=100000)
        self.wait_until((self.run_dir / "checkpoints").exists)
        follow = subprocess.Popen(self.follow(), stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, follow)
        self.assertIn('"step":0', follow.stdout.readline())
        follow.send_signal(signal.SIGINT)
        self.assertEqual(follow.wait(LIMIT), -signal.SIGINT)
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(LIMIT), 130)


if __name__ == "__main__":
    side_by_side.main(at_once=3, verbosity=2)
