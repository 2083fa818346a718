"""Seven workers, two parameter servers, three placements: what `make experiment` runs.

On links of --link, each task in a network namespace of its own, workers only take the time of a step
(--step-seconds): time per step and bytes per second of each server, beside what `trainyard plan`
foretells. Then the same placements behind the same links with real computing (learning.py): loss and accuracy by
time, until --target.

    python3 bench/experiment/experiment.py --bin build/dev/bin --out build/experiment [--quick]

Writes results.json and results.md (the tables of docs/experiments.md), a page for each group of runs, and for those that
learn learning.json and learning.svg.
Needs root; exits with 77 and a line that says why when there can be no namespaces.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import fashion  # noqa: E402
import jobs  # noqa: E402
import learning  # noqa: E402
import learning_runs  # noqa: E402
import links  # noqa: E402
import programs  # noqa: E402
import run_records  # noqa: E402

UNAVAILABLE = 77
TOLERANCE = 0.10  # of the time that the cost model foretells


class Driver:
    def __init__(self, args):
        self.args = args
        self.trainyard = args.bin / "trainyard"

    def train(self, description, wrapper=(), flags=()):
        """Runs the job to its end and returns its directory."""
        name = description["metadata"]["name"]
        folder = self.args.out / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)
        file = jobs.write(description, self.args.out / f"{name}.json")
        priority = ["chrt", "-r", "10"] if self.args.urgent else []
        command = [*wrapper, *priority, self.trainyard, "run", "-f", file, "--dir", folder,
                   "--volume", f"data={self.args.data}", *flags]
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        with programs.ended(running):
            printed = running.communicate()[0]
        if running.returncode != 0:
            raise RuntimeError(f"{name} failed:\n{printed}")
        print(f"{name}: {printed.splitlines()[-1]}", flush=True)
        return folder

    def plan(self, name, seconds):
        text = subprocess.run(
            [self.trainyard, "plan", "-f", self.args.out / f"{name}.json", "--bandwidth",
             self.args.link, "--step-seconds", str(seconds), "-o", "json"],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        return json.loads(text)

    def on_links(self, network, model, placement, steps, seconds):
        description = jobs.simulated(model, placement, steps, seconds, self.args.replicas)
        folder = self.train(description, network.enter("launcher"), links.flags(network, jobs.TASKS))
        plan = self.plan(description["metadata"]["name"], seconds)
        return {"model": model, "placement": placement, "directory": str(folder),
                "predicted_seconds": plan["prediction"]["stepSeconds"],
                "communication_seconds": plan["prediction"]["communicationSeconds"],
                "measured_seconds": run_records.step_seconds(run_records.read(folder)),
                "held_bytes": [ps["bytes"] for ps in plan["ps"]],
                "ps_bytes_per_second": server_rates(folder)}

    def report(self, name, folders):
        page = self.args.out / f"{name}.html"
        subprocess.run([self.trainyard, "report", *folders, "-o", page, "--bandwidth",
                        self.args.link], check=True, stdout=subprocess.DEVNULL)
        print(f"report: {page}", flush=True)


def server_rates(folder):
    """Bytes per second, in and out, as TCP carried them, between the first and the last step."""
    steps = run_records.training(run_records.read(folder))
    samples = [r for r in run_records.read(folder, "traffic.jsonl")
               if steps[0]["time"] <= r["time"] <= steps[-1]["time"]]
    if len(samples) < 2:
        return None
    seconds = samples[-1]["time"] - samples[0]["time"]
    first = {ps["task"]: ps for ps in samples[0]["ps"]}
    return {ps["task"]: [(ps[name] - first[ps["task"]][name]) / seconds
                         for name in ("wireReceivedBytes", "wireTransmittedBytes")]
            for ps in samples[-1]["ps"]}


def on_links(driver, args):
    results = {"runs": []}
    with links.Network(links.tasks(jobs.TASKS, args.link)) as network:
        if shutil.which("iperf3"):
            results["stream_bytes_per_second"] = network.measured()
        for model, steps in args.models.items():
            for placement in args.placements:
                results["runs"].append(
                    driver.on_links(network, model, placement, steps, args.step_seconds))
    return results


def rate_text(run, task):
    rates = run["ps_bytes_per_second"]
    return " / ".join(f"{rate / 1e6:.1f}" for rate in rates[task]) if rates else "too short"


def links_table(results):
    lines = ["| model | placement | busiest server's bytes | foretold, s | measured, s | off | "
             "ps-0 MB/s in / out | ps-1 |", "|--|--|--|--|--|--|--|--|"]
    for run in results["runs"]:
        off = run["measured_seconds"] / run["predicted_seconds"] - 1
        hot = max(run["held_bytes"]) / sum(run["held_bytes"])
        lines.append(
            f"| {run['model']} | {run['placement']} | {hot * 100:.1f} % | "
            f"{run['predicted_seconds']:.3f} | {run['measured_seconds']:.3f} | {off * 100:+.1f} % | "
            f"{rate_text(run, 'ps-0')} | {rate_text(run, 'ps-1')} |")
    for model in dict.fromkeys(run["model"] for run in results["runs"]):
        step = {r["placement"]: r["measured_seconds"] for r in results["runs"] if r["model"] == model}
        if {"roundrobin", "balanced"} <= step.keys():
            lines.append(f"\n{model}: round robin takes {step['roundrobin'] / step['balanced']:.2f} "
                         "times as long for a step as Balanced.")
    worst = max(abs(r["measured_seconds"] / r["predicted_seconds"] - 1) for r in results["runs"])
    verdict = "reached" if worst <= TOLERANCE else "missed"
    lines.append(f"\nFarthest from the model: {worst * 100:.1f} % (bar: {TOLERANCE * 100:.0f} %, "
                 f"{verdict}).")
    return "\n".join(lines) + "\n"


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where the programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where the results go")
    parser.add_argument("--data", default=fashion.FASHION, type=pathlib.Path)
    parser.add_argument("--link", default="1Gbit", help="bandwidth of every task's link")
    parser.add_argument("--step-seconds", default=0.1, type=float, help="simulated computing")
    parser.add_argument("--only", choices=["links", "learning"])
    parser.add_argument("--model", choices=list(jobs.MODELS), help="only this one on links")
    parser.add_argument("--placement", choices=list(jobs.PLACEMENTS), help="only this one")
    parser.add_argument("--replicas", choices=["Never", "Auto"], default="Never",
                        help="on links; Auto: what jobs have that say nothing")
    parser.add_argument("--steps", type=int, help="on links; the first is not measured")
    parser.add_argument("--tensorflow", type=pathlib.Path, metavar="VENV",
                        help="what learns, learns with TensorFlow's parameter servers, too; its wheels go there")
    parser.add_argument("--target", default=0.88, type=float, help="accuracy to which is learned")
    parser.add_argument("--quick", action="store_true", help="mnist only, few steps; learning to 0.5 only")
    parser.add_argument("--urgent", action="store_true",
                        help="chrt -r 10 for all tasks, where the machine has other work to do")
    args = parser.parse_args(argv)
    args.models = {"mnist": 11} if args.quick else {"mnist": 61, "vgg19": 3}
    if args.model:
        args.models = {args.model: args.models[args.model]}
    if args.steps:
        args.models = {model: args.steps for model in args.models}
    args.placements = [args.placement] if args.placement else list(jobs.PLACEMENTS)
    args.learning_steps, args.every, args.after = (60, 10, 0) if args.quick else (1200, 40, 1)
    args.target = min(args.target, 0.5) if args.quick else args.target
    args.out = args.out.absolute()
    args.bin = args.bin.absolute()
    return args


def measure(args):
    driver = Driver(args)
    results = {"machine": programs.machine(), "date": datetime.date.today().isoformat(), "replicas": args.replicas,
               "load": os.getloadavg(), "link": args.link, "step_seconds": args.step_seconds}
    text = f"{results['machine']}, {results['date']}, load {results['load'][0]:.0f}"
    text += f", links of {args.link}\n\n"
    if args.only != "learning":
        results["links"] = on_links(driver, args)
        text += links_table(results["links"])
        for model in args.models:
            driver.report(model, [run["directory"] for run in results["links"]["runs"]
                                  if run["model"] == model])
    if args.only != "links":
        results["learning"] = learning_runs.measure(args)
        text += "\n" + learning.table(results["learning"])
        (args.out / "learning.json").write_text(json.dumps(results["learning"], indent=1) + "\n")
        (args.out / "learning.svg").write_text(learning.svg(results["learning"]))
        driver.report("learning", [args.out / "runs" / f"learning-{placement}" for placement in args.placements])
    (args.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (args.out / "results.md").write_text(text)
    print(text)


def main():
    args = parse()
    if reason := links.why_not():
        print(f"no experiment: {reason}", file=sys.stderr)
        return UNAVAILABLE
    # Ended from elsewhere, it takes everything down as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        measure(args)
    except KeyboardInterrupt:
        print("interrupted; namespaces and processes are gone", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
