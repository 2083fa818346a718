"""What dashboards and alerts ask Prometheus for."""
import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "helm" / "trainyard" / "files"
ALERTS = FILES / "alerts.yaml"
BIN = pathlib.Path(os.environ.get("TRAINYARD_BIN", ROOT / "build" / "dev" / "bin"))

KEYWORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "offset",
            "bool", "inf", "nan"}
COMPARISON = re.compile(r"==|!=|>=|<=|>|<")


def dashboards():
    """{file name: dashboard}"""
    return {path.name: json.loads(path.read_text()) for path in sorted((FILES / "dashboards").glob("*.json"))}


def panels(dashboard):
    """Every panel that shows something, also those below collapsed rows."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def dashboard_queries(dashboard):
    """(where, expression), with the dashboard's variables in them."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            inner = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            yield f"variable {variable['name']}", f"count by ({inner[2]}) ({inner[1]})"
    for annotation in dashboard["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]


def alert_groups():
    text = ALERTS.read_text()
    done = subprocess.run([BIN / "yaml_to_json"], input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["groups"]


def rules():
    """Every rule: {"record" or "alert", "expr", ...}."""
    return [rule for group in alert_groups() for rule in group["rules"]]


def catalogue():
    """The rows of the catalogue of metrics."""
    done = subprocess.run([BIN / "print_metrics", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def family(name):
    """Of a series: those of histograms and summaries have suffixes."""
    return re.sub(r"_(bucket|count|sum)$", "", name)


def metric_names(expr):
    """Names of the series that an expression reads."""
    bare = re.sub(r'"(\\.|[^"\\])*"', '""', expr)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    bare = re.sub(r"\boffset\s+\w+", "", bare)
    found = re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?!\w)(?!\s*\()", bare)
    return {name for name in found if name not in KEYWORDS}


def top_level(expr):
    """The characters of an expression outside of parentheses, braces, brackets and strings; others blank."""
    result, depth, quote = [], 0, None
    at = 0
    while at < len(expr):
        character = expr[at]
        if quote:
            if character == "\\":
                result.append(" ")
                at += 1
            elif character == quote:
                quote = None
            result.append(" ")
        elif character in "\"'":
            quote = character
            result.append(" ")
        elif character in "([{":
            depth += 1
            result.append(" ")
        elif character in ")]}":
            depth -= 1
            result.append(" ")
        else:
            result.append(character if depth == 0 else " ")
        at += 1
    return "".join(result)


def operands(expr):
    """What an alert compares: the parts of its condition, each of which returns series while all is well."""
    expr = expr.strip()
    bare = top_level(expr)
    if expr.startswith("(") and bare.strip() == "":
        return operands(expr[1:-1])
    found = re.search(r"\b(and|unless|or)\b", bare)
    if found:
        right = re.sub(r"^\s*(on|ignoring)\s*\([^)]*\)", "", expr[found.end():])
        return operands(expr[:found.start()]) + operands(right)
    found = COMPARISON.search(bare)
    if found:
        right = expr[found.end():]
        more = operands(right) if metric_names(right) else []
        return operands(expr[:found.start()]) + more
    if expr.startswith("absent("):
        return operands(expr[len("absent("):-1])
    return [expr]
