"""The table and the picture of a results.json of bandwidth.py. Pure.

    python3 bench/bandwidth/picture.py RESULTS.json      writes the .svg beside it
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "pictures"))

import chart  # noqa: E402

# What is compared with what: {panel: {who: (name, color)}}.
OVERS = {"TCP": {"tcp": ("Trainyard", 0), "mpi tcp": ("Open MPI", 1), "gloo": ("gloo", 2)},
         "shared memory": {"shared": ("Trainyard", 0), "staged": ("Trainyard, arrays that others cannot read", 4),
                           "mpi shm": ("Open MPI", 1)}}


def bus(point):
    """Bytes per second and rank that a ring moves at least: 2 (n - 1) / n of the array (NCCL's tests, "busbw")."""
    return 2 * (point["ranks"] - 1) / point["ranks"] * point["bytes"] / (point["milliseconds"] / 1e3)


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def sizes(results):
    return sorted({point["bytes"] for point in results["points"]})


def found(results, who, ranks):
    points = [p for p in results["points"] if (p["who"], p["ranks"]) == (who, ranks)]
    return sorted((p["bytes"], bus(p) / 1e9) for p in points)


def panel(results, over, ranks):
    lines = [chart.Line(name, color, found(results, who, ranks), marked=True) for who, (name, color) in OVERS[over].items()]
    return chart.Panel(f"{ranks} processes, {over}", "array", "GB/s of the bus", lines, logarithmic=True,
                       ticks=[(size, size_text(size)) for size in sizes(results)[::2]])


def all_ranks(results):
    return sorted({point["ranks"] for point in results["points"]})


def svg(results):
    return chart.draw([panel(results, over, ranks) for over in OVERS for ranks in all_ranks(results)
                       if any(found(results, who, ranks) for who in OVERS[over])])


def table(results):
    out = [f"{results['machine']}, {results['date']}, load {results['load']:.1f} at the start, {results['rounds']} rounds. "
           "GB/s of the bus, and how many times that of Open MPI:", "",
           "| processes, over | | " + " | ".join(size_text(size) for size in sizes(results)) + " |",
           "|--|--|" + "--|" * len(sizes(results))]
    for over, sides in OVERS.items():
        peer = next(who for who in sides if who.startswith("mpi"))
        for ranks in all_ranks(results):
            other = dict(found(results, peer, ranks))
            for who, (name, _) in sides.items():
                cells = [f"{rate:.3g}" + (f", {rate / other[size]:.2f}x" if size in other and who != peer else "")
                         for size, rate in found(results, who, ranks)]
                if cells:
                    out.append(f"| {ranks}, {over} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    path.with_suffix(".svg").write_text(svg(json.loads(path.read_text())))
