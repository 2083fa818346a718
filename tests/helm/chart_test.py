#!/usr/bin/env python3
"""The chart as helm renders it: lint, schema, rights, pod security, and that every value has an effect."""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from rig import build, unavailable  # noqa: E402

CHART = ROOT / "helm" / "trainyard"
HELM = ""
# Values with which everything that is off by default is on.
EVERYTHING = {"watchNamespace": "one", "networkPolicy": {"jobs": {"enabled": True}},
              "metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True},
                          "prometheusRule": {"enabled": True}},
              "dashboards": {"enabled": True}, "gangScheduler": {"kind": "Coscheduling"}}
# Values that are looked at beside the defaults instead: some exclude what is on in EVERYTHING, and a release
# that does not watch its own namespace has no test.
BESIDE_DEFAULTS = {"metrics.service.enabled", "test.enabled", "test.image", "test.timeoutSeconds"}
# Another valid value where one of the same type would not do.
OTHER = {"image.pullPolicy": "Always", "image.digest": "sha256:" + "a" * 64, "logLevel": "debug",
         "agent.image.digest": "sha256:" + "b" * 64, "runtime.image.digest": "sha256:" + "c" * 64,
         "runtimeTorch.image.digest": "sha256:" + "e" * 64,
         "logFormat": "text", "rootSecret.existingSecret": "own",
         "networkPolicy.apiserverPorts": [8443], "networkPolicy.agentPorts": [2240],
         "watchNamespaces": ["two"], "imagePullSecrets": [{"name": "pull"}], "jobs.imagePullSecrets": [{"name": "pull"}], "extraArgs": ["--more"],
         "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}}],
         "strategy": {"type": "Recreate"}, "gangScheduler.kind": "Volcano", "metrics.prometheusRule.disabled": ["TrainyardJobFailed"],
         "metrics.prometheusRule.severities": {"TrainyardJobFailed": "critical"}}


def helm(*arguments):
    return subprocess.run([HELM, *map(str, arguments)], capture_output=True, text=True)


def template(values=None, *arguments):
    """The text of all objects; raises ValueError with helm's message."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values or {}, file)
        file.flush()
        done = helm("template", "release", CHART, "--namespace", "system", "--kube-version", "1.34.0",
                    "-f", file.name, *arguments)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return done.stdout


def from_yaml(text):
    program = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "yaml_to_json"
    done = subprocess.run([program], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"{done.stderr}\n{text}")
    return json.loads(done.stdout)


def objects(values=None):
    """What the chart renders; reading it also refuses doubled keys."""
    texts = re.split(r"^---$", template(values), flags=re.M)
    documents = [text for text in texts if re.sub(r"#.*", "", text).strip()]
    return [from_yaml(text) for text in documents]


def one(found, kind, suffix=""):
    matching = [o for o in found if o["kind"] == kind and o["metadata"]["name"].endswith(suffix)]
    if len(matching) != 1:
        raise AssertionError(f"{len(matching)} objects {kind} ...{suffix}")
    return matching[0]


def merged(target, more):
    result = copy.deepcopy(target)
    for name, value in more.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(result[name], value) if both else value
    return result


def leaves(values, path=()):
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in ("strategy", "resources"):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def nested(path, value):
    for name in reversed(path):
        value = {name: value}
    return value


def another(path, value):
    """A valid value of the same type that is not `value`."""
    if path in OTHER:
        return OTHER[path]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return "other" if not value else value + "s"
    if isinstance(value, list):
        return [*value, {"key": "x", "name": "other"}]
    return {**value, "other": "x"}


class Chart(unittest.TestCase):
    def test_lint(self):
        done = helm("lint", "--strict", CHART)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_default_objects(self):
        kinds = sorted(o["kind"] for o in objects() if "helm.sh/hook" not in o["metadata"].get("annotations", {}))
        self.assertEqual(sorted([
            "CustomResourceDefinition", "ClusterRole", "ClusterRole", "ClusterRole", "ClusterRoleBinding",
            "Role", "RoleBinding", "Deployment", "ServiceAccount", "Service", "PodDisruptionBudget",
            "NetworkPolicy"]), kinds)

    def test_definition_is_that_of_deploy(self):
        found = one(objects(), "CustomResourceDefinition")
        source = from_yaml((ROOT / "deploy" / "crds.yaml").read_text())
        self.assertEqual(source["spec"], found["spec"])
        self.assertEqual(source["metadata"]["name"], found["metadata"]["name"])
        self.assertEqual("keep", found["metadata"]["annotations"]["helm.sh/resource-policy"])
        found = one(objects({"crds": {"keep": False}}), "CustomResourceDefinition")
        self.assertNotIn("annotations", found["metadata"])
        self.assertNotIn("CustomResourceDefinition", template({"crds": {"enabled": False}}))

    def test_the_operator_makes_the_root_secret(self):
        self.assertEqual(template(EVERYTHING), template(EVERYTHING))

        def mounted(values):
            spec = one(objects(values), "Deployment")["spec"]["template"]["spec"]
            volume = next(each["secret"] for each in spec["volumes"] if each["name"] == "root")
            named = [a for a in spec["containers"][0]["args"] if a.startswith("--root-secret-name=")]
            return volume["secretName"], volume.get("optional", False), named

        made = "release-trainyard-root"
        self.assertEqual((made, True, [f"--root-secret-name={made}"]), mounted({}))
        rules = one(objects(), "Role", "-leader")["rules"]
        self.assertEqual([("create", None), ("get", [made])],
                         [(rule["verbs"][0], rule.get("resourceNames")) for rule in rules if rule["resources"] == ["secrets"]])
        own = {"rootSecret": {"existingSecret": "own"}}
        self.assertEqual(("own", False, []), mounted(own))
        self.assertNotIn("secrets", [rule["resources"][0] for rule in one(objects(own), "Role", "-leader")["rules"]])

    def test_every_pod_is_restricted(self):
        pods = [o["spec"]["template"]["spec"] if o["kind"] != "Pod" else o["spec"]
                for o in objects(EVERYTHING) + objects() if o["kind"] in ("Deployment", "Pod", "Job")]
        self.assertGreaterEqual(len(pods), 5)
        for pod in pods:
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertGreater(pod["securityContext"]["runAsUser"], 0)
            self.assertEqual("RuntimeDefault", pod["securityContext"]["seccompProfile"]["type"])
            self.assertFalse(pod["enableServiceLinks"])
            for container in pod["containers"] + pod.get("initContainers", []):
                security = container["securityContext"]
                self.assertFalse(security["allowPrivilegeEscalation"])
                self.assertTrue(security["readOnlyRootFilesystem"])
                self.assertEqual(["ALL"], security["capabilities"]["drop"])
                self.assertIn("requests", container["resources"])
                self.assertNotIn(container["image"].rsplit(":", 1)[1], ("latest", "nightly"))

    def test_rights_are_the_least(self):
        rules = one(objects(), "ClusterRole", "release-trainyard")["rules"]
        by_resource = {resource: set(rule["verbs"]) for rule in rules for resource in rule["resources"]}
        self.assertEqual({"create"}, by_resource["secrets"])
        self.assertEqual({"create"}, by_resource["events"])
        self.assertEqual({"get", "list", "watch", "delete"}, by_resource["trainingjobs"])
        self.assertEqual({"patch"}, by_resource["trainingjobs/status"])
        self.assertEqual({"get", "create", "patch"}, by_resource["endpointslices"])
        self.assertEqual({"create"}, by_resource["endpointslices/restricted"])
        self.assertEqual({"trainingjobs", "trainingjobs/status", "trainingjobs/finalizers", "pods", "services",
                          "endpointslices", "endpointslices/restricted", "configmaps", "secrets", "events", "persistentvolumeclaims"}, set(by_resource))
        self.assertEqual({"get", "list", "create", "patch", "delete"}, by_resource["persistentvolumeclaims"])
        for found in objects():
            for rule in found.get("rules", []):
                self.assertNotIn("*", rule["verbs"] + rule["resources"] + rule["apiGroups"])

    def test_policies_of_jobs(self):
        peers = [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
        found = objects({"networkPolicy": {"jobs": {"enabled": True, "metricsFrom": peers}}})
        arguments = one(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
        given = [a.split("=", 1)[1] for a in arguments if a.startswith("--job-network-policy=")]
        self.assertEqual(1, len(given))
        policy = json.loads(given[0])
        self.assertEqual(peers, policy["metricsFrom"])
        self.assertEqual({"kubernetes.io/metadata.name": "system"},
                         policy["agentFrom"][0]["namespaceSelector"]["matchLabels"])
        pod = one(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(policy["agentFrom"][0]["podSelector"]["matchLabels"].items(), pod.items())
        rules = one(found, "ClusterRole", "release-trainyard")["rules"]
        self.assertEqual([["get", "create", "patch"]], [r["verbs"] for r in rules if "networkpolicies" in r["resources"]])
        self.assertNotIn("--job-network-policy", template())

    def test_a_scheduler_of_gangs(self):
        def arguments(values):
            pod = one(objects({"gangScheduler": values}), "Deployment")["spec"]["template"]["spec"]
            return [a for a in pod["containers"][0]["args"] if a.startswith("--gang-scheduler")]

        def groups(values):
            rules = one(objects({"gangScheduler": values}), "ClusterRole", "release-trainyard")["rules"]
            return [(r["apiGroups"], r["verbs"]) for r in rules if "podgroups" in r["resources"]]

        self.assertEqual([], arguments({}))
        self.assertEqual([], groups({}))
        plugin = {"kind": "Coscheduling", "schedulerName": "gangs"}
        self.assertEqual(["--gang-scheduler=Coscheduling", "--gang-scheduler-name=gangs"], arguments(plugin))
        self.assertEqual([(["scheduling.x-k8s.io"], ["get", "create", "patch"])], groups(plugin))
        self.assertEqual(["--gang-scheduler=Volcano"], arguments({"kind": "Volcano"}))
        self.assertEqual([(["scheduling.volcano.sh"], ["get", "create", "patch"])], groups({"kind": "Volcano"}))

    def test_queues(self):
        def arguments(found):
            return one(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]

        self.assertNotIn("--kueue", arguments(objects({})))
        self.assertNotIn("kueue", template())
        found = objects({"kueue": {"enabled": True}, "watchNamespaces": ["one"]})
        self.assertIn("--kueue", arguments(found))
        rules = one(found, "Role", "release-trainyard")["rules"]
        self.assertEqual([["workloads"], ["workloads/status"]],
                         [r["resources"] for r in rules if "kueue.x-k8s.io" in r["apiGroups"]])
        everywhere = one(found, "ClusterRole", "release-trainyard-queues")["rules"]
        self.assertEqual({("get",)}, {tuple(rule["verbs"]) for rule in everywhere}, "nothing is written outside of namespaces")

    def test_watched_namespaces_get_a_role_each_and_nothing_else(self):
        found = objects({"watchNamespaces": ["one", "two"], "watchNamespace": "one", "rbac": {"aggregate": False}})
        kinds = {o["kind"] for o in found}
        self.assertNotIn("ClusterRole", kinds)  # also none of hooks
        self.assertNotIn("ClusterRoleBinding", kinds)
        for kind in ("Role", "RoleBinding"):
            places = {o["metadata"]["namespace"] for o in found if o["kind"] == kind}
            self.assertEqual({"one", "two", "system"}, places)
        arguments = one(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
        self.assertEqual(["--namespace=one", "--namespace=two"], [a for a in arguments if a.startswith("--namespace")])

    def test_the_right_to_read_from_pods_comes_with_editing_and_with_viewing_on_demand(self):
        def readers(values):
            return {o["metadata"]["name"] for o in objects(values) if o["kind"] == "ClusterRole"
                    and {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]} in o["rules"]}

        self.assertEqual({"release-trainyard-trainingjob-editor"}, readers({}))
        self.assertEqual({"release-trainyard-trainingjob-editor", "release-trainyard-trainingjob-top"},
                         readers({"rbac": {"topForViewers": True}}))

    def test_one_replica_does_not_hold_back_a_drain(self):
        self.assertIn("PodDisruptionBudget", template())
        self.assertNotIn("PodDisruptionBudget", template({"replicaCount": 1}))

    def test_namespaced_objects_name_their_namespace(self):
        cluster_wide = {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
        for found in objects(EVERYTHING) + objects():
            self.assertEqual(found["kind"] not in cluster_wide, "namespace" in found["metadata"], found)
            self.assertEqual("trainyard", found["metadata"]["labels"]["app.kubernetes.io/part-of"])

    def test_images_default_to_this_version(self):
        text = template()
        for name in ("operator", "agent", "runtime", "runtime-torch"):
            self.assertRegex(text, rf"ghcr\.io/trainyard/trainyard-{name}:\d+\.\d+\.\d+\n")
        digest = "sha256:" + "d" * 64
        self.assertIn(f"trainyard-agent@{digest}", template({"agent": {"image": {"digest": digest, "tag": "1"}}}))

    def test_one_registry_has_all_images(self):
        place = "127.0.0.1:5000/team/a"
        found = objects({"registry": place, "test": {"image": "kubectl:1"},
                         "runtime": {"image": {"repository": "some/where/else/trainyard-runtime", "tag": "7"}},
                         "agent": {"image": {"digest": "sha256:" + "d" * 64}}})
        version = from_yaml((CHART / "Chart.yaml").read_text())["appVersion"]
        containers = [container for o in found if o["kind"] in ("Deployment", "Job", "Pod")
                      for container in (o["spec"]["template"]["spec"] if o["kind"] != "Pod" else o["spec"])["containers"]]
        self.assertEqual({f"{place}/trainyard-operator:{version}", "kubectl:1"}, {each["image"] for each in containers})
        arguments = one(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
        named = {key: value for key, _, value in (a.partition("=") for a in arguments) if key.endswith("-image")}
        self.assertEqual({"--agent-image": f"{place}/trainyard-agent@sha256:" + "d" * 64,
                          "--runtime-image": f"{place}/trainyard-runtime:7",
                          "--runtime-torch-image": f"{place}/trainyard-runtime-torch:{version}"}, named)
        for wrong in ("https://registry.test", "registry.test/", "registry.test/A:1"):
            with self.assertRaisesRegex(ValueError, "(?i)schema"):
                template({"registry": wrong})

    def test_runtime_with_libtorch_may_be_left_out(self):
        self.assertIn("--runtime-torch-image=", template())
        self.assertNotIn("--runtime-torch-image=", template({"runtimeTorch": {"image": {"repository": ""}}}))

    def test_values_exclude_each_other(self):
        with self.assertRaisesRegex(ValueError, "needs metrics.service.enabled"):
            template({"metrics": {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}})

    def test_schema_refuses_what_is_misspelt(self):
        for values in ({"replicas": 3}, {"image": {"name": "x"}}, {"replicaCount": "2"}, {"logLevel": "loud"},
                       {"metrics": {"podMonitor": {"enable": True}}}, {"image": {"digest": "sha256:1"}}):
            with self.assertRaisesRegex(ValueError, "(?i)schema"):
                template(values)
        template({"global": {"anything": 1}, "enabled": True})

    def test_alerts_are_those_of_the_file(self):
        source = from_yaml((CHART / "files" / "alerts.yaml").read_text())["groups"]
        rule = one(objects(EVERYTHING), "PrometheusRule")
        for group, rendered in zip(source, rule["spec"]["groups"], strict=True):
            self.assertEqual(group["name"], rendered["name"])
            for expected, found in zip(group["rules"], rendered["rules"], strict=True):
                if "alert" in expected:
                    page = found["annotations"].pop("runbook_url").rsplit("/", 1)[1]
                    self.assertEqual(f"{expected['alert']}.md", page)
                self.assertEqual(expected, found)
        changed = merged(EVERYTHING, {"metrics": {"prometheusRule": {
            "disabled": ["TrainyardJobFailed"], "severities": {"TrainyardNoLeader": "page"}}}})
        rules = [each for group in one(objects(changed), "PrometheusRule")["spec"]["groups"] for each in group["rules"]]
        by_name = {each["alert"]: each for each in rules if "alert" in each}
        self.assertNotIn("TrainyardJobFailed", by_name)
        self.assertEqual("page", by_name["TrainyardNoLeader"]["labels"]["severity"])
        with self.assertRaisesRegex(ValueError, "there is no alert NoSuchAlert"):
            template(merged(EVERYTHING, {"metrics": {"prometheusRule": {"disabled": ["NoSuchAlert"]}}}))

    def test_dashboards_are_those_of_the_folder(self):
        files = {path.name: json.loads(path.read_text()) for path in (CHART / "files" / "dashboards").glob("*.json")}
        maps = [o for o in objects(EVERYTHING) if o["kind"] == "ConfigMap"]
        found = {name: json.loads(text) for o in maps for name, text in o["data"].items()}
        self.assertEqual(files, found)
        for one_map in maps:
            self.assertEqual("1", one_map["metadata"]["labels"]["grafana_dashboard"])
            self.assertLess(len(json.dumps(one_map)), 900_000)

    def test_monitors_find_what_they_are_for(self):
        found = objects(EVERYTHING)
        service = one(found, "Service", "-metrics")
        monitor = one(found, "ServiceMonitor")
        for name, value in monitor["spec"]["selector"]["matchLabels"].items():
            self.assertEqual(value, service["metadata"]["labels"][name])
        self.assertIn(monitor["spec"]["endpoints"][0]["port"], [port["name"] for port in service["spec"]["ports"]])
        monitor = one(found, "PodMonitor", "-tasks")
        self.assertEqual("metrics", monitor["spec"]["podMetricsEndpoints"][0]["port"])

    def test_every_value_has_an_effect(self):
        defaults = from_yaml((CHART / "values.yaml").read_text())
        before = {}
        without = []
        for path, value in leaves(merged(defaults, EVERYTHING)):
            name = ".".join(path)
            base = {} if name in BESIDE_DEFAULTS else EVERYTHING
            change = nested(path, another(name, value))
            key = json.dumps(base, sort_keys=True)
            if key not in before:
                before[key] = template(base)
            if template(merged(base, change)) == before[key]:
                without.append(name)
        self.assertEqual([], without)


if __name__ == "__main__":
    try:
        HELM = str(build.find("helm"))
    except unavailable.Unavailable as error:
        unavailable.end(error)
    unittest.main()
