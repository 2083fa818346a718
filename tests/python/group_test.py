#!/usr/bin/env python3
"""The package's groups by ctypes, in processes of their own: operations (group_operations.py) and faults
(group_faults.py)."""
import signal
import sys

from ranks import Ranks, RankTest, main  # finds the package, so it is first

import group_faults
import group_operations

CASES = {name[len("case_"):]: function for module in (group_operations, group_faults)
         for name, function in vars(module).items() if name.startswith("case_")}


class GroupTest(RankTest):
    longest = ("test_stopped", "test_other_secret")

    def test_reductions(self):
        for ranks in (2, 3):
            self.run_case("reductions", ranks)

    def test_moves(self):
        for ranks in (2, 4):
            self.run_case("moves", ranks)

    def test_messages(self):
        self.run_case("messages", 3)

    def test_handles(self):
        self.run_case("handles", 2)

    def test_splits(self):
        self.run_case("splits", 3)

    def test_memory(self):
        self.run_case("memory", 2)

    def test_compare(self):
        self.run_case("compare", 2)

    def test_size_mismatch(self):
        self.run_case("size_mismatch", 2)

    def test_other_operation(self):
        self.run_case("other_operation", 2)

    def test_arguments(self):
        self.run_case("arguments", 2)

    def test_afterwards(self):
        self.run_case("afterwards", 2)

    def test_forked(self):
        self.run_case("forked", 2)

    def test_gives_up(self):
        self.run_case("gives_up", 3)

    def test_exits(self):
        self.run_case("exits", 2)

    def test_killed(self):
        with Ranks(self.script, "killed", 3) as ranks:
            self.assertEqual(ranks.wait(2), -signal.SIGKILL, ranks.outputs())
            for rank in (0, 1):
                self.assertEqual(ranks.wait(rank), 0, ranks.outputs())

    def test_stopped(self):
        with Ranks(self.script, "stopped", 3) as ranks:
            for rank in (0, 2):
                self.assertEqual(ranks.wait(rank), 0, ranks.outputs())

    def test_interrupted(self):
        for wait in ("direct", "handle", "receive"):
            with Ranks(self.script, "interrupted", 2, WAIT=wait) as ranks:
                for rank in (0, 1):
                    ranks.wait_for(rank, "ready")
                ranks.wait_until_asleep(0)
                ranks.processes[0].send_signal(signal.SIGINT)
                for rank in (0, 1):
                    self.assertEqual(ranks.wait(rank), 0, f"{wait}: {ranks.outputs()}")

    def test_other_secret(self):
        with Ranks(self.script, "secret", 2) as ranks:
            for rank in (0, 1):
                self.assertEqual(ranks.wait(rank), 0, ranks.outputs())

    def test_alone(self):
        self.run_case("alone", 1)


if __name__ == "__main__":
    sys.exit(main(__file__, CASES, GroupTest, at_once=4))
