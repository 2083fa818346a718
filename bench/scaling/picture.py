"""The table and the picture of a results.json of scaling.py. Pure.

    python3 bench/scaling/picture.py RESULTS.json      writes the .svg beside it
"""

import json
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent / "pictures")]

import chart  # noqa: E402
import machines  # noqa: E402

NAMES = {"dedicated": "parameter servers, dedicated", "colocated": "parameter servers, colocated", "ring": "ring"}
MOST = 32  # machines in the picture; measured are 16
NEAR = 0.1  # of the model


def model_points(results, model, rate, system):
    alone = results["models"][model]["step_seconds"]
    return [(row["machines"], machines.speedup(row[system]["workers"], alone, row[system]["stepSeconds"]))
            for row in results["curves"][f"{model} {rate}"] if row[system] and row["machines"] <= MOST]


def panel(results, model, rate):
    measured = max(point["machines"] for point in results["points"])
    top = 1.15 * max([y for system in machines.SYSTEMS for _, y in model_points(results, model, rate, system)] +
                     [p["speedup"] for p in results["points"] if (p["model"], p["rate"]) == (model, rate)])
    top = min(top, MOST)
    lines = [chart.Line("ideal", 7, [(1, 1), (top, top)], dashed=True)]
    for color, system in enumerate(machines.SYSTEMS):
        points = model_points(results, model, rate, system)
        lines.append(chart.Line("", color, [p for p in points if p[0] <= measured]))
        lines.append(chart.Line("", color, [p for p in points if p[0] >= measured], dashed=True))
        found = [p for p in results["points"] if (p["model"], p["rate"], p["system"]) == (model, rate, system)]
        hollow = [i for i, p in enumerate(found) if p["busy"] > results["busy_limit"]]
        lines.append(chart.Line(NAMES[system], color, [(p["machines"], p["speedup"]) for p in found], joined=False, marked=True,
                                hollow=hollow))
    seconds = results["models"][model]["step_seconds"]
    return chart.Panel(f"{model}, {rate}, {seconds:g} s of computing", "machines", "times one machine", lines, y_limits=(0, top))


def kinds(results):
    return list(dict.fromkeys((point["model"], point["rate"]) for point in results["points"]))


def svg(results):
    return chart.draw([panel(results, *kind) for kind in kinds(results)])


def off(point):
    """Against computing and exchange one after the other."""
    return point["step_seconds"] / point["model_seconds"] - 1


def outside(point, alone):
    """How far it is off what the model gives: between the longer of the two, where they overlap, and their sum."""
    best = max(alone, point["model_seconds"] - alone)
    return min(point["step_seconds"] / best - 1, 0) or max(off(point), 0)


def cell(point, limit):
    mark = "(" if point["busy"] > limit else ""
    return f"{mark}{point['speedup']:.2f}, {off(point) * 100:+.0f} %{')' if mark else ''}"


def table(results):
    limit = results["busy_limit"]
    sizes = sorted({point["machines"] for point in results["points"]})
    out = [f"{results['machine']}, {results['date']}, load {results['load']:.1f} at the start. Times one machine, and how much longer a "
           "step took than computing and exchange one after the other by the cost model; in brackets where the processors of this machine were above "
           f"{limit * 100:.0f} % at work:", "",
           "| model, links | | " + " | ".join(f"{size} machines" for size in sizes) + " |", "|--|--|" + "--|" * len(sizes)]
    for model, rate in kinds(results):
        for system in machines.SYSTEMS:
            found = {p["machines"]: p for p in results["points"] if (p["model"], p["rate"], p["system"]) == (model, rate, system)}
            split = f" ({found[sizes[-1]]['workers']} + {found[sizes[-1]]['ps']})" if system == "dedicated" else ""
            out.append(f"| {model}, {rate} | {NAMES[system]}{split} | " + " | ".join(cell(found[size], limit) for size in sizes) + " |")
    solid = [outside(p, results["models"][p["model"]]["step_seconds"]) for p in results["points"] if p["busy"] <= limit]
    out += ["", f"Of {len(solid)} points that the processors did not limit, {solid.count(0)} lie between the model's two ends (computing and "
            f"exchange at once, and one after the other), {sum(0 < abs(o) <= NEAR for o in solid)} within {NEAR * 100:.0f} % of them; the farthest is "
            f"{max(solid, key=abs, default=0) * 100:+.1f} % off."]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    path.with_suffix(".svg").write_text(svg(json.loads(path.read_text())))
