#!/usr/bin/env python3
"""Dashboards and alerts as files: made anew they are the same, name only what is exported, and each alert has a
runbook and a test. promtool reads the rules and runs the tests."""
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy"))

import queries  # noqa: E402
from queries import ROOT  # noqa: E402
from venv_of import make_venv  # noqa: E402

WHEELS = ROOT / "deploy" / "wheels_grafana.txt"
ALERT_TESTS = ROOT / "tests" / "monitoring" / "alerts_test.yaml"
# Reads dashboards into the types that Grafana publishes, and writes them again.
DECODE = """
import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
register_default_plugins()
dashboards = json.load(sys.stdin)
print(json.dumps([json.loads(JSONEncoder().encode(Dashboard.from_json(one))) for one in dashboards]))
"""
# Of annotations: fields of the Prometheus data source, which the types leave open.
OPEN_FIELDS = re.compile(r"\.annotations\.list\[\d+\]\.(step|titleFormat|textFormat|useValueForTime)$")
VENV = None


def lost(before, after, path=""):
    """Paths of what `before` has and `after` lacks; what is empty may be left out."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name in after:
                yield from lost(value, after[name], f"{path}.{name}")
            elif value not in (None, {}, [], "", False, 0):
                yield f"{path}.{name}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after)):
            yield from lost(one, other, f"{path}[{at}]")
    elif before != after:
        yield path


# Of jobs without parameter servers, with embedding tables, with GPUs.
RARE = re.compile("trainyard_collective_|trainyard_ps_rows|trainyard_ps_hot_rows|"
                  "trainyard_worker_(distinct_)?row_ids|DCGM_")


class Dashboards(unittest.TestCase):
    def test_they_are_what_their_source_makes(self):
        sys.path.insert(0, str(ROOT / "deploy" / "grafana"))
        import build
        for folder in (build.HERE, queries.FILES / "dashboards"):
            for name, text in build.files().items():
                self.assertEqual(text, (folder / name).read_text(), f"run deploy/grafana/build.py: {folder / name}")
            self.assertEqual(set(build.files()), {path.name for path in folder.glob("*.json")})

    def test_every_panel_says_what_it_shows(self):
        identifiers = set()
        for name, dashboard in queries.dashboards().items():
            self.assertNotIn("__inputs", dashboard)
            self.assertNotIn("id", dashboard)
            self.assertFalse(dashboard["editable"])
            self.assertIn("trainyard", dashboard["tags"])
            self.assertLessEqual(len(dashboard["uid"]), 40)
            self.assertNotIn(dashboard["uid"], identifiers)
            identifiers.add(dashboard["uid"])
            titles = [panel["title"] for panel in queries.panels(dashboard)]
            self.assertEqual(len(titles), len(set(titles)), name)
            for panel in queries.panels(dashboard):
                where = f"{name}: {panel['title']}"
                self.assertIn(panel["type"], ("timeseries", "stat", "table", "bargauge"), where)
                self.assertTrue(panel["description"].endswith("."), where)
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], where)
                self.assertTrue(panel["targets"], where)
                for one in [panel, *panel["targets"]]:
                    self.assertEqual("${datasource}", one["datasource"]["uid"], where)

    def test_what_few_jobs_have_is_folded(self):
        """Rows that stay empty for most jobs ask nothing until they are opened."""
        shown = set()
        for name, dashboard in queries.dashboards().items():
            for panel in dashboard["panels"]:
                for one in panel.get("panels", [panel]):
                    asked = set().union(*(queries.metric_names(each["expr"]) for each in one.get("targets", [])))
                    rare = {each for each in asked if RARE.match(each)}
                    self.assertTrue(not rare or panel.get("collapsed"), f"{name}: {one['title']}")
                    shown |= rare
        self.assertEqual({row["name"] for row in queries.catalogue() if RARE.match(row["name"])},
                         {one for one in shown if not one.startswith("DCGM_")})

    def test_counters_are_read_as_rates(self):
        counters = {row["name"] for row in queries.catalogue() if row["type"] == "counter"}
        shown_as_total = {"trainyard_task_restarts_total", "trainyard_lost_steps_total"}
        for name, dashboard in queries.dashboards().items():
            for where, expr in queries.dashboard_queries(dashboard):
                for counter in (queries.metric_names(expr) & counters) - shown_as_total:
                    self.assertRegex(expr, rf"(rate|increase)\({counter}\b", f"{name}: {where}")

    def decode(self, dashboards):
        done = subprocess.run([VENV, "-c", DECODE], input=json.dumps(dashboards), text=True, capture_output=True)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout)

    def test_grafana_types_know_every_field(self):
        if VENV is None:
            self.skipTest("the Python package index cannot be reached, so there are no Grafana types")
        dashboards = queries.dashboards()
        for name, after in zip(dashboards, self.decode(list(dashboards.values()))):
            unknown = [path for path in lost(dashboards[name], after) if not OPEN_FIELDS.search(path)]
            self.assertEqual([], unknown, name)
        # And they do tell.
        wrong = copy.deepcopy(next(iter(dashboards.values())))
        wrong["colour"] = "red"
        panel = next(queries.panels(wrong))
        panel["fieldConfig"]["defaults"]["units"] = "s"
        panel["options"]["reduceOption"] = {"calcs": ["mean"]}
        found = list(lost(wrong, self.decode([wrong])[0]))
        self.assertIn(".colour", found)
        self.assertEqual(3, len(found), found)


class Names(unittest.TestCase):
    def test_queries_name_only_what_is_exported(self):
        exported = {row["name"] for row in queries.catalogue() if row["exporters"]}
        recorded = {rule["record"] for rule in queries.rules() if "record" in rule}
        known = exported | recorded
        for name, dashboard in queries.dashboards().items():
            for where, expr in queries.dashboard_queries(dashboard):
                self.assertEqual(set(), self.unknown(expr, known), f"{name}: {where}")
        for rule in queries.rules():
            self.assertEqual(set(), self.unknown(rule["expr"], known), rule)
        self.assertEqual({"no_such_metric"}, self.unknown("sum(rate(no_such_metric[5m])) by (x)", known))

    @staticmethod
    def unknown(expr, known):
        return {name for name in queries.metric_names(expr)
                if queries.family(name) not in known and not name.startswith("DCGM_")}

    def test_operands_of_a_condition(self):
        self.assertEqual(['a{x="1 > 2"}', "b"], queries.operands('(a{x="1 > 2"} > 3) and on (x) b > 0'))
        self.assertEqual(["x"], queries.operands("absent(x)"))


class Alerts(unittest.TestCase):
    def alerts(self):
        found = [rule for rule in queries.rules() if "alert" in rule]
        self.assertGreaterEqual(len(found), 14)
        return found

    def test_promtool_reads_the_rules(self):
        done = subprocess.run(["promtool", "check", "rules", "--lint=all", "--lint-fatal", queries.ALERTS],
                              capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_each_alert_fires_when_it_should(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(ALERT_TESTS.read_text().replace("[RULES]", f"['{queries.ALERTS}']"))
            file.flush()
            done = subprocess.run(["promtool", "test", "rules", file.name], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        tests = ALERT_TESTS.read_text()
        for alert in self.alerts():
            fires = re.search(rf"alertname: {alert['alert']}\n\s+exp_alerts:", tests)
            self.assertTrue(fires, f"no test in which {alert['alert']} fires")

    def test_each_alert_has_what_its_reader_needs(self):
        runbooks = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")}
        self.assertEqual(runbooks, {alert["alert"] for alert in self.alerts()})
        for alert in self.alerts():
            self.assertIn(alert["labels"]["severity"], ("info", "warning", "critical"))
            self.assertTrue(alert["annotations"]["summary"])
            self.assertTrue(alert["annotations"]["description"])


if __name__ == "__main__":
    VENV = make_venv(pathlib.Path(sys.argv.pop(1)), WHEELS)
    unittest.main()
