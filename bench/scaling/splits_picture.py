"""The table and the picture of a results.json of splits.py. Pure.

    python3 bench/scaling/splits_picture.py RESULTS.json      writes the .svg beside it
"""

import json
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent / "pictures")]

import chart  # noqa: E402
import machines  # noqa: E402
import picture  # noqa: E402


def found(results, model, rate, size):
    return [p for p in results["points"] if (p["model"], p["rate"], p["machines"]) == (model, rate, size)]


def sizes(results):
    return sorted({point["machines"] for point in results["points"]})


def foretold(results, point):
    return machines.speedup(point["workers"], results["models"][point["model"]]["step_seconds"], point["model_seconds"])


def panel(results, model, rate):
    lines, top = [], 0
    for color, size in enumerate(sizes(results)):
        points = found(results, model, rate, size)
        places = [p["workers"] / size for p in points]
        lines.append(chart.Line("", color, [(x, foretold(results, p)) for x, p in zip(places, points)], dashed=True))
        hollow = [i for i, p in enumerate(points) if p["busy"] > results["busy_limit"]]
        lines.append(chart.Line(f"{size} machines", color, [(x, p["speedup"]) for x, p in zip(places, points)], joined=False,
                                marked=True, hollow=hollow))
        top = max([top] + [1.15 * max(p["speedup"], foretold(results, p)) for p in points])
    best = machines.best_share(model, machines.RATES[rate])
    lines.append(chart.Line("e*", 7, [(best, 0), (best, top)]))
    return chart.Panel(f"{model}, {rate}", "share of machines that are workers", "times one machine", lines, y_limits=(0, top))


def svg(results):
    return chart.draw([panel(results, *kind) for kind in picture.kinds(results)])


def table(results):
    out = [f"{results['machine']}, {results['date']}, load {results['load']:.1f} at the start. Workers + servers that do the most, "
           "as measured and by the cost model, and how much the model's choice does of the best that was measured:", "",
           "| model, links | e* | " + " | ".join(f"{size} machines, measured | model | its choice" for size in sizes(results)) + " |",
           "|--|--|" + "--|--|--|" * len(sizes(results))]
    for model, rate in picture.kinds(results):
        cells = []
        for size in sizes(results):
            points = found(results, model, rate, size)
            measured = max(points, key=lambda p: p["speedup"])
            chosen = max(points, key=lambda p: foretold(results, p))
            cells += [f"{measured['workers']} + {measured['ps']}: {measured['speedup']:.2f}",
                      f"{chosen['workers']} + {chosen['ps']}: {foretold(results, chosen):.2f}",
                      f"{chosen['speedup'] / measured['speedup'] * 100:.0f} %"]
        out.append(f"| {model}, {rate} | {machines.best_share(model, machines.RATES[rate]):.2f} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    path.with_suffix(".svg").write_text(svg(json.loads(path.read_text())))
