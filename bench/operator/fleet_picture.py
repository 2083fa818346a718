"""The table and the picture of a fleet.json of operator_fleet.py: what an operator costs by the number of running jobs.
Pure.

    python3 bench/operator/fleet_picture.py FLEET.json      writes the .svg beside it
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "pictures"))

import chart  # noqa: E402

# Bars that a run is held against; docs/results.md says what they mean.
CORES, MIB, P99, FAILOVER, WRITES = 0.5, 400, 0.05, 60, 20


def found(results, value):
    """(jobs, value of the run), rising; runs of which it is not known are left out."""
    points = sorted((run["jobs"], value(run)) for run in results["runs"])
    return [(jobs, number) for jobs, number in points if number is not None]


def mib(run):
    return max(run["running"]["resident_bytes"], run["failover"]["resident_bytes"]) / (1 << 20)


def slope(points):
    """Of the straight line through the origin that is nearest to all of them."""
    return sum(x * y for x, y in points) / sum(x * x for x, _ in points)


def panel(results, title, y, lines, mark):
    drawn = [chart.Line(name, color, found(results, value), marked=True) for color, (name, value) in enumerate(lines)]
    most = max([mark] + [number for line in drawn for _, number in line.points])
    return chart.Panel(title, "running jobs of 10 pods", y, drawn, mark=mark, y_limits=(0.0, most * 1.05))


def svg(results):
    return chart.draw([
        panel(results, "Processor time of the operator", "cores",
              [("jobs get on", lambda run: run["running"]["cores"]), ("they stand still", lambda run: run["frozen"]["cores"])],
              CORES),
        panel(results, "Memory", "MiB",
              [("the one that began the jobs", mib),
               ("one that has just taken over", lambda run: run["failover"]["resident_bytes"] / (1 << 20))], MIB),
        panel(results, "Writes", "a second",
              [("jobs get on", lambda run: run["running"]["writes_per_second"]),
               ("they stand still", lambda run: run["frozen"]["writes_per_second"])], WRITES),
        panel(results, "Killed: until all jobs are known", "seconds",
              [("leases run 15 s", lambda run: run["failover"]["seconds"])], FAILOVER)])


def verdict(value, bar, text):
    return f"{text} ({'reached' if value <= bar else 'missed'})"


def row(result):
    running, frozen, over = result["running"], result["frozen"], result["failover"]
    p99 = running["reconcile_p99_seconds"] or 0
    memory = mib(result)
    return [f"{result['jobs']} x {result['tasks']}", f"{result['begin']['pods_per_second']:.0f}",
            verdict(running["cores"], CORES, f"{running['cores']:.2f}"), f"{frozen['cores']:.2f}",
            verdict(memory, MIB, f"{memory:.0f} MiB"), f"{running['calls_per_second']:.0f}",
            f"{running['reconciles_per_second']:.1f}", verdict(p99, P99, f"{p99 * 1e3:.1f} ms"),
            verdict(running["writes_per_second"], WRITES, f"{running['writes_per_second']:.1f}"),
            f"{frozen['writes_per_second']:.2f}",
            verdict(over["seconds"], FAILOVER, f"{over['seconds']:.0f} s, {over['cpu_seconds']:.0f} s")]


def table(results):
    lines = [f"{results['machine']}, {results['date']}, load {results['runs'][0]['load_average']:.1f} at the start:", "",
             "| jobs x pods | pods/s at the start | cores while jobs get on | while they stand still | memory | "
             "calls/s | looks/s | p99 of a look | writes/s | standing still | killed: until all are known, CPU |",
             "|--|--|--|--|--|--|--|--|--|--|--|"]
    runs = sorted(results["runs"], key=lambda run: run["jobs"])
    lines += ["| " + " | ".join(row(run)) + " |" for run in runs]
    cores = slope(found(results, lambda run: run["running"]["cores"]))
    return "\n".join(lines + ["", f"1,000 jobs that get on take {1000 * cores:.2f} cores (the line through nothing that is nearest)."]) + "\n"


def main():
    file = pathlib.Path(sys.argv[1])
    file.with_suffix(".svg").write_text(svg(json.loads(file.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
