#!/usr/bin/env python3
"""Dashboards as pictures: numbers as Grafana writes them, what panels ask, how each kind is drawn, and that a panel
without data is found. The Prometheus here gives answers that are made up."""
import http.server
import json
import pathlib
import re
import sys
import tempfile
import threading
import unittest
import urllib.parse
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "dashboards"), str(ROOT / "deploy" / "grafana")]

import dashboard  # noqa: E402
import dashboards  # noqa: E402
import graph  # noqa: E402
import page  # noqa: E402
import panels  # noqa: E402
import parts  # noqa: E402
import questions  # noqa: E402
import units  # noqa: E402

START, END, STEP = 1000, 1300, 15
HELD = {"ready": [({"index": "0"}, 1), ({"index": "1"}, 3)], "share": [({}, 0.4213)], "restarts": [({}, "late")]}
JOBS = [({"job": "a", "namespace": "x"}, 7), ({"job": "b", "namespace": "x"}, 90)]


class Prometheus(http.server.BaseHTTPRequestHandler):
    """Answers by the first word of an expression; `asked` has what was asked."""

    asked = []

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        query = {key: value[0] for key, value in urllib.parse.parse_qs(url.query).items()}
        path = url.path.removeprefix("/api/v1/")
        self.asked.append((path, query))
        text = json.dumps({"status": "success", "data": self.data(path, query)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def data(self, path, query):
        if path.startswith("label/"):
            return ["second", "first"]
        word = re.search(r"\w+", query["query"])[0]
        if path == "query":
            return {"result": [{"metric": labels, "value": [END, str(value)]}
                               for labels, value in JOBS if word == "jobs" or labels["job"] == "b" and word == "steps"]}
        start, end, step = (int(float(query[name])) for name in ("start", "end", "step"))
        return {"result": [{"metric": labels, "values": self.points(value, range(start, end + 1, step))}
                           for labels, value in HELD.get(word, [])]}

    @staticmethod
    def points(value, times):
        if value == "late":
            return [[at, "1"] for at in list(times)[-3:]]
        return [[at, "NaN" if at == times[2] else str(value)] for at in times]

    def log_message(self, *_):
        pass


def made(*shown, annotations=(), variables=(parts.JOB,), collapsed=False):
    return parts.dashboard("one", "One", "A dashboard.", [parts.NAMESPACE, *variables],
                           [parts.row("Row", *shown, collapsed=collapsed)], annotations)


EACH = (parts.number("Share", "A share.", "percentunit", "share{job=\"$job_name\"}",
                     thresholds=[{"color": "green", "value": None}, {"color": "red", "value": 0.4}]),
        parts.graph("Lines", "Some.", "s", parts.target("ready[$__rate_interval]", "worker {{index}}")),
        parts.graph("Stacked", "Some.", "Bps", parts.target("ready", "{{index}}"), stacked=True),
        parts.bars("Bars", "Some.", "bytes", parts.target("ready", "ps {{index}}")),
        parts.table("Table", "Some.", {"jobs": "jobs", "steps": "steps"}, ["namespace", "job"], {"job": "name"},
                    units={"steps": "s"}))


class Drawn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
        cls.url = f"http://127.0.0.1:{cls.server.server_port}"
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)

    def draw(self, one, given=None, only=()):
        Prometheus.asked.clear()
        picture, empty = dashboard.drawn(one, self.url, (START, END), given or {}, only, STEP)
        root = xml.etree.ElementTree.fromstring(picture)
        return picture, [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")], empty

    def test_each_kind_of_panel_is_drawn(self):
        picture, words, empty = self.draw(made(*EACH))
        self.assertEqual([], empty)
        self.assertNotIn("No data", words)
        for word in ("One", "Namespace: All, Job: first", "▾ Row", "Share", "42.1%", "worker 0", "worker 1", "3 s",
                     "Last *", "ps 1", "3 B", "name", "b", "90", "1.50 mins"):
            self.assertIn(word, words)
        self.assertRegex(picture, r'class="n-red"[^>]*>42\.1%')
        self.assertIn('class="stacked f1"', picture)
        # Two of lines and two of areas, each with a gap.
        self.assertEqual(8, picture.count('class="line c'))

    def test_what_is_asked(self):
        self.draw(made(*EACH), {"job_name": "second"})
        asked = dict((query.get("query"), query) for path, query in Prometheus.asked)
        self.assertIn('share{job="second"}', asked)
        self.assertEqual("15", asked["ready[60s]"]["step"])
        self.assertEqual(("990", "1290"), (asked["ready"]["start"], asked["ready"]["end"]))
        labels = [query["match[]"] for path, query in Prometheus.asked if path == "label/trainyard_job/values"]
        self.assertEqual(['trainyard_task_ready{namespace=~".*"}'], labels)

    def test_a_panel_without_data_is_named(self):
        nothing = parts.graph("Nothing", "None.", "s", parts.target("nothing"))
        _, words, empty = self.draw(made(*EACH, nothing))
        self.assertEqual(["Nothing"], empty)
        self.assertEqual(1, words.count("No data"))

    def test_the_program_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            file, out = pathlib.Path(folder) / "one.json", pathlib.Path(folder) / "one.svg"
            nothing = parts.number("Nothing", "None.", "s", "nothing")
            for shown, code in ((EACH, 0), ((*EACH, nothing), 1)):
                file.write_text(json.dumps(made(*shown)))
                flags = [str(file), "--prometheus", self.url, "--out", str(out), "--last", "5m", "--set", "job_name=first"]
                self.assertEqual(code, dashboard.main(flags))
                xml.etree.ElementTree.parse(out)
            self.assertEqual(2, dashboard.main([*flags, "--set", "job_name=third"]))
            file.write_text(json.dumps(made({**EACH[0], "type": "piechart"})))
            self.assertEqual(2, dashboard.main(flags))

    def test_folded_rows_ask_nothing_until_they_are_opened(self):
        folded = made(*EACH, collapsed=True)
        _, words, empty = self.draw(folded)
        self.assertIn("▸ Row (5 panels)", words)
        self.assertFalse([path for path, _ in Prometheus.asked if path.startswith("query")])
        self.assertIn("▾ Row", self.draw(folded, only=["Ro"])[1])
        with self.assertRaisesRegex(ValueError, "there is no row X"):
            self.draw(folded, only=["X"])

    def test_annotations_stand_where_they_begin(self):
        one = made(EACH[1], annotations=[parts.annotation("Restarts", "orange", "restarts", "restart", "again")])
        self.assertEqual(1, self.draw(one)[0].count("event s-orange"))

    def test_a_variable_has_a_value_that_there_is(self):
        with self.assertRaisesRegex(ValueError, "job_name may be one of"):
            self.draw(made(*EACH), {"job_name": "third"})
        with self.assertRaisesRegex(ValueError, "unknown has no value"):
            self.draw(made(parts.graph("A", "B.", "s", parts.target("a{b=\"$unknown\"}"))))

    def test_our_dashboards_are_of_kinds_and_units_that_are_known(self):
        for file in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
            one = json.loads(file.read_text())
            _, _, empty = self.draw(one, only=[row["title"] for row in one["panels"] if row["type"] == "row"])
            shown = [panel for row in one["panels"] for panel in row.get("panels", []) or [row] if panel["type"] != "row"]
            self.assertEqual([panel["title"] for panel in shown], empty)
            for panel in shown:
                units.written(1, panel["fieldConfig"]["defaults"]["unit"])


class Pictures(unittest.TestCase):
    """Those in docs/images."""

    @staticmethod
    def shown():
        """{picture: (dashboard, titles of its panels)}"""
        found = {}
        for name, (file, _, rows, _) in dashboards.PICTURES.items():
            one = json.loads((ROOT / "deploy" / "grafana" / f"{file}.json").read_text())
            found[name] = (file, [panel["title"] for _, below, opened in page.chosen(one, rows) if opened for panel in below])
        return found

    def test_every_panel_is_on_one(self):
        """But those of GPUs, for which a machine needs some, and NVIDIA's exporter."""
        for file in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
            one = json.loads(file.read_text())
            titles = [panel["title"] for row, below in page.rows(one) if not row["title"].startswith("GPUs") for panel in below]
            drawn = {title for name, found in self.shown().values() if name == file.stem for title in found}
            self.assertEqual([], [title for title in titles if title not in drawn], file.name)

    def test_they_show_the_panels_that_there_are(self):
        pictures = {path.stem for path in (ROOT / "docs" / "images").glob("dashboard-*.svg")}
        self.assertEqual({f"dashboard-{name}" for name in dashboards.PICTURES}, pictures)
        for name, (_, titles) in self.shown().items():
            root = xml.etree.ElementTree.parse(ROOT / "docs" / "images" / f"dashboard-{name}.svg").getroot()
            words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
            self.assertEqual([], [title for title in titles if title not in words], f"make dashboards, for {name}")
            self.assertNotIn("No data", words, name)


class Units(unittest.TestCase):
    def test_numbers_as_grafana_writes_them(self):
        for value, unit, expected in (
                (0, "none", "0"), (12345, "none", "12345"), (1.5, "none", "1.50"), (123.456, "none", "123"),
                (0.01234, "none", "0.0123"), (0.4213, "percentunit", "42.1%"), (0.3, "percentunit", "30%"),
                (99.5, "percent", "99.5%"), (0, "s", "0 s"), (2.5e-7, "s", "250 ns"), (0.000012, "s", "12 µs"),
                (0.0561, "s", "56.1 ms"), (1, "s", "1 s"), (60, "s", "1 min"), (90, "s", "1.50 mins"), (7200, "s", "2 hours"),
                (200000, "s", "2.31 days"), (1024, "bytes", "1 KiB"), (5 << 20, "bytes", "5 MiB"), (1000, "Bps", "1 kB/s"),
                (1234567, "Bps", "1.23 MB/s"), (3, "ops", "3 ops/s"), (1500, "reqps", "1.50 K req/s"),
                (6, "cpm", "6 counts/min"), (2048, "mbytes", "2 GiB"), (250, "watt", "250 W"),
                (640.4, "suffix:rows/s", "640 rows/s"), (-0.25, "none", "-0.250")):
            self.assertEqual(expected, units.written(value, unit), (value, unit))
        self.assertEqual("640", units.written(640.4, "none", 0))
        with self.assertRaises(ValueError):
            units.written(1, "furlongs")

    def test_windows(self):
        self.assertEqual("60s", questions.rate_interval(15, 15))
        self.assertEqual("135s", questions.rate_interval(120, 15))


class Parts(unittest.TestCase):
    def test_stacks_go_on_over_gaps(self):
        found = graph.stacked([[(0, 1), (1, 2)], [(1, 5)]])
        self.assertEqual([(0, 1), (1, 2)], found[0][1])
        self.assertEqual(({1: 2}, [(1, 7)]), found[1])

    def test_lines_break_at_gaps(self):
        self.assertEqual([[(0, 1), (1, 1)], [(5, 1)]], graph.runs([(0, 1), (1, 1), (5, 1)], 1.5))

    def test_axes_have_room(self):
        self.assertEqual((0, 10.5), graph.limits([[(0, 4), (1, 10)]], {"min": 0}))
        self.assertEqual((0, 1), graph.limits([[(0, 0.5)]], {"min": 0, "max": 1}))
        low, high = graph.limits([[(0, 0)]], {})
        self.assertLess(low, high)

    def test_a_table_of_one_question_has_its_column_named(self):
        one = parts.table("T", "T.", {"jobs": "jobs"}, ["namespace", "job"], {})
        series = [questions.Series("", labels, [(END, value)]) for labels, value in JOBS]
        shown, rows = panels.cells(one, {"A": series})
        self.assertEqual(["namespace", "job", "jobs"], [title for _, title in shown])
        self.assertEqual([["x", "a", "7"], ["x", "b", "90"]], rows)

    def test_rows_of_a_table_join_answers_of_the_same_labels(self):
        series = [questions.Series("", labels, [(END, value)]) for labels, value in JOBS]
        names, rows = panels.merged({"A": series, "B": series[1:]})
        self.assertEqual(["job", "namespace", "Value #A", "Value #B"], names)
        self.assertEqual([None, 90], [row.get("Value #B") for row in rows])
        self.assertEqual("Value", panels.merged({"A": series})[0][-1])

    def test_thresholds(self):
        steps = [{"color": "red", "value": None}, {"color": "green", "value": 1}, {"color": "red", "value": 2}]
        self.assertEqual(["red", "green", "red"], [panels.threshold(value, steps) for value in (0, 1, 2)])


if __name__ == "__main__":
    unittest.main()
