#!/usr/bin/env python3
"""The cases of cases.yaml and changes.yaml, judged by a real apiserver from deploy/crds.yaml.

The same cases are judged by our own code in tests/operator/job/table_test.cc and change_test.cc. A rule
that costs too much is refused by the apiserver when the definition is applied.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from rig import testing  # noqa: E402
from rig.merge_patch import merged  # noqa: E402

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "trainingjobs.trainyard.dev"
JOBS = "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs"
# What client-side `kubectl apply` writes into an annotation must fit.
ANNOTATION_LIMIT = 262_144


def from_yaml(text):
    """As kubectl reads it: 4.0 goes over the wire as 4."""

    def number(digits):
        value = float(digits)
        return int(value) if value.is_integer() else value

    program = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "yaml_to_json"
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    return json.loads(done.stdout, parse_float=number)


def document_of(table, case):
    """What a case of either table begins with."""
    return merged(table["base"], table["variants"][case["variant"]]) if "variant" in case else table["base"]


class Validation(unittest.TestCase):
    cluster = None

    @classmethod
    def setUpClass(cls):
        cls.api = cls.cluster.api
        cls.definition = (ROOT / "deploy" / "crds.yaml").read_text(encoding="utf-8")
        status, answer = cls.api.apply(f"{DEFINITIONS}/{NAME}", cls.definition)
        assert status in (200, 201), answer
        end = time.monotonic() + 60
        while cls.api.get(JOBS)[0] != 200:
            assert time.monotonic() < end, "timed out after 60 s waiting for the definition to be served"
            time.sleep(0.05)

    def test_definition_is_structural_and_its_names_are_accepted(self):
        _, answer = self.api.get(f"{DEFINITIONS}/{NAME}")
        conditions = {c["type"]: c["status"] for c in answer["status"]["conditions"]}
        self.assertEqual("True", conditions["Established"], conditions)
        self.assertEqual("True", conditions["NamesAccepted"], conditions)
        self.assertNotIn("NonStructuralSchema", conditions)

    def test_definition_fits_into_the_annotation_of_apply(self):
        compact = json.dumps(from_yaml(self.definition), separators=(",", ":"))
        self.assertLess(len(compact.encode()), ANNOTATION_LIMIT)

    def test_cases(self):
        table = from_yaml((ROOT / "tests/conformance/validation/cases.yaml").read_text(encoding="utf-8"))
        self.assertGreaterEqual(len(table["cases"]), 100)
        for case in table["cases"]:
            with self.subTest(case["name"]):
                self.judge(case, document_of(table, case))

    def test_rules_are_cheap_enough_for_the_most_tables_and_columns(self):
        """What rules cost is bounded for an object as it is, too, not only for what the schema admits."""
        names = [f"column_{number:056}" for number in range(255)]
        columns = [{"name": name, "kind": "Text"} for name in names] + [{"name": "click", "kind": "Label"}]
        tables = [{"name": f"table_{number:057}", "features": names[-64:], "dim": 1, "rows": {"max": 1}}
                  for number in range(31)] + [{"name": "deep", "features": names[-64:], "dim": 2, "rows": {"max": 1}}]
        table = from_yaml((ROOT / "tests/conformance/validation/cases.yaml").read_text(encoding="utf-8"))
        job = merged(document_of(table, {"variant": "files"}),
                     {"spec": {"training": {"data": {"columns": columns}, "tables": tables}}})
        status, answer = self.api.request("POST", f"{JOBS}?dryRun=All", job)
        self.assertEqual(201, status, answer)

    def judge(self, case, base):
        document = merged(base, case["patch"]) if "patch" in case else base
        if "document" in case:
            document = from_yaml(case["document"])
        strictly = "&fieldValidation=Strict" if case.get("strict") else ""
        status, answer = self.api.request("POST", f"{JOBS}?dryRun=All{strictly}", document)
        if case.get("valid"):
            self.assertEqual(201, status, answer)
            return
        self.assertIn(status, (400, 422), answer)
        field, expected = case.get("server_field", case["field"]), case["message"]
        if case.get("strict"):  # one text without causes
            self.assertIn(f'unknown field "{field}"', answer["message"])
            return
        self.assertTold(answer, [field], expected)

    def assertTold(self, answer, fields, expected):
        causes = answer.get("details", {}).get("causes", [])
        told = [(cause.get("field", ""), cause.get("message", "")) for cause in causes]
        for field in fields:
            self.assertTrue(any(where == field and re.search(expected, what) for where, what in told),
                            f"expected {field}: {expected}; the apiserver says {told or answer}")

    def test_changes(self):
        documents = from_yaml((ROOT / "tests/conformance/validation/cases.yaml").read_text(encoding="utf-8"))
        table = from_yaml((ROOT / "tests/conformance/validation/changes.yaml").read_text(encoding="utf-8"))
        self.assertGreaterEqual(len(table["cases"]), 60)
        self.addCleanup(self.api.request, "DELETE", JOBS)
        for number, case in enumerate(table["cases"]):
            job = merged(document_of(documents, case), {**case.get("job", {}), "metadata": {"name": f"change-{number}"}})
            with self.subTest(case["name"]):
                self.change(job, case)

    def change(self, job, case):
        status, answer = self.api.request("POST", JOBS, job)
        self.assertEqual(201, status, answer)
        path = f"{JOBS}/{job['metadata']['name']}"
        if "state" in case:
            self.patch(f"{path}/status", {"status": {"state": case["state"]}}, 200)
        if case.get("valid"):
            self.carry_out(path, case, 200)
            return
        answer = self.carry_out(path, case, 422)
        fields = case.get("fields") or [case["field"]]
        self.assertTold(answer, fields, case["message"])
        # One mistake, one cause.
        self.assertEqual(len(fields), len(answer["details"]["causes"]), answer)

    def carry_out(self, path, case, expected):
        if "scale" in case:
            return self.patch(f"{path}/scale", {"spec": {"replicas": case["scale"]}}, expected)
        if "status" in case:
            return self.patch(f"{path}/status", {"status": case["status"]}, expected)
        return self.patch(path, case["patch"], expected)

    def patch(self, path, body, expected):
        status, answer = self.api.request("PATCH", path, body, "application/merge-patch+json")
        self.assertEqual(expected, status, answer)
        return answer


if __name__ == "__main__":
    with testing.cluster(control_plane=True) as cluster:
        Validation.cluster = cluster
        program = unittest.main(exit=False)
    sys.exit(not program.result.wasSuccessful())
