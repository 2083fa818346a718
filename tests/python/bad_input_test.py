#!/usr/bin/env python3
"""Bad input and faults without torch, as tables: wrong arguments and environments (bad_input_arguments.py), what is
not installed (bad_input_libraries.py), ranks that differ, are lost, or do not meet (bad_input_faults.py)."""
import sys

from ranks import main  # finds the package, so it is first

import bad_input
import bad_input_arguments
import bad_input_faults
import bad_input_libraries

BATCHES = [*bad_input_arguments.BATCHES, bad_input_libraries.BATCH]
ROWS = bad_input_faults.ROWS


class BadInputTest(bad_input.BadInputTest):
    pass


if __name__ == "__main__":
    bad_input.add_tests(BadInputTest, BATCHES, ROWS)
    sys.exit(main(__file__, bad_input.cases(BATCHES, ROWS), BadInputTest, at_once=4))
