"""Scenarios beyond the 72: a quota, a namespace that goes, volume claims, a parameter server without room."""
import json
import os

from harness.jobs import foreign, job
from harness.kubelet import UNSCHEDULED

TASKS = ["ps-0", "worker-0", "worker-1"]


def scenario_73_quota_exceeded(case):
    """The namespace admits two of three pods: said so, asked again now and then, made when there is room."""
    quota = case.create("resourcequotas", {"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}})
    case.wait("the quota to count", lambda: case.get("resourcequotas", quota["metadata"]["name"]).get(
        "status", {}).get("hard"))
    proxy = case.proxy()
    case.operator(kubeconfig=proxy.kubeconfig)
    case.submit(foreign())
    told = case.wait_condition("Reconciling", "True", "QuotaExceeded")
    case.contains("exceeded quota: two", told["message"])

    def attempts(start):
        return sum(r["method"] == "POST" and r["target"].partition("?")[0].endswith("/pods") for r in proxy.requests(start))

    case.wait("some attempts", lambda: attempts(0) >= 6)
    begun = len(proxy.requests())
    case.stays("two pods are there", lambda: len(case.pods()) == 2, 5)
    case.true(attempts(begun) <= 10, f"{attempts(begun)} attempts in five seconds")
    case.equal(1, len({json.dumps(e["message"]) for e in case.events("JobCreated")}))
    case.api.merge(case.path("resourcequotas", "two"), {"spec": {"hard": {"pods": "5"}}})
    status = case.wait_state("Running")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))
    case.equal({task: "1" for task in TASKS}, case.lives())


def scenario_74_namespace_deleted(case):
    """A namespace is deleted with jobs in it, running, ended and suspended: nothing of ours holds it."""
    space = f"{case.ns}-gone"
    case.make_namespace(space)
    own, case.ns = case.ns, space
    try:
        proxy = case.proxy()
        operator = case.operator(kubeconfig=proxy.kubeconfig)
        for name in ("running", "ended", "resting"):
            case.submit(foreign(name, spec={"runPolicy": {"suspend": name == "resting", "cleanPodPolicy": "None"}}))
        case.wait_state("Running", "running")
        case.wait_state("Running", "ended")
        case.finish("worker-0", name="ended")
        case.wait_state("Succeeded", "ended")
        case.wait_state("Suspended", "resting")
        begun = len(proxy.requests())
        case.api.ask("DELETE", f"/api/v1/namespaces/{space}")
        case.wait("the namespace to go", lambda: case.api.find(f"/api/v1/namespaces/{space}") is None)
        # What cannot be created there any more is not tried over and over.
        created = sum(r["method"] == "POST" for r in proxy.requests(begun))
        case.true(created <= 40, f"{created} creations in a namespace that goes")
        case.true(operator.alive(), "it goes on")
    finally:
        case.ns = own
        case.world.remove_namespace(space)


def claiming(retention=None):
    """A job whose workers have a claim each."""
    claim = {"metadata": {"name": "data"},
             "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}
    return foreign(spec={"worker": {"volumeClaimTemplates": [claim],
                                    "persistentVolumeClaimRetentionPolicy": retention}})


def scenario_79_volume_claims(case):
    """Claims of tasks outlive their pods, are found by the next job of the name, and go as a job says."""

    def claims():
        return {c["metadata"]["name"]: c["metadata"]["uid"] for c in case.list("persistentvolumeclaims")}

    case.submit(claiming())
    case.wait_state("Running")
    first = claims()
    case.equal(["data-demo-worker-0", "data-demo-worker-1"], sorted(first))
    case.equal(["data-demo-worker-1"], [v["persistentVolumeClaim"]["claimName"] for v in case.pods()["worker-1"]["spec"][
        "volumes"] if "persistentVolumeClaim" in v])
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    case.wait_state("Running")
    case.scale(1)
    case.wait_pods(["ps-0", "worker-0"])
    case.quiet()
    case.equal(first, claims(), "they stay")
    case.delete()
    case.wait("all else to go", lambda: case.job() is None and not case.pods())
    case.equal(first, claims(), "the job is gone")

    case.submit(claiming({"whenDeleted": "Delete", "whenScaled": "Delete"}))
    case.wait_pods(TASKS)
    case.wait_state("Running")
    case.equal(first, claims(), "the next job of the name has them")
    case.scale(1)
    case.wait("one to go", lambda: list(claims()) == ["data-demo-worker-0"])
    case.scale(2)
    case.wait_pods(TASKS)
    case.wait_state("Running")
    again = claims()
    case.equal(first["data-demo-worker-0"], again["data-demo-worker-0"])
    case.true(again["data-demo-worker-1"] != first["data-demo-worker-1"], "another one")
    case.delete()
    case.wait("the others to go with the job", lambda: not claims())


def scenario_80_server_without_room(case):
    """ps.minReplicas: the job goes on without a parameter server that finds no room, which joins when there is some."""
    start = ["ps-0", "ps-1", "worker-0", "worker-1"]
    case.submit(job(ps=2, workers=2, spec={"ps": {"minReplicas": 1}}))
    case.wait_members(start)
    case.wait_state("Running")
    before = case.uids()
    case.pod_plan(UNSCHEDULED)
    case.finish("ps-1", 137, disrupted=True)
    case.wait_life("ps-1", 2)
    case.kubelet.unschedulable(case.ns, "demo-ps-1")
    case.stays("the others wait for it at first", lambda: case.members() == start)
    case.wait_members(["ps-0", "worker-0", "worker-1"])
    running = case.wait_condition("Running", reason="ServersMissing")
    case.contains("ps-1: Unschedulable", running["message"])
    case.kubelet.schedule(case.ns, "demo-ps-1")
    entries = case.wait_members(start)
    case.equal([1, 2], [entries[f"ps-{i}"]["created"] for i in range(2)])
    case.wait_condition("Resizing", "False", "AllTasksReady")
    status = case.wait_state("Running")
    case.equal((0, 1), (status["restarts"], status["disruptions"]))
    after = case.uids()
    case.equal({t: before[t] for t in start if t != "ps-1"}, {t: after[t] for t in start if t != "ps-1"}, "who stays")


scenario_80_server_without_room.seconds = 40


def scenario_81_other_http_library(case):
    """By cpprestsdk, which is in a program of its own: a job that runs, and grows."""
    operator = case.operator("--http-library", "cpprestsdk")
    case.submit(job(ps=1, workers=2))
    case.wait_pods(TASKS)
    case.wait_state("Running")
    case.equal("trainyard-operator-cpprestsdk", os.path.basename(os.readlink(f"/proc/{operator.pid}/exe")))
    case.scale(3)
    case.wait_pods([*TASKS, "worker-2"])
    case.wait_state("Running")
    case.equal(0, operator.stop())
