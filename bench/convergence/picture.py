"""The table and the picture of a results.json of convergence.py. Pure.

    python3 bench/convergence/picture.py RESULTS.json      writes the .svg beside it
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "pictures"))

import chart  # noqa: E402

LEAST = 0.7  # of accuracy in the picture


def modes(results):
    return list(dict.fromkeys(run["mode"] for run in results["runs"]))


def lines(results, slow, axis):
    order = modes(results)
    return [chart.Line(run["mode"], order.index(run["mode"]), [(point[axis], point["accuracy"]) for point in run["points"]])
            for run in results["runs"] if run["slow"] == slow]


def svg(results):
    panels = []
    for slow in (False, True):
        workers = f"one of {results['workers']} workers {results['slower']} times slower" if slow else \
            f"{results['workers']} workers that are equally fast"
        for axis, name in (("images", "images trained on"), ("seconds", "seconds")):
            panels.append(chart.Panel(workers, name, "accuracy", lines(results, slow, axis), mark=results["target"],
                                      y_limits=(LEAST, 0.92)))
    return chart.draw(panels)


def cell(run):
    at = run["reached"]
    if at is None:
        last = run["points"][-1]
        return f"{last['accuracy']:.3f} after {last['updates']} | {last['images'] // 1000}k | not reached"
    return f"{at['updates']} | {at['images'] // 1000}k | {at['seconds']:.0f}"


def table(results):
    out = [f"{results['machine']}, {results['date']}, load {results['load']:.1f} at the start; a step of Sync with equal workers "
           f"takes {results['step_seconds'] * 1000:.0f} ms. To an accuracy of {results['target']:g}:", "",
           "| mode | updates | images | seconds | one worker slow: updates | images | seconds |", "|--|--|--|--|--|--|--|"]
    found = {(run["mode"], run["slow"]): run for run in results["runs"]}
    out += [f"| {mode} | {cell(found[mode, False])} | {cell(found[mode, True])} |" for mode in modes(results)]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    path.with_suffix(".svg").write_text(svg(json.loads(path.read_text())))
