"""Asks a Prometheus all that dashboards and alerts ask, until each question has an answer."""
import re

import programs
import queries

# Longer than the time between two scrapes under load, and short enough for a test.
RATE = "30s"
# Series that need what no test machine has: GPUs under NVIDIA's DCGM exporter.
EXCEPTIONS = re.compile(r"\bDCGM_")
# Series of jobs without parameter servers alone, and of those with embedding tables.
ALL_REDUCE = re.compile(r"\btrainyard_collective_")
TABLES = re.compile(r"\btrainyard_(ps_(hot_)?rows|worker_(distinct_)?row_ids)")
# What a dashboard is looked at for: more than zero while jobs train.
KEY_PANELS = {(name, panel) for name, panels in {
    "trainyard-job.json": {"Throughput", "Step", "Step over time", "Loss", "Loss over time", "Throughput by worker",
                           "Step time by phase", "Step time of steps", "Checkpoint duration", "Checkpoint size",
                           "Received by each server", "Sent by each server", "Hot share",
                           "Traffic now", "Tasks ready", "Sent in all-reduce by each worker",
                           "Time in all-reduce per step", "Slowest worker", "Rows by table",
                           "Memory of rows by table", "Rows pulled from each server", "Rows pushed to each server",
                           "Hot rows by table", "Lookups for each row asked for"},
    "trainyard-parameter-servers.json": {"Received", "Sent", "Received by server", "Sent by server", "Traffic now",
                                         "Gradients received", "Weights sent", "Requests", "Request to answer",
                                         "Weights held"},
    "trainyard-operator.json": {"Leaders", "Jobs by state", "Reconciles by result", "Requests by answer",
                                "Cached pods", "Memory"},
    "trainyard-fleet.json": {"Throughput", "Traffic", "Jobs", "Throughput by job", "Traffic by job"},
}.items() for panel in panels}


def dashboard_questions():
    """[((file, panel), expression)]"""
    asked = []
    for name, dashboard in queries.dashboards().items():
        for where, expr in queries.dashboard_queries(dashboard):
            if not EXCEPTIONS.search(expr):
                expr = queries.operands(expr)[0] if where.startswith("annotation ") else expr
                asked.append(((name, where), expr))
    return asked


def alert_questions():
    """[(alert or recorded series, part of its condition)]; some ask for a job that has failed."""
    return [(rule.get("alert") or rule["record"], expr) for rule in queries.rules()
            for expr in queries.operands(rule["expr"]) if not EXCEPTIONS.search(expr)]


def substituted(expr, job, namespace=".*"):
    """As Grafana asks when a namespace, else all, and the job `job` are chosen; what looks back is shortened."""
    expr = expr.replace("$__rate_interval", RATE).replace("$namespace", namespace).replace("$job_name", job)
    return re.sub(r"\boffset \w+", "", expr)


def answers(query, asked, job, positive=frozenset(), meanwhile=lambda: None, namespace=".*", ring=None, tables=None):
    """Asks each of [(where, expression)] by query(expression), which gives [(labels, value)], until it has series, and
    something at each place in `positive` is more than zero; it may take a while until a rate has seen enough. What only
    jobs without parameter servers have is asked of the job `ring`, and what only those with embedding tables have of
    `tables`, or not at all."""
    found = {}

    def job_of(expr):
        return ring if ALL_REDUCE.search(expr) else tables if TABLES.search(expr) else job

    nobodys = {where for where, expr in asked if job_of(expr) is None}
    asked = [(where, expr) for where, expr in asked if job_of(expr) is not None]
    positive = positive - (nobodys - {where for where, _ in asked})

    def asked_for(expr):
        return substituted(expr, job_of(expr), namespace)

    def zero():
        return positive - {where for (where, _), series in found.items() if any(value > 0 for _, value in series)}

    def lacking():
        return [f"{where}: {asked_for(expr)}" for (where, expr), series in found.items() if not series]

    def all_answer():
        meanwhile()
        still_zero = zero()
        for where, expr in asked:
            if where in still_zero or not found.get((where, expr)):
                found[where, expr] = query(asked_for(expr))
        return not lacking() and not zero()

    programs.until(lambda: "\n".join(["no series of", *lacking(), f"zero: {zero()}"]), all_answer, every=2)
