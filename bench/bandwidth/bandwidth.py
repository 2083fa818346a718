"""Bus bandwidth of all-reduce by size, beside Open MPI and gloo: what `make bandwidth` runs.

    python3 bench/bandwidth/bandwidth.py --build build/dev --out build/bandwidth [--rounds 2] [--quick]

2 and 4 processes on this machine, over TCP on loopback and in shared memory, the systems in turns. Open MPI is Debian's,
gloo that of Debian's torch (--python); what is not installed is left out. Writes results.json, results.md and
bandwidth.svg (docs/experiments.md).
"""

import argparse
import datetime
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "pictures")]

import all_reduce  # noqa: E402
import client  # noqa: E402
import picture  # noqa: E402
import programs  # noqa: E402
import results  # noqa: E402


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


class Bandwidth:
    def __init__(self, args):
        self.args = args

    def measure(self):
        """Milliseconds of the median, by who, ranks and bytes."""
        args = self.args
        made = {"machine": programs.machine(), "date": datetime.date.today().isoformat(), "load": os.getloadavg()[0],
                "rounds": args.rounds, "points": []}
        taken = all_reduce.measure(args.build / "bin", args.rounds, args.sizes)
        for name in taken["cases"]:
            *who, ranks, size = name.split()
            if who != ["threads"]:
                made["points"].append({"who": " ".join(who), "ranks": int(ranks), "bytes": int(size),
                                       "milliseconds": all_reduce.times(taken, name)[0]})
        if has_torch(args.python):
            made["points"] += self.gloo()
        return made

    def gloo(self):
        sizes = {"SIZES": " ".join(str(size) for size in self.args.sizes)}
        points = []
        for ranks in all_reduce.RANKS:
            runs = [client.with_torch(self.args.python, self.args.build, "gloo", ranks, sizes)
                    for _ in range(self.args.rounds)]
            points += [{"who": "gloo", "ranks": ranks, "bytes": size,
                        "milliseconds": sorted(run[str(size)] for run in runs)[len(runs) // 2]} for size in self.args.sizes]
        return points


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("--out", required=True, type=lambda text: pathlib.Path(text).absolute())
    parser.add_argument("--rounds", default=2, type=int)
    parser.add_argument("--python", default="/usr/bin/python3", help="with torch")
    parser.add_argument("--quick", action="store_true", help="three sizes, once")
    args = parser.parse_args()
    args.sizes = all_reduce.SIZES
    if args.quick:
        args.sizes, args.rounds = [64 << 10, 1 << 20, 16 << 20], 1
    args.out.mkdir(parents=True, exist_ok=True)
    return results.leave(args.out, "bandwidth", Bandwidth(args).measure, picture)


if __name__ == "__main__":
    sys.exit(main())
