#!/usr/bin/env python3
"""Curves, table and picture of bench/convergence from values that are made up, and a short run of it."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
FOLDER = SOURCE / "bench" / "convergence"
sys.path[:0] = [str(FOLDER), str(SOURCE / "bench" / "pictures")]

import chart  # noqa: E402
import curves  # noqa: E402
import picture  # noqa: E402

RECORDS = [{"step": 1, "train_seconds": 0.5, "time": 100.5}, {"step": 5, "train_seconds": 2.5, "time": 102.5},
           {"step": 10, "train_seconds": 5.0, "time": 105.0}, {"step": 10, "accuracy": 0.7, "time": 107.0},
           {"step": 15, "train_seconds": 7.5, "time": 109.5}, {"step": 20, "train_seconds": 10.0, "time": 112.0},
           {"step": 20, "accuracy": 0.9, "time": 114.0}]


class Curves(unittest.TestCase):
    def test_evaluations_do_not_count_where_all_wait_for_them(self):
        points = curves.curve(RECORDS, 256, waits_for_evaluations=True)
        self.assertEqual([5.0, 10.0], [point["seconds"] for point in points])
        self.assertEqual([2560, 5120], [point["images"] for point in points])

    def test_they_count_where_others_go_on(self):
        points = curves.curve(RECORDS, 64, waits_for_evaluations=False)
        self.assertEqual([5.0, 12.0], [point["seconds"] for point in points])

    def test_between_two_records(self):
        self.assertAlmostEqual(3.5, curves.at([(1, 0.5), (5, 2.5), (10, 5.0)], 7))
        self.assertEqual(5.0, curves.at([(1, 0.5), (10, 5.0)], 12))

    def test_the_first_that_has_it(self):
        points = curves.curve(RECORDS, 1, True)
        self.assertEqual(20, curves.reached(points, 0.88)["updates"])
        self.assertIsNone(curves.reached(points, 0.95))


class Chart(unittest.TestCase):
    def test_values_lie_where_they_belong(self):
        line = chart.Line("one", 0, [(0, 0.0), (10, 1.0)])
        frame = chart.Frame(chart.Panel("t", "x", "y", [line], y_limits=(0, 1)), 0, 0)
        self.assertEqual((frame.left, frame.bottom), (frame.x(0), frame.y(0)))
        self.assertEqual((frame.right, frame.top), (frame.x(10), frame.y(1)))
        self.assertEqual(frame.top, frame.y(2), "inside the picture")

    def test_logarithmic(self):
        line = chart.Line("one", 0, [(4, 0.02), (64, 3), (1024, 20)])
        panel = chart.Panel("t", "x", "y", [line], logarithmic=True, ticks=[(64, "64 KiB")])
        frame = chart.Frame(panel, 0, 0)
        self.assertEqual([0.01, 0.1, 1, 10, 100], frame.y_ticks)
        self.assertAlmostEqual((frame.left + frame.right) / 2, frame.x(64))
        self.assertAlmostEqual((frame.top + frame.bottom) / 2, frame.y(1))
        self.assertEqual((frame.left, frame.top), (frame.x(4), frame.y(100)))
        self.assertIn(">64 KiB<", chart.draw([panel]))

    def test_a_long_legend_goes_on_in_another_line(self):
        names = ["one that has just taken over", "the one that began the jobs", "leases run 15 s", "jobs get on", "they stand still"]
        lines = [chart.Line(name, color, [(0, 0), (1, 1)], joined=color % 2 == 0) for color, name in enumerate(names)]
        root = xml.etree.ElementTree.fromstring(chart.draw([chart.Panel("t", "x", "y", [line]) for line in lines]))
        words = {element.text: element for element in root.iter() if element.text in names}
        self.assertEqual(set(names), set(words))
        for name, word in words.items():
            self.assertLess(float(word.get("x")) + chart.LETTER * len(name), float(root.get("width")), name)
        self.assertEqual(2, len({word.get("y") for word in words.values()}))

    def test_ticks_are_round_and_inside(self):
        self.assertEqual([0, 20, 40, 60, 80], chart.steps(0, 95))
        self.assertEqual([0.6, 0.625, 0.65, 0.675, 0.7], [round(tick, 3) for tick in chart.steps(0.6, 0.72)])
        for low, high in ((0, 1), (0.3, 17), (5, 1e6)):
            ticks = chart.steps(low, high)
            self.assertTrue(low <= ticks[0] and ticks[-1] <= high * 1.000001 and 3 <= len(ticks) <= 11, ticks)

    def test_a_picture_is_xml_with_every_line_once_in_its_legend(self):
        lines = [chart.Line("a < b", 0, [(0, 1), (1, 2)]), chart.Line("c", 1, []),
                 chart.Line("d", 2, [(0, 1), (1, 1)], joined=False, marked=True, hollow=[1])]
        panels = [chart.Panel("t", "x", "y", lines, mark=1), chart.Panel("u", "x", "y", lines)]
        text = chart.draw(panels)
        self.assertEqual(text, chart.draw(panels))
        root = xml.etree.ElementTree.fromstring(text)
        words = [element.text for element in root.iter() if element.tag.endswith("text")]
        self.assertEqual([1, 1, 1], [words.count(name) for name in ("a < b", "c", "d")])
        self.assertEqual(2, text.count('class="hole c2"'), "one in each panel")
        self.assertIn("prefers-color-scheme:dark", text)


class Run(unittest.TestCase):
    def test_a_short_one(self):
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-B", FOLDER / "convergence.py", "--bin", os.environ["TRAINYARD_BIN"], "--out", out,
                       "--quick", "--target", "0.3", "--pause", "5", "--images", "40000"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=550)
            self.assertEqual(0, done.returncode, done.stderr + done.stdout)
            results = json.loads((pathlib.Path(out) / "results.json").read_text())
            self.assertEqual([(mode, slow) for slow in (False, True) for mode in ("Sync", "Async", "BoundedDelay 4")],
                             [(run["mode"], run["slow"]) for run in results["runs"]])
            for run in results["runs"]:
                self.assertGreaterEqual(run["reached"]["accuracy"], 0.3, run)
                self.assertGreater(run["reached"]["seconds"], 0, run)
            self.assertIn(picture.table(results), done.stdout)
            xml.etree.ElementTree.parse(pathlib.Path(out) / "convergence.svg")


if __name__ == "__main__":
    unittest.main(verbosity=2)
