#!/usr/bin/env python3
"""Table and picture of bench/bandwidth from values that are made up, and a short run of it."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
FOLDER = SOURCE / "bench" / "bandwidth"
sys.path[:0] = [str(FOLDER), str(SOURCE / "bench" / "pictures")]

import picture  # noqa: E402


def point(who, ranks, size, milliseconds):
    return {"who": who, "ranks": ranks, "bytes": size, "milliseconds": milliseconds}


class Told(unittest.TestCase):
    RESULTS = {"machine": "m", "date": "d", "load": 0.1, "rounds": 1, "points": [
        point("tcp", 4, 1 << 20, 2.0), point("mpi tcp", 4, 1 << 20, 4.0), point("gloo", 4, 1 << 20, 8.0),
        point("tcp", 4, 4096, 0.1), point("mpi tcp", 4, 4096, 0.05), point("copy", 4, 4096, 0.01)]}

    def test_bus_bandwidth(self):
        # Of two, each sends the whole array; of many, nearly twice.
        self.assertEqual(1e9, picture.bus(point("tcp", 2, 10**6, 1.0)))
        self.assertEqual(1.5e9, picture.bus(point("tcp", 4, 10**6, 1.0)))

    def test_table(self):
        text = picture.table(self.RESULTS)
        self.assertIn("| processes, over | | 4 KiB | 1 MiB |", text)
        self.assertIn("| 4, TCP | Trainyard | 0.0614, 0.50x | 0.786, 2.00x |", text)
        self.assertIn("| 4, TCP | Open MPI | 0.123 | 0.393 |", text)
        self.assertIn("| 4, TCP | gloo | 0.197, 0.50x |", text)
        self.assertNotIn("shared memory", text)

    def test_picture(self):
        root = xml.etree.ElementTree.fromstring(picture.svg(self.RESULTS))
        words = [element.text for element in root.iter() if element.tag.endswith("text")]
        self.assertEqual(1, words.count("gloo"))
        self.assertIn("4 processes, TCP", words)


class Run(unittest.TestCase):
    def test_a_short_one(self):
        with tempfile.TemporaryDirectory() as out:
            build = pathlib.Path(os.environ["TRAINYARD_BIN"]).parent
            done = subprocess.run([sys.executable, "-B", FOLDER / "bandwidth.py", "--build", build, "--out", out, "--quick"],
                                  capture_output=True, text=True, timeout=550)
            self.assertEqual(0, done.returncode, done.stderr + done.stdout)
            results = json.loads((pathlib.Path(out) / "results.json").read_text())
            found = {(p["who"], p["ranks"]) for p in results["points"]}
            self.assertLessEqual({(who, ranks) for who in ("tcp", "shared", "staged") for ranks in (2, 4)}, found)
            self.assertTrue(all(p["milliseconds"] > 0 for p in results["points"]))
            self.assertIn(picture.table(results), done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
