#!/usr/bin/env python3
"""bench/sparse: the file that all read, as our own reader and records.read see it, and the table.

sparse_test.py VENV: makes the virtual environment VENV with the wheels of deploy/wheels.txt, for NumPy. Skips what needs
it when the package index cannot be reached.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
FOLDER = SOURCE / "bench" / "sparse"
sys.path[:0] = [str(FOLDER), str(SOURCE / "deploy")]

import compare  # noqa: E402
from venv_of import make_venv  # noqa: E402

SAMPLES, IDS = 3000, 50
READ = """
import json, sys
sys.path.insert(0, sys.argv[1])
import records
take, samples = records.read(sys.argv[2], records.Layout())
ids, numbers, labels = take(0, samples)
print(json.dumps([samples, ids.min(0).tolist(), ids.max(0).tolist(), float(numbers.std()), float(labels.mean()),
                  records._crc(b"123456789")]))
"""


class Records(unittest.TestCase):
    python = None

    def setUp(self):
        if Records.python is None:
            self.skipTest("no wheels: the package index cannot be reached")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.file = self.folder / "clicks.tfrecord"
        subprocess.run([Records.python, "-B", FOLDER / "records.py", self.file, "--samples", str(SAMPLES), "--ids", str(IDS)],
                       check=True)

    def train(self):
        """A job of ours that looks at every sample."""
        args = types.SimpleNamespace(file=self.file, ids=IDS, steps=2, replicas="Auto")
        job = compare.job(args, "wide_and_deep", "sync", "Adagrad")
        job["spec"]["training"]["batchSize"] = SAMPLES // compare.WORKERS
        (self.folder / "job.json").write_text(json.dumps(job))
        return subprocess.run([BIN / "trainyard", "run", "-f", self.folder / "job.json", "--dir", self.folder / "run",
                               "--volume", f"data={self.folder}"], capture_output=True, text=True, timeout=300)

    def test_without_a_parser(self):
        printed = subprocess.run([Records.python, "-B", "-c", READ, FOLDER, self.file], check=True, capture_output=True,
                                 text=True).stdout
        samples, least, most, spread, clicked, crc = json.loads(printed)
        self.assertEqual(SAMPLES, samples)
        self.assertEqual([i * IDS for i in range(26)], least, "the most frequent id of each column")
        self.assertTrue(all(i * IDS + IDS // 2 < id < (i + 1) * IDS for i, id in enumerate(most)), most)
        self.assertAlmostEqual(1, spread, delta=0.05)
        self.assertTrue(0.05 < clicked < 0.95, clicked)
        self.assertEqual(0xE3069283, crc, "CRC-32C's check value")

    def test_our_reader_takes_it(self):
        done = self.train()
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_and_finds_a_byte_that_is_wrong(self):
        data = bytearray(self.file.read_bytes())
        data[len(data) // 2] ^= 1
        self.file.write_bytes(data)
        done = self.train()
        self.assertNotEqual(0, done.returncode)
        self.assertIn("clicks.tfrecord", done.stdout + done.stderr)


class Table(unittest.TestCase):
    def result(self, model, ours, theirs, peer="tensorflow", mode="sync"):
        return {"peer": peer, "model": model, "mode": mode, "ours": [{"steps_per_second": ours}],
                "theirs": [{"steps_per_second": theirs}]}

    def test_less_what_there_is_without_tables(self):
        text = compare.table([self.result("wide_and_deep", 10, 5), self.result("dense", 20, 10)])
        self.assertIn("| wide_and_deep, sync, Adagrad | 20,480 | TensorFlow 10,240 | 2.00x | >= 2.0x | reached |", text)
        # 50 ms a step for our tables, 100 for theirs.
        self.assertIn("tables alone | 40,960 | TensorFlow 20,480 | 2.00x | >= 2.0x | reached |", text)
        self.assertIn("| dense, sync, Adagrad | 40,960 | TensorFlow 20,480 | 2.00x |  |  |", text)

    def test_a_step_of_async_is_one_batch(self):
        text = compare.table([self.result("wide_and_deep", 10, 9, "paddle", "async")])
        self.assertIn("| wide_and_deep, async, SGD | 10,240 | PaddlePaddle 9,216 | 1.11x | >= 1.2x | missed |", text)


if __name__ == "__main__":
    Records.python = make_venv(pathlib.Path(sys.argv.pop(1)), SOURCE / "deploy" / "wheels.txt")
    unittest.main(verbosity=2)
