#!/usr/bin/env python3
"""Speed and size of the operator on a real apiserver: what `make bench-operator` runs.

One after the other, each on a control plane of its own with the same scheduler and the same fake nodes:
Trainyard's operator with jobs of users' own programs, with jobs whose model is ours and, where --peer names its
binary, Kubeflow's training operator. Writes operator.json and operator.md (the table, as in docs/results.md) into
--out and prints the table.

    python3 bench/operator/operator_bench.py --bin build/dev/bin --out build/bench [--peer PROGRAM]
    chrt -r 10 python3 bench/operator/operator_bench.py ...      # where others load the machine

It takes root, and the programs of `tests/cluster/cluster.py build kubernetes etcd kwok training-operator`.
"""
import argparse
import concurrent.futures
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import queue
import sys
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parent.parent)]

import fleet  # noqa: E402
import observe  # noqa: E402
import operators  # noqa: E402
import programs  # noqa: E402
from rig import build  # noqa: E402

CLIENTS = 8
CEILINGS = {"ceiling": "a Deployment", "ceiling_same_pods": "a Deployment of pods like ours"}
PROGRAMS, MODELS = "jobs of own programs", "jobs of our models"
# Bars that a run is held against; docs/results.md says what they mean.
BAR_RATE = 150.0  # pods created a second
BAR_RATIO = 10.0  # of that, over the peer
BAR_SHARE = 0.5  # of that, of the Deployment's
BAR_LAG = 2.0  # seconds from the last pod to the last job's state
BAR_MEMORY = 0.5  # of the peer
BAR_P99 = 0.010
# Nothing is written for so long before it is rest: an agent that does not answer is told of after 30 s.
QUIET = 40


def create(rig, operator, names, tasks):
    """All jobs at once, over connections that are open; the time at which the first was sent."""
    waiting = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    ready = threading.Barrier(CLIENTS + 1)

    def client():
        connection = http.client.HTTPSConnection(*rig.api.address, context=rig.api.tls)
        post(connection, operator.path + "?dryRun=All", operator.job("try", tasks))
        ready.wait()
        with contextlib.suppress(queue.Empty):
            while True:
                post(connection, operator.path, operator.job(waiting.get_nowait(), tasks))
        connection.close()

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(client) for _ in range(CLIENTS)]
        ready.wait()
        began = time.monotonic()
        for one in clients:
            one.result()
    return began


def post(connection, path, body):
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 201:
        raise RuntimeError(f"POST {path}: {answer.status} {text[:300]}")


def burst(rig, operator, process, names, tasks, limit):
    """`names` jobs of `tasks` pods each, until the state of the last one says Running."""
    pods = observe.Watch(rig.api, f"/api/v1/namespaces/{fleet.NAMESPACE}/pods", "Status", "Running")
    jobs = observe.Watch(rig.api, operator.path, "State", "Running")
    wanted = len(names) * tasks
    cpu, written, rig_cpu = process.cpu_seconds(), observe.writes(rig.api), rig.cpu_seconds()
    began = create(rig, operator, names, tasks)
    rig.wait("all jobs to run", lambda: len(pods.reached) >= wanted and len(jobs.reached) >= len(names), limit)
    result = {
        "jobs": len(names), "pods": wanted,
        "all_created_seconds": max(pods.created.values()) - began,
        "all_running_seconds": max(pods.reached.values()) - began,
        "all_jobs_running_seconds": max(jobs.reached.values()) - began,
        "cpu_seconds": process.cpu_seconds() - cpu,
        "rig_cpu_seconds": observe.difference(rig_cpu, rig.cpu_seconds()),
        "writes": observe.difference(written, observe.writes(rig.api)),
    }
    result["pods_per_second"] = wanted / result["all_created_seconds"]
    result["status_lag_seconds"] = result["all_jobs_running_seconds"] - result["all_running_seconds"]
    result["resident_bytes"], result["most_resident_bytes"] = process.memory()
    pods.close()
    jobs.close()
    return result


PLAIN = {"metadata": {}, "spec": {"containers": [{"name": "task", "image": "train:1"}]}}
# Of a pod that is there: what a node, an admission or the cluster has put into it, and names.
GIVEN = ("nodeName", "hostname", "subdomain", "serviceAccount", "serviceAccountName", "tolerations", "priority",
         "preemptionPolicy", "restartPolicy")


def template_of(pod):
    """One for a Deployment whose pods are as large as this one."""
    def own(volumes):
        return [volume for volume in volumes if not volume["name"].startswith("kube-api-access-")]
    spec = {name: value for name, value in pod["spec"].items() if name not in GIVEN}
    spec["volumes"] = own(spec.get("volumes", []))
    spec["containers"] = [{**one, "volumeMounts": own(one.get("volumeMounts", []))} for one in spec["containers"]]
    kept = ("labels", "annotations", "finalizers")
    return {"metadata": {name: pod["metadata"].get(name) for name in kept}, "spec": spec}


def ceiling(arguments, template):
    """The same number of pods for one Deployment: what the rig itself can do."""
    wanted = arguments.jobs * arguments.tasks
    labels = {**(template["metadata"].get("labels") or {}), "app": "ceiling"}
    template = {**template, "metadata": {**template["metadata"], "labels": labels}}
    deployment = {"metadata": {"name": "ceiling"}, "spec": {
        "replicas": wanted, "selector": {"matchLabels": {"app": "ceiling"}}, "template": template}}
    with fleet.fleet(arguments.out / "ceiling") as rig:
        pods = observe.Watch(rig.api, f"/api/v1/namespaces/{fleet.NAMESPACE}/pods", "Status", "Running")
        rig_cpu, began = rig.cpu_seconds(), time.monotonic()
        rig.must("POST", f"/apis/apps/v1/namespaces/{fleet.NAMESPACE}/deployments", deployment)
        rig.wait("the deployment", lambda: len(pods.reached) >= wanted, arguments.limit)
        pods.close()
        return {"pods": wanted, "pods_per_second": wanted / (max(pods.created.values()) - began),
                "all_running_seconds": max(pods.reached.values()) - began,
                "rig_cpu_seconds": observe.difference(rig_cpu, rig.cpu_seconds())}


def settle(rig, quiet, limit):
    """Until nothing has been written for `quiet` seconds; how long that took, at most `limit`."""
    began = changed = time.monotonic()
    last = observe.writes(rig.api)
    while time.monotonic() - changed < quiet and time.monotonic() - began < limit:
        time.sleep(1)
        now = observe.writes(rig.api)
        if now != last:
            changed, last = time.monotonic(), now
    return changed - began


def rest(rig, operator, process, seconds):
    """Nothing happens to the jobs that are there."""
    settled = settle(rig, QUIET, limit=600)
    before, reconciles = observe.writes(rig.api), operators.reconciles(rig, operator)
    refused = observe.refused(rig.api)
    cpu, began = process.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    looks = observe.difference(reconciles, operators.reconciles(rig, operator))
    written = observe.difference(before, observe.writes(rig.api))
    refused = observe.difference(refused, observe.refused(rig.api))
    result = {"settled_seconds": settled, "seconds": took, "writes": written,
              "writes_per_minute": sum(written.values()) / took * 60, "refused": refused,
              "refused_per_minute": sum(refused.values()) / took * 60,
              "cpu_share": (process.cpu_seconds() - cpu) / took,
              "reconciles": looks.get(float("inf"), 0),
              "reconcile_p50_seconds": observe.quantile(looks, 0.5),
              "reconcile_p99_seconds": observe.quantile(looks, 0.99)}
    result["resident_bytes"], result["most_resident_bytes"] = process.memory()
    return result


def measure(operator, arguments, rest_seconds):
    out = arguments.out / operator.name
    with fleet.fleet(out) as rig:
        operator.install(rig)
        process = operator.start(rig)
        result = {"load_average": os.getloadavg()[0], "empty_resident_bytes": process.memory()[0]}
        names = [f"job-{index}" for index in range(arguments.jobs)]
        result["many"] = burst(rig, operator, process, names, arguments.tasks, arguments.limit)
        pods = rig.api.get(f"/api/v1/namespaces/{fleet.NAMESPACE}/pods?limit=1")[1]["items"]
        result["pod"] = pods[0]
        result["busy_reconciles"] = quantiles(operators.reconciles(rig, operator))
        if rest_seconds > 0:
            result["rest"] = rest(rig, operator, process, rest_seconds)
        if arguments.large > 0:
            result["large"] = burst(rig, operator, process, ["large"], arguments.large, arguments.limit)
        return result


def quantiles(buckets):
    return {"count": buckets.get(float("inf"), 0), "p50_seconds": observe.quantile(buckets, 0.5),
            "p99_seconds": observe.quantile(buckets, 0.99)}


def verdict(reached):
    return "reached" if reached else "missed"


def milliseconds(seconds):
    return "-" if seconds is None else f"{seconds * 1e3:.2f} ms"


def mib(count):
    return f"{count / (1 << 20):.1f} MiB"


def ratio(a, b):
    return f"{a / b:.1f}x" if b else ""


def burst_rows(name, ours, peer, bars):
    def row(what, key, unit, higher):
        beside = f"{peer[key]:.2f} {unit}" if peer else ""
        times = (ratio(ours[key], peer[key]) if higher else ratio(peer[key], ours[key])) if peer else ""
        return [f"{name}: {what}", f"{ours[key]:.2f} {unit}", beside, times]
    rows = [row("pods created", "pods_per_second", "pods/s", True),
            row("all pods Running after", "all_running_seconds", "s", False),
            row("last job's state Running after its last pod", "status_lag_seconds", "s", False),
            row("CPU time of the operator", "cpu_seconds", "s", False)]
    rows.append([f"{name}: resident, at most", mib(ours["most_resident_bytes"]),
                 mib(peer["most_resident_bytes"]) if peer else "",
                 ratio(peer["most_resident_bytes"], ours["most_resident_bytes"]) if peer else ""])
    if bars:
        fast = ours["pods_per_second"] >= BAR_RATE
        fast = fast and (not peer or ours["pods_per_second"] >= BAR_RATIO * peer["pods_per_second"])
        rows[0][3] += f" {verdict(fast)}"
        rows[2][3] += f" {verdict(ours['status_lag_seconds'] <= BAR_LAG)}"
        if peer:
            small = ours["most_resident_bytes"] <= BAR_MEMORY * peer["most_resident_bytes"]
            rows[-1][3] += f" {verdict(small)}"
    return rows


def rest_rows(ours, peer):
    def both(what, show):
        return [f"at rest: {what}", show(ours), show(peer) if peer else "", ""]
    rows = [both("writes a minute, at the apiserver", lambda r: f"{r['writes_per_minute']:.1f}"),
            both("attempts a minute that are refused and change nothing", lambda r: f"{r['refused_per_minute']:.1f}"),
            both("reconciles, p50", lambda r: milliseconds(r["reconcile_p50_seconds"])),
            both("reconciles, p99", lambda r: milliseconds(r["reconcile_p99_seconds"])),
            both("resident", lambda r: mib(r["resident_bytes"])),
            both("CPU", lambda r: f"{r['cpu_share'] * 100:.1f} %")]
    rows[0][3] = verdict(ours["writes_per_minute"] == 0)
    p99 = ours["reconcile_p99_seconds"]
    rows[3][3] = verdict(p99 is not None and p99 < BAR_P99)
    return rows


def table(results, arguments):
    ours, peer = results[operators.Ours.name], results.get(operators.Kubeflow.name)
    models = results[operators.OurModels.name]
    rows = []
    for name, words in CEILINGS.items():
        if name in results:
            rows.append([f"the rig's own most: {words}, {results[name]['pods']} pods created",
                         f"{results[name]['pods_per_second']:.2f} pods/s", "", ""])
    for kind, of in ((PROGRAMS, ours), (MODELS, models)):
        rows += burst_rows(f"{arguments.jobs} {kind} x {arguments.tasks}", of["many"], peer and peer["many"], True)
        for name, bar in (("ceiling", True), ("ceiling_same_pods", False)):
            if name in results:
                share = of["many"]["pods_per_second"] / results[name]["pods_per_second"]
                rows.append([f"{arguments.jobs} {kind} x {arguments.tasks}: of the rate of {CEILINGS[name]}",
                             f"{share:.2f}", "", verdict(share >= BAR_SHARE) if bar else ""])
        if "rest" in of:
            rows += rest_rows(of["rest"], peer and peer["rest"])
        if "large" in of:
            rows += burst_rows(f"1 of {kind} x {arguments.large}", of["large"], peer and peer["large"], False)
    lines = ["| what | Trainyard | training-operator | |", "|--|--|--|--|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def how():
    policy = {os.SCHED_OTHER: "ordinary priority", os.SCHED_RR: "all processes of the rig at real-time priority"}
    return policy.get(os.sched_getscheduler(0), "another scheduling policy")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where trainyard-operator is")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where results and logs go")
    parser.add_argument("--peer", help="the binary of Kubeflow's training operator; `build`: the one of cluster.py build")
    parser.add_argument("--only-peer", action="store_true", help="without ours; no table")
    parser.add_argument("--no-ceiling", action="store_true", help="without what the rig itself can do")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=8, help="pods of each job, 2 of them ps")
    parser.add_argument("--large", type=int, default=500, help="pods of one more job; 0: none")
    parser.add_argument("--rest", type=float, default=90, help="seconds of rest; 0: none")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a phase is given up")
    parser.add_argument("--flag", action="append", default=[], help="one more argument of our operator")
    return parser.parse_args()


def main():
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = {"machine": programs.machine(), "date": datetime.date.today().isoformat(),
               "how": how(), "kubelets": fleet.kubelets(), "load_average": os.getloadavg()[0]}
    if not arguments.no_ceiling:
        results["ceiling"] = ceiling(arguments, PLAIN)
    if not arguments.only_peer:
        program = arguments.bin.resolve() / "trainyard-operator"
        for kind, seconds in ((operators.Ours, arguments.rest), (operators.OurModels, 0)):
            results[kind.name] = measure(kind(program, arguments.flag), arguments, seconds)
        if not arguments.no_ceiling:
            pod = results[operators.Ours.name]["pod"]
            results["ceiling_same_pods"] = ceiling(arguments, template_of(pod))
    if arguments.peer == "build":
        arguments.peer = build.find("training-operator.v1")
    if arguments.peer:
        results["training-operator"] = measure(operators.Kubeflow(arguments.peer), arguments, arguments.rest)
    fleet.dump(arguments.out / "operator.json", results)
    if arguments.only_peer:
        return
    text = (f"{results['machine']}, {results['date']}, nodes: {results['kubelets']}, {results['how']}, "
            f"load average {results['load_average']:.1f} before\n\n" + table(results, arguments))
    (arguments.out / "operator.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
