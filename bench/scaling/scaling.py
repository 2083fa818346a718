"""Images per second of 1 to 16 machines against one: dedicated and colocated parameter servers, and a ring, beside the cost
model: what `make scaling` runs.

    python3 bench/scaling/scaling.py --bin build/dev/bin --out build/scaling [--quick]

Each machine is a network namespace behind a link of its own (bench/experiment/links.py); computing is simulated,
communication is real. Writes results.json, results.md (the table of docs/experiments.md) and scaling.svg. Needs root;
exits with 77 and a line that says why when there can be no namespaces.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "experiment"), str(HERE.parent / "pictures")]

import experiment  # noqa: E402
import links  # noqa: E402
import machines  # noqa: E402
import picture  # noqa: E402
import programs  # noqa: E402
import results  # noqa: E402
import run_records  # noqa: E402

BUSY = 0.85  # of the processors: above it they may be what a step waits for


class Machines:
    """The namespaces of a layout, by the names of its tasks."""

    def __init__(self, place, out, link):
        self.place = place
        hosts = {f"machine-{i}": link for i in range(place.machines)}
        self.network = links.Network(hosts | {"launcher": links.UNSHAPED})
        self.folder = out / "namespaces"

    def __enter__(self):
        self.network.__enter__()
        self.folder.mkdir(parents=True, exist_ok=True)
        for task, machine in self.place.of.items():
            link = self.folder / task
            link.unlink(missing_ok=True)
            link.symlink_to(links.NAMES / self.network.namespace(f"machine-{machine}"))
        return self

    def flags(self):
        flags = ["--task-wrapper", f"nsenter --net={self.folder}/{{task}}"]
        for task, machine in self.place.of.items():
            flags += ["--task-address", f"{task}={self.network.addresses[f'machine-{machine}']}"]
        return flags

    def __exit__(self, *error):
        for link in self.folder.iterdir():
            link.unlink()
        return self.network.__exit__(*error)


class Scaling:
    def __init__(self, args):
        self.args = args
        self.driver = experiment.Driver(args)

    def plan(self, model, rate, sizes):
        """What the cost model says, by number of machines."""
        kind = machines.MODELS[model]
        printed = subprocess.run(
            [self.args.bin / "trainyard", "plan", "--parameters", str(kind["parameters"]), "--bandwidth",
             f"{machines.payload(rate):.0f}bit", "--step-seconds", str(kind["step_seconds"]), *sizes, "-o", "json"],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        return {row["machines"]: row for row in json.loads(printed)["cost"]["scale"]}

    def description(self, model, rate, place, steps):
        carried_by, scale = machines.carrier(model, machines.RATES[rate]), machines.factor(model, machines.RATES[rate])
        name = f"{model.replace('_', '-')}-{rate.split()[0]}g-{place.system}-{place.workers}-{place.servers}"
        return machines.job(name, place, carried_by, machines.MODELS[model]["step_seconds"] * scale, steps)

    def point(self, model, rate, place, expected):
        """Runs it; `expected`: seconds of a step by the model."""
        alone, scale = machines.MODELS[model]["step_seconds"], machines.factor(model, machines.RATES[rate])
        link = machines.link(model, machines.RATES[rate])
        steps = machines.measured_steps(expected * scale) + 1
        with Machines(place, self.args.out, link) as made:
            before = programs.ticks()
            folder = self.driver.train(self.description(model, rate, place, steps), made.network.enter("launcher"), made.flags())
            after = programs.ticks()
        step = run_records.step_seconds(run_records.read(folder)) / scale
        rates = experiment.server_rates(folder) if place.servers else None
        busy = 1 - (after.idle - before.idle) / max(after.all - before.all, 1)
        print(f"  {step:.3f} s a step, model {expected:.3f}; processors {busy * 100:.0f} % at work", flush=True)
        return {"model": model, "rate": rate, "system": place.system, "machines": place.machines, "workers": place.workers,
                "ps": place.servers, "carried_parameters": machines.carrier(model, machines.RATES[rate])["parameters"],
                "times_longer": round(scale, 4), "step_seconds": round(step, 4), "model_seconds": round(expected, 4),
                "speedup": round(machines.speedup(place.workers, alone, step), 3), "busy": round(busy, 2),
                # As behind the links of the machines that are stood for.
                "ps_bytes_per_second": rates and {ps: [round(r * machines.RATES[rate] / link) for r in both]
                                                  for ps, both in rates.items()}}

    def head(self):
        return {"machine": programs.machine(), "date": datetime.date.today().isoformat(), "load": os.getloadavg()[0],
                "busy_limit": BUSY, "models": machines.MODELS, "points": []}

    def measure(self):
        args = self.args
        made = self.head() | {"curves": {}}
        for model in args.models:
            for rate in args.rates:
                curve = self.plan(model, machines.RATES[rate], ["--scale", "1..64"])
                made["curves"][f"{model} {rate}"] = [curve[size] for size in sorted(curve)]
                for size in args.sizes:
                    for system in machines.SYSTEMS:
                        place = machines.layout(system, size, curve[size])
                        made["points"].append(self.point(model, rate, place, curve[size][system]["stepSeconds"]))
        return made


def parse(description, argv=None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where the programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where the results go")
    parser.add_argument("--quick", action="store_true", help="one model behind 1 Gbit/s, fewer machines")
    parser.add_argument("--model", choices=list(machines.MODELS), help="only this one")
    parser.add_argument("--machines", type=int, nargs="+", help="only so many")
    args = parser.parse_args(argv)
    args.models = [args.model] if args.model else ["resnet50"] if args.quick else list(machines.MODELS)
    args.rates = list(machines.RATES)[:1] if args.quick else list(machines.RATES)
    args.urgent, args.data = False, experiment.fashion.FASHION
    args.bin, args.out = args.bin.absolute(), args.out.absolute()
    return args


def run(description, name, kind, sizes, quick, drawing):
    """A program: `kind` measures numbers of machines, `quick` the first ones with --quick; `drawing` makes of it what is left
    behind as `name`. Returns the exit code."""
    args = parse(description)
    args.sizes = args.machines or (sizes[:quick] if args.quick else sizes)
    if reason := links.why_not():
        print(f"no {name}: {reason}", file=sys.stderr)
        return 77
    args.out.mkdir(parents=True, exist_ok=True)
    return results.leave(args.out, name, kind(args).measure, drawing)


def main():
    return run(__doc__.splitlines()[0], "scaling", Scaling, machines.SIZES, 3, picture)


if __name__ == "__main__":
    sys.exit(main())
