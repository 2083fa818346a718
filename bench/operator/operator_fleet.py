#!/usr/bin/env python3
"""What thousands of running jobs cost the operator: what `make bench-fleet` runs.

A control plane of tests/cluster with fake nodes, and for each pod an agent that answers at the pod's address
with its job's certificate (trainyard-bench-agents): steps and losses go up each second. Printed for each
number of jobs: processor time and memory of the operator with all jobs running, how long it looks at one job,
what it writes; the same with jobs that stand still; and how long another operator takes to hear of all jobs
after the first one is killed.

    python3 bench/operator/operator_fleet.py --bin build/dev/bin --out build/fleet --jobs 250 1000

It takes root, and the programs of `tests/cluster/cluster.py build kubernetes etcd`.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent)]

import fleet  # noqa: E402
import fleet_picture  # noqa: E402
import observe  # noqa: E402
import operator_bench  # noqa: E402
import operators  # noqa: E402
import programs  # noqa: E402

PODS_OF_A_NODE = 900
# Each takes an open file, and one more while somebody is connected with it, of which a process often may have 20,000 or so.
AGENTS_OF_A_PROGRAM = 7500
ADDRESSES = "10.244.0.0/16"
STATUS_PATCHES = (("verb", "PATCH"), ("resource", "trainingjobs"), ("subresource", "status"))
LEASE = ("--leader-elect", "--lease-namespace", fleet.NAMESPACE, "--lease-duration", 15, "--renew-deadline", 10,
         "--retry-period", 2)


class Agents:
    """The agents' programs: they are told of pods by the kubelet, and of the rest by us."""

    def __init__(self, rig, program, pipes):
        with subprocess.Popen(rig.cluster.published.command(["ip", "route", "add", "local", ADDRESSES, "dev", "lo"])) as added:
            added.wait()
        self.processes = [rig.start(f"agents-{at}", "sh", "-c", f'exec "$0" --root-secret "$1" <"{pipe}"', program,
                                    rig.out / "root-secret") for at, pipe in enumerate(pipes)]
        self.rig = rig
        self.pipes = [open(pipe, "w", buffering=1, encoding="utf-8") for pipe in pipes]

    def tell(self, word):
        for pipe in self.pipes:
            pipe.write(word + "\n")

    def count(self):
        """What was asked since the last "reset", of all."""
        lines = [len(answers) for answers in self.answers()]
        self.tell("count")
        self.rig.wait("the agents to count", lambda: all(
            len(answers) > before for answers, before in zip(self.answers(), lines)))
        last = [json.loads(answers[-1]) for answers in self.answers()]
        return {name: sum(one[name] for one in last) for name in last[0]}

    def answers(self):
        return [[line for line in process.log.read_text().splitlines() if line.startswith("{")]
                for process in self.processes]


class Leaders:
    """Operators of one cluster, of which one leads."""

    def __init__(self, rig, arguments):
        self.rig, self.arguments = rig, arguments
        self.ports = iter(range(8080, 8200))
        self.kind = operators.OurModels(arguments.bin.resolve() / "trainyard-operator", [*LEASE, *arguments.flag])
        self.kind.install(rig)

    def start(self, wait):
        """Its process and where its metrics are."""
        port = next(self.ports)
        process = self.rig.start(f"operator-{port}", self.kind.program, *self.kind.flags(self.rig, port))
        page = f"http://127.0.0.1:{port}/metrics"
        if wait:
            self.rig.wait("the operator", lambda: self.rig.cluster.fetch(
                f"http://127.0.0.1:{port}/readyz").strip() == "ok")
        return process, page


def watched(rig, kind, process, page, agents, seconds):
    """One operator for so many seconds of the life of its jobs."""
    # The apiserver's page is a large one: it is not read while the looks are counted.
    served = rig.api.get("/metrics")[1]
    written = observe.writes_told(served)
    agents.tell("reset")
    before, cpu, began = rig.cluster.fetch(page), process.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    after, used, took = rig.cluster.fetch(page), process.cpu_seconds() - cpu, time.monotonic() - began
    calls = agents.count()["calls"]
    served_then = rig.api.get("/metrics")[1]
    wrote = observe.difference(written, observe.writes_told(served_then))
    looks = observe.difference(*(observe.histogram(
        text, "controller_runtime_reconcile_time_seconds", kind.controller) for text in (before, after)))
    status = observe.difference(*(observe.histogram(
        text, "apiserver_request_duration_seconds", *STATUS_PATCHES) for text in (served, served_then)))
    return {"seconds": took, "cores": used / took, "calls_per_second": calls / took,
            "writes_per_second": sum(wrote.values()) / took, "writes": wrote,
            "reconciles_per_second": looks.get(float("inf"), 0) / took,
            "reconcile_p99_seconds": observe.quantile(looks, 0.99),
            "status_p99_seconds": observe.quantile(status, 0.99), "resident_bytes": process.memory()[0]}


def failover(rig, leaders, first, agents, jobs, limit):
    """The first one is killed; until the second has heard of every job."""
    second, page = leaders.start(wait=False)
    time.sleep(5)
    agents.tell("reset")
    first.stop()
    began, cpu = time.monotonic(), second.cpu_seconds()
    rig.processes.remove(first)
    agents.tell("reset")
    rig.wait("the other operator", lambda: agents.count()["coordinators"] >= jobs, limit)
    asked = agents.count()
    return second, page, {"seconds": time.monotonic() - began, "cpu_seconds": second.cpu_seconds() - cpu,
                          "asked": asked["asked"], "resident_bytes": second.memory()[0]}


def make_pipes(stack, out, count):
    pipes = [(out / f"agents-{at}.pipe").resolve() for at in range(count)]
    for pipe in pipes:
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        stack.callback(os.close, os.open(pipe, os.O_RDWR))  # it never ends
    return pipes


def measure(arguments, jobs):
    out = arguments.out / f"jobs-{jobs}"
    out.mkdir(parents=True, exist_ok=True)
    nodes = max(fleet.NODES, -(-jobs * arguments.tasks // PODS_OF_A_NODE))
    with contextlib.ExitStack() as stack:
        pipes = make_pipes(stack, out, -(-jobs * arguments.tasks // AGENTS_OF_A_PROGRAM))
        rig = stack.enter_context(fleet.fleet(out, pipes, nodes))
        leaders = Leaders(rig, arguments)
        process, page = leaders.start(wait=True)
        agents = Agents(rig, arguments.bin.resolve() / "trainyard-bench-agents", pipes)
        names = [f"job-{index}" for index in range(jobs)]
        result = {"jobs": jobs, "tasks": arguments.tasks, "load_average": os.getloadavg()[0]}
        result["begin"] = operator_bench.burst(rig, leaders.kind, process, names, arguments.tasks, arguments.limit)
        time.sleep(arguments.settle)
        if not rig.api.get(f"{leaders.kind.path}/job-0")[1]["status"].get("progress"):
            raise RuntimeError("jobs do not get on")
        result["running"] = watched(rig, leaders.kind, process, page, agents, arguments.seconds)
        agents.tell("freeze")
        time.sleep(arguments.settle)
        result["frozen"] = watched(rig, leaders.kind, process, page, agents, arguments.seconds)
        agents.tell("thaw")
        process, page, result["failover"] = failover(rig, leaders, process, agents, jobs, arguments.limit)
        return result


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where the programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where results and logs go")
    parser.add_argument("--jobs", type=int, nargs="+", default=[250, 500, 1000])
    parser.add_argument("--tasks", type=int, default=10, help="pods of each job, 2 of them ps")
    parser.add_argument("--seconds", type=float, default=60, help="for which it is looked at, each time")
    parser.add_argument("--settle", type=float, default=70, help="seconds until then")
    parser.add_argument("--limit", type=float, default=1200, help="seconds after which a phase is given up")
    parser.add_argument("--flag", action="append", default=[], help="one more argument of the operator")
    return parser.parse_args()


def main():
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = {"machine": programs.machine(), "date": datetime.date.today().isoformat(), "runs": []}
    for jobs in arguments.jobs:
        results["runs"].append(measure(arguments, jobs))
        fleet.dump(arguments.out / "fleet.json", results)
        (arguments.out / "fleet.svg").write_text(fleet_picture.svg(results), encoding="utf-8")
        print(fleet_picture.table(results), flush=True)
    text = fleet_picture.table(results)
    (arguments.out / "fleet.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
