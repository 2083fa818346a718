"""Why a test cluster cannot be had here."""
import os
import sys

SKIPPED = 77  # what a script ends with when its test cannot run: ctest counts it as skipped


class Unavailable(Exception):
    """The machine lacks something; the message says what, and what would help."""


def required():
    """Whether a test that needs a cluster must not be skipped."""
    return "cluster" in os.environ.get("TRAINYARD_REQUIRE", "").replace(",", " ").split()


def end(reason):
    """Ends the process because of `reason`: skipped, or failed where a cluster is required."""
    if required():
        sys.exit(f"TRAINYARD_REQUIRE=cluster, but there is none: {reason}")
    print(f"no test cluster: {reason}", flush=True)
    sys.exit(SKIPPED)
