"""One rank of group_test.py: its group, and what it expects to be raised."""

import trainyard as ty

from ranks import expect  # noqa: F401

LIMIT = 20.0


def join(**options):
    return ty.init(**{"join_timeout": 60.0, "timeout": LIMIT, **options})
