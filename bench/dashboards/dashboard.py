"""Draws a Grafana dashboard from what a Prometheus has, as one SVG file.

    python3 bench/dashboards/dashboard.py deploy/grafana/trainyard-job.json --prometheus http://127.0.0.1:9090 \\
        --set job_name=fashion --last 15m --out job.svg

It takes the kinds of panels and units that our dashboards use. A panel that has no data is drawn as such, named on
standard error, and the exit code is 1 then; 2 when there can be no picture.
"""

import argparse
import json
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "pictures")]

import page  # noqa: E402
import questions  # noqa: E402
import source  # noqa: E402

POINTS = 150  # of a line: as many as a small picture shows


def drawn(dashboard, prometheus, span, given, only=(), scrape=15):
    """(SVG, titles of panels without data). `span`: (start, end)."""
    step = max(scrape, -(-(span[1] - span[0]) // POINTS))
    # Grafana puts points at whole steps too: the same stretch of time gives the same picture.
    start, end = (at // step * step for at in span)
    asked = source.Source(prometheus, start, end, step)
    made = page.Page(dashboard, asked, given, only)
    made.values["__rate_interval"] = questions.rate_interval(step, scrape)
    return made.svg(), made.empty


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dashboard", type=pathlib.Path, help="its JSON file")
    parser.add_argument("--prometheus", required=True, help="its address, as http://127.0.0.1:9090")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the SVG file")
    parser.add_argument("--last", default="1h", help="how far to look back, as 15m (1h)")
    parser.add_argument("--scrape", default="15s", help="time between two scrapes (15s)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable of the dashboard")
    parser.add_argument("--row", action="append", default=[], help="only rows whose title begins so, opened")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    now = time.time()
    given = dict(one.split("=", 1) for one in args.set)
    try:
        picture, empty = drawn(json.loads(args.dashboard.read_text()), args.prometheus.rstrip("/"),
                               (now - questions.seconds(args.last), now), given, args.row, questions.seconds(args.scrape))
    except (OSError, ValueError) as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 2
    args.out.write_text(picture)
    for title in empty:
        print(f"no data: {title}", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
