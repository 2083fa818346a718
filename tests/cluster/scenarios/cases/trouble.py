"""Scenarios 35-38: pods that do not go, do not start, or are ended by their node."""
from harness.jobs import foreign
from harness.kubelet import HOLD


def scenario_35_stuck_terminating(case):
    """The node of a deleted pod is lost: no second pod of that index while the first may still run."""
    case.submit(foreign())
    case.wait_state("Running")
    before = case.uids()
    case.kubelet.keep_deleted(case.ns)
    case.api.ask("DELETE", case.path("pods", "demo-worker-1"), {"gracePeriodSeconds": 1})
    words = f"worker-1 (created 1): Terminating: on node {case.kubelet.node}"
    case.wait("the job to say what it waits for", lambda: words in case.condition("Reconciling").get("message", ""))
    case.equal("True", case.condition("Reconciling")["status"])
    case.stays("no second pod", lambda: case.lives()["worker-1"] == "1")
    case.equal(before, case.uids(), "all pods are those from before")
    # Whoever knows that the node is gone deletes the pod for good; no finalizer of ours is in the way.
    case.kubelet.forget(case.ns, "demo-worker-1")
    case.wait_life("worker-1", 2)
    status = case.wait_state("Running")
    case.equal((0, 1), (status["restarts"], status["disruptions"]))
    others = ("ps-0", "worker-0")
    case.equal({t: before[t] for t in others}, {t: case.uids()[t] for t in others})


def scenario_36_image_pull_backoff(case):
    case.pod_plan(HOLD)
    case.submit(foreign())
    case.wait_pods(["ps-0", "worker-0", "worker-1"])
    case.run("ps-0")
    case.run("worker-1")
    case.kubelet.waiting(case.ns, "demo-worker-0", "ErrImagePull", "registry.test: no such host")
    found = case.wait_condition("Reconciling", "True", "ImagePullBackOff")
    case.contains("worker-0: ImagePullBackOff: cannot pull image registry.test/user:1", found["message"])
    # The kubelet's two words for it take turns; nothing is written for that.
    rest = case.quiet()["trainingjobs/demo"]
    for reason in ("ImagePullBackOff", "ErrImagePull"):
        case.kubelet.waiting(case.ns, "demo-worker-0", reason, f"once more: {reason}")
    case.stays("the job as it was", lambda: case.versions()["trainingjobs/demo"] == rest)
    case.run("worker-0")
    status = case.wait_state("Running")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))


def scenario_37_oom_killed(case):
    case.submit(foreign())
    case.wait_state("Running")
    case.kubelet.oom(case.ns, "demo-worker-1")
    case.wait_life("worker-1", 2)
    status = case.wait_state("Running")
    case.equal((1, 0), (status["restarts"], status["disruptions"]))
    told = case.wait("the event", lambda: case.events("TaskLost"))
    case.matches(r"worker-1 \(created 1\): .*OOMKilled", told[0]["message"])


def scenario_38_pod_unknown_then_back(case):
    """A node that is not heard of for a while costs nothing when it comes back."""
    case.submit(foreign())
    case.wait_state("Running")
    before = case.uids()
    case.kubelet.unknown(case.ns, "demo-worker-0")
    case.scale(3)  # what the operator does next it does after it has seen the pod
    case.wait_pods(["ps-0", "worker-0", "worker-1", "worker-2"])
    case.run("worker-0")
    case.wait_condition("Resizing", "False", "AllTasksReady")
    status = case.wait_state("Running")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))
    case.equal(before, {task: uid for task, uid in case.uids().items() if task in before})
    case.equal([], case.events("TaskLost") + case.events("TaskDisrupted"))
