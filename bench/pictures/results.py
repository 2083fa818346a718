"""What a program that measures leaves behind."""

import json
import signal
import sys


def leave(out, name, measure, picture):
    """Writes what `measure` returns as results.json into `out`, with the table and the drawing that `picture` makes of it
    beside it, and prints the table; returns the exit code. Ended from elsewhere, it takes everything down as after Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        results = measure()
    except KeyboardInterrupt:
        print("interrupted; what it had started is gone", file=sys.stderr)
        return 130
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "results.md").write_text(picture.table(results))
    (out / f"{name}.svg").write_text(picture.svg(results))
    print(picture.table(results))
    return 0
