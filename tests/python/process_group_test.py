#!/usr/bin/env python3
"""The backend "trainyard" of torch.distributed, beside gloo on the same inputs, in processes of their own: operations
(process_group_operations.py), DDP (process_group_programs.py), FSDP2 and DTensor (process_group_sharded.py), ranks
that change (process_group_reconfigure.py), faults (process_group_faults.py)."""
import importlib.util
import signal
import sys
import tempfile

from ranks import SKIPPED, Ranks, RankTest, main

try:
    import torch.distributed as dist
except ImportError:
    print("skipped: there is no torch")
    sys.exit(SKIPPED)
if not dist.is_available() or not dist.is_gloo_available():
    print("skipped: torch has no torch.distributed with gloo")
    sys.exit(SKIPPED)

import process_group_faults  # noqa: E402
import process_group_operations  # noqa: E402
import process_group_programs  # noqa: E402
import process_group_reconfigure  # noqa: E402
import process_group_sharded  # noqa: E402
from trainyard.torch._backend import HAS_BACKENDS, RECONFIGURES  # noqa: E402

CASES = {name[len("case_"):]: function
         for module in (process_group_operations, process_group_programs, process_group_sharded,
                        process_group_reconfigure, process_group_faults)
         for name, function in vars(module).items() if name.startswith("case_")}


class ProcessGroupTest(RankTest):
    def test_all_reduce(self):
        for ranks in (2, 3):
            self.run_case("all_reduce", ranks)

    def test_collectives(self):
        for ranks in (2, 3):
            self.run_case("collectives", ranks)

    def test_messages(self):
        self.run_case("messages", 3)

    def test_groups(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_case("groups", 3, SHARED=folder)

    def test_futures(self):
        self.run_case("futures", 2)

    def test_ddp(self):
        for ranks in (2, 3):
            self.run_case("ddp", ranks)

    def test_mixed(self):
        if not HAS_BACKENDS:
            self.skipTest("this version of torch has no backends in Python")
        with Ranks(self.script, "mixed", 2) as ranks:
            self.assertEqual(ranks.wait(0), 0, ranks.outputs())

    def test_sharded(self):
        if importlib.util.find_spec("torch.distributed.tensor") is None:
            self.skipTest("this version of torch has neither distributed tensors nor FSDP2")
        for case, ranks in (("functional", 2), ("functional", 3), ("coalesced", 3), ("tensors", 2), ("fsdp", 2),
                            ("fsdp", 3), ("fsdp_replicated", 4)):
            with self.subTest(case, ranks=ranks):
                self.run_case(case, ranks)

    def test_reconfigure(self):
        if not RECONFIGURES:
            self.skipTest("this version of torch has no groups whose ranks change")
        with Ranks(self.script, "reconfigure", 3) as ranks:
            for rank, status in enumerate((0, 0, -signal.SIGKILL)):
                self.assertEqual(ranks.wait(rank), status, ranks.outputs())
        self.run_case("reconfigure_mistakes", 2)

    def test_mistakes(self):
        self.run_case("mistakes", 2)

    def test_timeout(self):
        self.run_case("timeout", 2)

    def test_left(self):
        self.run_case("left", 2)

    def test_monitored_barrier(self):
        with Ranks(self.script, "monitored_barrier", 3) as ranks:
            for rank, status in enumerate((0, 0, -signal.SIGKILL)):
                self.assertEqual(ranks.wait(rank), status, ranks.outputs())

    def test_killed(self):
        for case in ("killed", "ddp_killed"):
            with Ranks(self.script, case, 3) as ranks:
                self.assertEqual(ranks.wait(1), -signal.SIGKILL, ranks.outputs())
                for rank in (0, 2):
                    self.assertEqual(ranks.wait(rank), 0, ranks.outputs())


if __name__ == "__main__":
    sys.exit(main(__file__, CASES, ProcessGroupTest))
