#!/usr/bin/env python3
"""Without a cluster tests are skipped and say why; where one is required they fail."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


class Require(unittest.TestCase):
    def setUp(self):
        cache = tempfile.TemporaryDirectory()
        self.addCleanup(cache.cleanup)
        # Nothing is built there, so no cluster can be started, whoever asks.
        self.environment = {**os.environ, "TRAINYARD_CACHE": cache.name}
        for name in ("TRAINYARD_REQUIRE", "TRAINYARD_CLUSTER", "TRAINYARD_TEST_CLUSTER"):
            self.environment.pop(name, None)

    def run_script(self, *command, **environment):
        return subprocess.run([sys.executable, "-B", *map(str, command)], capture_output=True, text=True,
                              env={**self.environment, **environment})

    def test_skipped_with_the_reason_in_the_last_line(self):
        for command in ([HERE / "cluster.py", "check"], [HERE / "smoke_test.py"]):
            done = self.run_script(*command)
            self.assertEqual(77, done.returncode, done.stderr)
            self.assertRegex(done.stdout.strip().splitlines()[-1], "^no test cluster: .+")

    def test_failure_where_it_is_required(self):
        for value in ("cluster", "gpu,cluster"):
            done = self.run_script(HERE / "cluster.py", "check", TRAINYARD_REQUIRE=value)
            self.assertEqual(1, done.returncode, done.stdout)
            self.assertIn("TRAINYARD_REQUIRE=cluster, but there is none: ", done.stderr)
        self.assertEqual(77, self.run_script(HERE / "cluster.py", "check", TRAINYARD_REQUIRE="gpu").returncode)

    def test_a_cluster_that_does_not_run_is_not_reused(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_script(HERE / "e2e" / "foreign_test.py", TRAINYARD_CLUSTER=folder, TRAINYARD_BIN=folder)
            self.assertEqual(1, done.returncode)
            self.assertIn(f"TRAINYARD_CLUSTER={folder}: no cluster runs there", done.stderr)
            done = self.run_script(HERE / "cluster.py", "in", folder, "true")
            self.assertIn("no cluster runs in", done.stderr)
            self.assertIn("no cluster runs in", self.run_script(HERE / "cluster.py", "down", folder).stdout)


if __name__ == "__main__":
    unittest.main()
