"""One rank of group_test.py: its group, and what it expects to be raised."""

import trainyard as ty

LIMIT = 20.0


def join(**options):
    return ty.init(**{"join_timeout": 60.0, "timeout": LIMIT, **options})


def expect(kind, function, *words):
    try:
        function()
    except kind as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
