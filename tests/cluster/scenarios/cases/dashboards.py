"""Scenario 72: the dashboards of the chart ask for nothing that nobody exports."""
import json
import re

from harness.jobs import foreign
from harness.world import ROOT

CHART = ROOT / "helm" / "trainyard"
# Of NVIDIA's exporter, where there is one.
FOREIGN = re.compile(r"DCGM_\w+$")
KEYWORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset", "inf",
            "nan", "start", "end", "atan2"}


def names_in(query):
    """The metrics of a PromQL expression, or of a query of a dashboard's variable."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|#.*', " ", query)
    text = re.sub(r"label_values\s*\((.*),\s*\w+\s*\)\s*$", r"\1", text)
    text = re.sub(r"^\s*(label_values|label_names|query_result)\s*\(", "(", text)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\$\{?\w+\}?", " ", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    found = re.findall(r"(?<![\w.:])([a-zA-Z_:][\w:]*)\b(?!\s*\()", text)
    return {name for name in found if name.lower() not in KEYWORDS}


def queries(node):
    """All expressions in a dashboard: targets, variables, annotations."""
    if isinstance(node, dict):
        if node.get("type") == "datasource":  # a variable that stands for a server
            return
        for key, value in node.items():
            if key in ("expr", "query", "definition") and isinstance(value, str) and value:
                yield value
            else:
                yield from queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from queries(value)


def dashboards():
    """{file name: dashboard} of the chart."""
    found = {}
    for path in sorted(CHART.rglob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and "panels" in content:
            found[path.name] = content
    return found


def catalogue():
    """{name: (kOperator, kPs..., when)} of the metrics that our programs export, from the catalogue's source."""
    text = (ROOT / "base" / "metrics" / "catalogue.h").read_text(encoding="utf-8")
    rows = re.findall(r'\{"(\w+)",\s*MetricKind::k\w+,\s*"\w*",\s*"[\w,]*",\s*([\w| ]+),(.*?)\},?(?=\s*(?:\{"|//|\};))',
                      text, re.S)
    # Those whose labels are said once for all.
    rows += re.findall(r'ofTable\(\s*"(\w+)",\s*MetricKind::k\w+,\s*"\w*",\s*([\w| ]+),(.*?)\)', text, re.S)
    return {name: (set(exporters.replace(" ", "").split("|")), rest) for name, exporters, rest in rows}


def scenario_72_dashboard_queries_resolve(case):
    case.equal({"a_total", "b_bucket", "c"}, names_in(
        'sum by (job_namespace) (rate(a_total{state="x", job=~"$job"}[5m])) / on(ns) group_left(role) '
        "histogram_quantile(0.9, sum(rate(b_bucket[$__rate_interval])) by (le)) > bool 0 or c offset 5m"))
    case.equal({"d_info"}, names_in('label_values(d_info{ns="$ns"}, trainyard_job)'))
    found = dashboards()
    case.true(found, "the chart has no dashboards")
    case.submit(foreign())
    case.wait_state("Running")
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    case.wait_state("Running")
    scraped = set(re.findall(r"^(\w+)[ {]", case.op.fetch("/metrics")[1], re.M))
    known = catalogue()
    case.true(len(known) > 40, f"the catalogue has {len(known)} rows")
    tasks = {name for name, (exporters, rest) in known.items() if exporters - {"kOperator", "kReserved"}}
    # No agent tells of progress here.
    operator = scraped | {name for name, (_, rest) in known.items() if "while the job reports progress" in rest}
    unknown = []
    for file, dashboard in found.items():
        used = set().union(*(names_in(query) for query in queries(dashboard)))
        case.true(used, f"{file} asks for nothing")
        for name in sorted(used):
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            if not {name, family} & (operator | tasks) and not FOREIGN.match(name):
                unknown.append(f"{file}: {name}")
    case.equal([], unknown, "metrics that nobody exports")
