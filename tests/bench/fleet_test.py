#!/usr/bin/env python3
"""The table and the picture of bench/operator/operator_fleet.py, from values that are made up; what counts as a write."""
import os
import pathlib
import sys
import unittest
import xml.etree.ElementTree

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
sys.path[:0] = [str(SOURCE / "bench" / "operator")]

import fleet_picture  # noqa: E402
import observe  # noqa: E402

PAGE = """
apiserver_request_total{code="201",dry_run="",resource="pods",subresource="",verb="POST"} 7
apiserver_request_total{code="409",dry_run="",resource="secrets",subresource="",verb="POST"} 3
apiserver_request_total{code="200",dry_run="",resource="trainingjobs",subresource="status",verb="PATCH"} 2
apiserver_request_total{code="200",dry_run="",resource="leases",subresource="",verb="PUT"} 90
apiserver_request_total{code="200",dry_run="",resource="pods",subresource="",verb="LIST"} 5
"""


def run(jobs, cores=0.1, mib=100.0, seconds=20.0, writes=10.0):
    return {"jobs": jobs, "tasks": 10, "begin": {"pods_per_second": 60.0},
            "running": {"cores": cores, "calls_per_second": 250.0, "writes_per_second": writes, "reconciles_per_second": 50.0,
                        "reconcile_p99_seconds": 0.04, "resident_bytes": int(mib * (1 << 20))},
            "frozen": {"cores": cores / 2, "writes_per_second": 0.0},
            "failover": {"seconds": seconds, "cpu_seconds": 3.0, "asked": jobs, "resident_bytes": 50 << 20}}


class Fleet(unittest.TestCase):
    def test_a_row_says_which_bars_are_reached(self):
        row = fleet_picture.row(run(500, cores=0.6, mib=399.0, writes=20.4))
        self.assertEqual("500 x 10", row[0])
        self.assertIn("0.60 (missed)", row)
        self.assertIn("399 MiB (reached)", row)
        self.assertIn("20.4 (missed)", row)
        self.assertIn("40.0 ms (reached)", row)
        self.assertIn("20 s, 3 s (reached)", row)
        table = fleet_picture.table({"machine": "2 cores", "date": "2026-11-29", "runs": [
            {**run(500), "load_average": 1.0}, run(125)]}).splitlines()
        self.assertIn("load 1.0", table[0])
        self.assertEqual({table[2].count("|")}, {line.count("|") for line in table[2:-2]})
        self.assertTrue(table[4].startswith("| 125 x 10 "), "by the number of jobs")

    def test_what_is_refused_has_written_nothing(self):
        self.assertEqual({"POST pods": 7, "PATCH trainingjobs/status": 2}, observe.writes_told(PAGE))
        self.assertEqual({"POST secrets": 3}, observe.writes_told(PAGE, answered_well=False))

    def test_memory_is_the_most_of_both_leaders(self):
        self.assertEqual(100.0, fleet_picture.mib(run(1)))
        self.assertEqual(50.0, fleet_picture.mib(run(1, mib=20.0)))

    def test_the_slope_is_that_of_a_line_through_nothing(self):
        self.assertAlmostEqual(0.5, fleet_picture.slope([(10, 5.0), (100, 50.0)]))

    def test_the_picture_has_a_point_for_each_run(self):
        runs = [run(500, cores=0.4), run(125), run(250, cores=0.2)]
        points = fleet_picture.found({"runs": runs}, lambda one: one["running"]["cores"])
        self.assertEqual([(125, 0.1), (250, 0.2), (500, 0.4)], points)
        picture = fleet_picture.svg({"runs": runs})
        root = xml.etree.ElementTree.fromstring(picture)
        words = [element.text for element in root.iter() if element.text]
        for title in ("Processor time of the operator", "Memory", "Writes", "Killed: until all jobs are known"):
            self.assertIn(title, words)
        self.assertEqual(picture, fleet_picture.svg({"runs": runs}), "the same values give the same picture")


if __name__ == "__main__":
    unittest.main(verbosity=2)
