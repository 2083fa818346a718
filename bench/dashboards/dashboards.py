"""Pictures of the Grafana dashboards, drawn from a Prometheus that scrapes real jobs and a real operator: what `make
dashboards` runs.

    python3 bench/dashboards/dashboards.py --bin build/dev/bin --out build/dashboards [--seconds 300]

Writes an SVG file for each picture, and with chromium a PNG in light and in dark of each. Ends with 1 and names the panel
when one has no data; with 77 and the reason where there can be no apiserver (it takes root, and the programs of
`tests/cluster/cluster.py build kubernetes etcd`).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), *(str(ROOT / "tests" / part) for part in ("monitoring", "cluster", "cluster/scenarios"))]

import dashboard  # noqa: E402

SETTLED = 12  # seconds until all rates have seen enough
# {picture: (dashboard, its job, the rows that are shown, seconds between scrapes)}; without rows all as they are. Scrapes come
# more often here, and by what is said of them rates look back: of an operator with little to do, a while.
PICTURES = {
    "job": ("trainyard-job", "fashion", (), 2),
    "job-tables": ("trainyard-job", "clicks", ("Embedding tables",), 2),
    "job-all-reduce": ("trainyard-job", "ring", ("Overview", "All-reduce"), 2),
    "parameter-servers": ("trainyard-parameter-servers", "fashion", (), 2),
    "operator": ("trainyard-operator", None, (), 6),
    "fleet": ("trainyard-fleet", None, (), 4),
}


def draw(url, span, out):
    """All pictures; the panels without data, as "picture: panel"."""
    empty = []
    for name, (file, job, rows, scrape) in PICTURES.items():
        source = json.loads((ROOT / "deploy" / "grafana" / f"{file}.json").read_text())
        given = {"job_name": job, "namespace": "default"} if job else {}
        picture, lacking = dashboard.drawn(source, url, span, given, rows, scrape)
        (out / f"dashboard-{name}.svg").write_text(picture)
        empty += [f"{name}: {title}" for title in lacking]
        print(f"dashboard-{name}.svg: {len(picture) // 1000} kB, {len(lacking)} panels without data", flush=True)
    return empty


def photograph(svg):
    """As a browser shows it, in light and in dark."""
    width, height = re.search(r'width="(\d+)" height="(\d+)"', svg.read_text()).groups()
    for number, scheme in enumerate(("dark", "light")):
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                            f"--blink-settings=preferredColorScheme={number}", f"--window-size={width},{height}",
                            f"--screenshot={svg.with_suffix('')}-{scheme}.png", svg.as_uri()],
                           check=True, timeout=120, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)


def make(args):
    # They look for our programs when they are imported.
    os.environ["TRAINYARD_BIN"] = str(args.bin)
    import scene
    from rig import testing
    length = SETTLED + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "cluster").mkdir()
        with testing.start(place / "cluster", control_plane=True) as rig, \
                scene.stage(rig, place, length) as (local, cluster, prometheus):
            began = time.time() + SETTLED
            scene.play(local, cluster, prometheus, length)
            return draw(prometheus.url, (began, time.time()), args.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where the programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where the pictures go")
    parser.add_argument("--seconds", default=300, type=int, help="how long the pictures look back (300)")
    args = parser.parse_args()
    args.bin, args.out = args.bin.absolute(), args.out.absolute()
    args.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        empty = make(args)
    except KeyboardInterrupt:
        print("interrupted; what it had started is gone", file=sys.stderr)
        return 130
    if shutil.which("chromium"):
        for name in PICTURES:
            photograph(args.out / f"dashboard-{name}.svg")
    for one in empty:
        print(f"no data: {one}", file=sys.stderr)
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
