"""What the apiserver refuses by the definition alone: there is no webhook."""
import json

from harness import jobs
from harness.world import ROOT

MOST_BYTES = 262_144  # of the annotation that client-side apply writes


def refused(case, job, *parts):
    told = case.refused(lambda: case.create("trainingjobs", job))
    for part in parts:
        case.contains(part, told.message)


def scenario_10_reject_ring_with_ps(case):
    refused(case, jobs.job(ps=2, spec={"strategy": "AllReduce"}), "spec.ps", "only with strategy ParameterServer")
    refused(case, jobs.job(ps=0), "spec.ps", "strategy ParameterServer needs it")
    case.create("trainingjobs", jobs.foreign(ps=0))


def scenario_11_reject_bad_name_len(case):
    refused(case, jobs.job("a" * 49), "longer than 48 characters")
    refused(case, jobs.job("1st"), "RFC 1035")
    refused(case, jobs.job("a.b"), "RFC 1035")
    # The longest one makes hosts that a pod may have.
    name = "a" * 48
    case.submit(jobs.job(name))
    pods = case.wait_pods(["ps-0", "worker-0", "worker-1"], name)
    case.equal(f"{name}-worker-1", pods["worker-1"]["spec"]["hostname"])
    case.true(len(f"{name}-worker-4095") <= 63, "the host of the last worker there may be")


def scenario_12_reject_min_gt_max(case):
    refused(case, jobs.job(spec={"worker": {"minReplicas": 3, "maxReplicas": 2}}), "spec.worker")
    refused(case, jobs.job(spec={"worker": {"minReplicas": 3}}), "spec.worker.replicas")
    refused(case, jobs.job(spec={"worker": {"maxReplicas": 1}}), "spec.worker")
    refused(case, jobs.job(ps=2, spec={"ps": {"maxReplicas": 1}}), "spec.ps")


def scenario_13_reject_replicas_out_of_range(case):
    for role in ("ps", "worker"):
        for replicas in (-1, 0, 4097, 2**31):
            refused(case, jobs.job(spec={role: {"replicas": replicas}}), f"spec.{role}.replicas")


def unchangeable(case, patch, field):
    """Refused while the job runs and while it rests."""
    case.contains(field, case.refused(lambda: case.edit(patch)).message)
    case.edit({"runPolicy": {"suspend": True}})
    case.wait_condition("Suspended", "Unknown")
    for task in ("ps-0", "worker-0", "worker-1"):
        case.delete(f"demo-{task}", kind="pods")
    case.wait_state("Suspended")
    case.contains(field, case.refused(lambda: case.edit(patch)).message)


def scenario_14_reject_strategy_change(case):
    case.submit(jobs.job())
    case.wait_members(["ps-0", "worker-0", "worker-1"])
    case.wait_state("Running")
    unchangeable(case, {"strategy": "AllReduce", "ps": None}, "spec.strategy")
    case.equal("ParameterServer", case.job()["spec"]["strategy"])


def scenario_15_reject_managedBy_change(case):
    case.submit(jobs.job())
    case.wait_members(["ps-0", "worker-0", "worker-1"])
    case.wait_state("Running")
    unchangeable(case, {"runPolicy": {"managedBy": "example.com/other"}}, "spec.runPolicy.managedBy")
    case.equal("trainyard.dev/operator", case.job()["spec"]["runPolicy"]["managedBy"])


def scenario_16_scale_path_validated(case):
    case.submit(jobs.job(spec={"worker": {"minReplicas": 2, "maxReplicas": 3}}))
    case.wait_state("Running")
    for workers in (0, 1, 4, 5000):
        case.contains("spec.worker", case.refused(lambda: case.scale(workers)).message)  # noqa: B023
    case.equal(2, case.job()["spec"]["worker"]["replicas"])
    case.scale(3)
    case.wait_members(["ps-0", "worker-0", "worker-1", "worker-2"])


def scenario_17_crd_plain_apply(case):
    path = ROOT / "deploy" / "crds.yaml"
    kubectl = case.world.cluster.kubectl
    text = kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", path)
    size = len(json.dumps(json.loads(text), separators=(",", ":")).encode())
    case.true(size < MOST_BYTES, f"the definition has {size} bytes")
    case.contains("trainingjobs.trainyard.dev", kubectl("apply", "--dry-run=server", "-f", path))
