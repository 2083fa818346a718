#!/usr/bin/env python3
"""Bad input and faults with torch, as tables: see bad_input_torch.py."""
import sys

from ranks import SKIPPED, main

try:
    import torch.distributed as dist
except ImportError:
    print("skipped: there is no torch")
    sys.exit(SKIPPED)
if not dist.is_available():
    print("skipped: torch has no torch.distributed")
    sys.exit(SKIPPED)

import bad_input  # noqa: E402
import bad_input_torch  # noqa: E402

BATCHES, ROWS = bad_input_torch.BATCHES, bad_input_torch.ROWS


class BadInputTest(bad_input.BadInputTest):
    pass


if __name__ == "__main__":
    bad_input.add_tests(BadInputTest, BATCHES, ROWS)
    sys.exit(main(__file__, bad_input.cases(BATCHES, ROWS), BadInputTest))
