"""Runs of ctest over a build folder."""
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET

from runner.results import Entry, Failure, read_entry

UNIT = "unit"
LANES = ("multiproc", "cluster")  # those whose tests start processes of their own
# Of what a test prints, so much is kept; ctest's own limit cuts the lines that name its cases.
OUTPUT_BYTES = "10000000"


class Build:
    """A build folder and the entries that ctest finds there."""

    def __init__(self, folder):
        self.folder = folder
        listed = subprocess.run(["ctest", "--test-dir", str(folder), "--show-only=json-v1"],
                                stdout=subprocess.PIPE, text=True)
        self.labels, self.programs, self.limits = {}, {}, {}
        for test in json.loads(listed.stdout or "{}").get("tests", []):
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            self.labels[test["name"]] = properties.get("LABELS", [])
            self.limits[test["name"]] = properties.get("TIMEOUT")
            self.programs[test["name"]] = (test.get("command") or [""])[0]

    def lane(self, entry):
        """multiproc, cluster, unit, or the entry's first label."""
        labels = self.labels.get(entry, [])
        known = [label for label in (*LANES, UNIT) if label in labels]
        return (known or labels or ["none"])[0]

    def run(self, results, selection, jobs=1, cases=""):
        """The entries that ctest has run; a failure of ctest's own counts as one. `results`, a folder,
        must not exist."""
        results.mkdir(parents=True)
        junit = results / "ctest.xml"
        environment = dict(os.environ, GTEST_OUTPUT=f"xml:{results}/", GTEST_COLOR="no")
        if cases:
            environment["GTEST_FILTER"] = cases
        command = ["ctest", "--test-dir", str(self.folder), "--output-on-failure", "--no-tests=ignore",
                   "--test-output-size-failed", OUTPUT_BYTES, "--output-junit", str(junit),
                   "-j", str(jobs), *selection]
        code = subprocess.run(command, env=environment).returncode
        entries = []
        if junit.exists():
            entries = [read_entry(node, results, self.limits.get(node.get("name")))
                       for node in ET.parse(junit).getroot().iter("testcase")]
        if code != 0 and not any(entry.failed for entry in entries):
            name = f"ctest ({results.name})"
            entries.append(Entry(name, failed=[Failure(name, f"exit code {code}", entry=name)]))
        return entries

    def run_one(self, results, entry, cases=""):
        """That entry alone, with the fixtures that it needs."""
        return self.run(results, ["-R", f"^{re.escape(entry)}$"], cases=cases)
