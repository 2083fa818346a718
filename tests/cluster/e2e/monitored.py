"""A Prometheus among the pods of a test cluster, whose targets are those that the chart's monitors select."""
import json
import pathlib
import subprocess
import sys
import tempfile

from world import ROOT, SYSTEM, build

sys.path.insert(0, str(ROOT / "tests" / "monitoring"))

import asking  # noqa: E402
import programs  # noqa: E402
import queries  # noqa: E402

# In the cluster's namespaces, because what enters them hands on no signal: Prometheus, until standard input ends; each
# line of which is an address whose text is asked for.
INSIDE = """
import json, subprocess, sys, urllib.request
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr)
for line in sys.stdin:
    try:
        with urllib.request.urlopen(line.strip(), timeout=30) as answer:
            found = {"text": answer.read().decode()}
    except OSError as error:
        found = {"error": f"{error}; Prometheus: {child.poll()}"}
    print(json.dumps(found), flush=True)
child.terminate()
child.wait()
"""


def monitors():
    """{kind: monitor} of the chart."""
    text = subprocess.run([build.find("helm"), "template", "trainyard", ROOT / "helm/trainyard", "-n", SYSTEM,
                           "--kube-version", "1.34.0", "--show-only", "templates/monitors.yaml", "--set",
                           "metrics.serviceMonitor.enabled=true,metrics.podMonitor.enabled=true"],
                          capture_output=True, text=True, check=True).stdout
    found = {}
    for document in text.split("\n---\n"):
        done = subprocess.run([queries.BIN / "yaml_to_json"], input=document, capture_output=True, text=True,
                              check=True)
        one = json.loads(done.stdout)
        if one:
            found[one["kind"]] = one
    return found


def selects(selector, labels):
    """Whether a label selector with matchLabels and Exists takes an object."""
    wanted = selector.get("matchLabels", {})
    exist = [one["key"] for one in selector.get("matchExpressions", []) if one["operator"] == "Exists"]
    assert len(exist) == len(selector.get("matchExpressions", [])), selector
    return wanted.items() <= labels.items() and all(key in labels for key in exist)


def target(pod, port, labels):
    """Of file_sd, as the Prometheus operator's relabelling leaves it; nothing of a pod that has no such port."""
    for container in pod["spec"]["containers"]:
        for one in container.get("ports", []):
            if one.get("name") == port and pod["status"].get("podIP"):
                meta = pod["metadata"]
                return [{"targets": [f"{pod['status']['podIP']}:{one['containerPort']}"],
                         "labels": {"namespace": meta["namespace"], "pod": meta["name"],
                                    "container": container["name"], "endpoint": port, **labels}}]
    return []


def of_pods(monitor, pods):
    """The targets of a PodMonitor."""
    name = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
    port = monitor["spec"]["podMetricsEndpoints"][0]["port"]
    listed = []
    for pod in pods:
        labels = pod["metadata"].get("labels", {})
        if selects(monitor["spec"]["selector"], labels):
            given = {key.translate(str.maketrans("./-", "___")): labels[key]
                     for key in monitor["spec"]["podTargetLabels"]}
            listed += target(pod, port, {"job": name, **given})
    return listed


def of_services(monitor, services, pods):
    """The targets of a ServiceMonitor."""
    listed = []
    for service in services:
        meta = service["metadata"]
        if meta["namespace"] not in monitor["spec"]["namespaceSelector"]["matchNames"] or \
                not selects(monitor["spec"]["selector"], meta.get("labels", {})):
            continue
        for port in service["spec"]["ports"]:
            if port.get("name") == monitor["spec"]["endpoints"][0]["port"]:
                for pod in pods:
                    if pod["metadata"]["namespace"] == meta["namespace"] and \
                            service["spec"]["selector"].items() <= pod["metadata"].get("labels", {}).items():
                        listed += target(pod, port["targetPort"], {"job": meta["name"], "service": meta["name"]})
    return listed


class Inside(programs.Prometheus):
    """Prometheus in the cluster's namespaces."""

    def __init__(self, world, folder):
        found = monitors()
        pods = world.find("pods")
        listed = folder / "targets.json"
        listed.write_text(json.dumps(of_pods(found["PodMonitor"], pods) +
                                     of_services(found["ServiceMonitor"], world.find("services"), pods)))
        super().__init__(folder / "prometheus", {"pods": [listed]},
                         world.cluster.published.command([sys.executable, "-c", INSIDE]),
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def fetch(self, url):
        self.child.stdin.write(url + "\n")
        self.child.stdin.flush()
        answer = json.loads(self.child.stdout.readline())
        if "error" in answer:
            raise OSError(f"{url}: {answer['error']}")
        return answer["text"]

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait(60)
        self.child.stdout.close()


def check(world, namespace, job, tasks, meanwhile, tables=None):
    """Every question of every dashboard and alert has an answer about a job of `tasks` tasks that runs; about rows of
    embedding tables, one of the job `tables`."""
    with tempfile.TemporaryDirectory() as folder, Inside(world, pathlib.Path(folder)) as prometheus:
        programs.until(lambda: f"Prometheus is ready: {prometheus.text()[-2000:]}", prometheus.ready)
        where = f'namespace="{namespace}",trainyard_job="{job}"'
        programs.until(lambda: f"all tasks are scraped: {prometheus.query('up')}", lambda: prometheus.sum(
            f"trainyard_task_ready{{{where}}}") == tasks and prometheus.sum("leader_election_master_status") == 1)
        asking.answers(prometheus.query, asking.dashboard_questions() + asking.alert_questions(), job,
                       asking.KEY_PANELS, meanwhile, namespace, tables=tables)
