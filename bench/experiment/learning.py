"""What runs that learn behind links say: curves, table and picture. Pure.

    python3 bench/experiment/learning.py LEARNING.json      writes the .svg beside it
"""

import json
import pathlib
import sys

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH), str(BENCH / "pictures")]

import chart  # noqa: E402
import curves  # noqa: E402
import jobs  # noqa: E402
import run_records  # noqa: E402

LEAST = 0.7  # of accuracy in the picture
NAMES = {"roundrobin": "RoundRobin", "fixedsize": "FixedSize(2, 0)", "balanced": "Balanced",
         "tensorflow-roundrobin": "TensorFlow, round robin", "tensorflow-fixedsize": "TensorFlow, in two parts"}
POINTS = 40  # of a curve of losses or rates, at most


def thinned(values):
    """Means of about POINTS runs of (x, y)."""
    size = max(1, -(-len(values) // POINTS))
    parts = [values[i:i + size] for i in range(0, len(values), size)]
    return [[round(sum(x for x, _ in part) / len(part), 2), round(sum(y for _, y in part) / len(part), 4)] for part in parts]


def rates(samples, began, ended):
    """{ps: [[seconds, bytes per second in and out together]]} as TCP carried them."""
    samples = [s for s in samples if began <= s["time"] <= ended]
    found = {}
    for before, after in zip(samples, samples[1:]):
        seconds = after["time"] - before["time"]
        for old, new in zip(before["ps"], after["ps"]):
            moved = sum(new[name] - old[name] for name in ("wireReceivedBytes", "wireTransmittedBytes"))
            found.setdefault(new["task"], []).append((after["time"] - began, moved / seconds))
    return {ps: thinned(values) for ps, values in found.items()}


def told(placement, records, samples, target):
    steps = run_records.training(records)
    points = curves.curve(records, jobs.WORKERS * jobs.BATCH, waits_for_evaluations=True)
    began = steps[0]["time"] - steps[0]["train_seconds"]
    return {"placement": placement, "points": points, "reached": curves.reached(points, target),
            "step_seconds": round(run_records.step_seconds(records), 4),
            "losses": thinned([(r["train_seconds"], r["loss"]) for r in steps]),
            "rates": rates(samples, began, steps[-1]["time"])}


def line(run):
    """For whoever waits."""
    reached, last = run["reached"], run["points"][-1]
    return f"learning, {NAMES[run['placement']]}: " + (
        f"{reached['accuracy']:.4f} after {reached['updates']} steps, {reached['seconds']:.0f} s" if reached
        else f"not reached; {last['accuracy']:.4f} after {last['updates']} steps")


def svg(results):
    runs = list(enumerate(results["runs"]))

    def panel(title, x, y, points, **more):
        return chart.Panel(title, x, y, [chart.Line(NAMES[run["placement"]], color, points(run)) for color, run in runs], **more)
    traffic = [chart.Line(NAMES[run["placement"]] if number == 0 else "", color, [(x, y / 1e6) for x, y in points],
                          dashed=number > 0)
               for color, run in runs for number, (_, points) in enumerate(sorted(run["rates"].items()))]
    return chart.draw([
        panel("by images", "images trained on", "accuracy",
              lambda run: [(p["images"], p["accuracy"]) for p in run["points"]], mark=results["target"], y_limits=(LEAST, 0.92)),
        panel("by time", "seconds", "accuracy", lambda run: [(p["seconds"], p["accuracy"]) for p in run["points"]],
              mark=results["target"], y_limits=(LEAST, 0.92)),
        panel("loss of training", "seconds", "loss", lambda run: run["losses"]),
        chart.Panel("ps-0 and ps-1 (dashed), in and out", "seconds", "MB/s", traffic)])


def rate(run, ps):
    values = [y for _, y in run["rates"].get(ps, [])]
    return f"{sum(values) / len(values) / 1e6:.1f}" if values else "too short"


def table(results):
    out = [f"{results['machine']}, {results['date']}, load {results['load']:.1f} at the start; links of {results['link']}, "
           f"{results['workers']} workers of batch {results['batch']}. To an accuracy of {results['target']:g}:", "",
           "| placement | a step | steps | images | seconds | ps-0 MB/s, in and out | ps-1 |", "|--|--|--|--|--|--|--|"]
    for run in results["runs"]:
        at = run["reached"]
        reached = f"{at['updates']} | {at['images'] // 1000}k | {at['seconds']:.0f}" if at else \
            f"not reached | | {run['points'][-1]['accuracy']:.3f} at the end"
        out.append(f"| {NAMES[run['placement']]} | {run['step_seconds']:.3f} s | {reached} | {rate(run, 'ps-0')} | "
                   f"{rate(run, 'ps-1')} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    path.with_suffix(".svg").write_text(svg(json.loads(path.read_text())))
