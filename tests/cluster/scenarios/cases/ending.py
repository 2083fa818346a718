"""Scenarios 39-46: completion and clean-up."""
import datetime
import time

from harness.jobs import foreign

FINALIZER = "trainyard.dev/result"
TASKS = {"ps-0", "worker-0", "worker-1"}


def seconds_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def policy(**fields):
    return {"runPolicy": fields}


def free(pods):
    return not any(FINALIZER in pod["metadata"].get("finalizers", []) for pod in pods)


def scenario_39_success_chief(case):
    """Whose success ends a job, and which pods are left then: both policies in all combinations."""
    left = {("Chief", "Running"): {"worker-0"}, ("Chief", "All"): set(), ("Chief", "None"): TASKS,
            ("AllWorkers", "Running"): {"worker-0", "worker-1"}, ("AllWorkers", "All"): set(),
            ("AllWorkers", "None"): TASKS}
    for success, clean in left:
        name = f"{success}-{clean}".lower()
        case.submit(foreign(name, spec=policy(successPolicy=success, cleanPodPolicy=clean)))
    for success, clean in left:
        name = f"{success}-{clean}".lower()
        case.wait_state("Running", name)
        case.finish("worker-0", name=name)
        if success == "AllWorkers":
            case.wait("worker-0 to count", lambda: case.status(name)["worker"].get("finishedIndices") == "0")
            case.equal("Running", case.status(name)["state"], "one of two workers is not all")
            case.finish("worker-1", name=name)
    for (success, clean), tasks in left.items():
        name = f"{success}-{clean}".lower()
        case.wait_state("Succeeded", name)
        reason = "ChiefSucceeded" if success == "Chief" else "AllWorkersSucceeded"
        case.equal(reason, case.condition("Succeeded", name)["reason"])
        case.wait(f"{sorted(tasks)} to be left", lambda: set(case.pods(name)) == tasks)
        case.wait("what has ended to be free", lambda: free(
            pod for pod in case.pods(name).values() if pod["status"]["phase"] == "Succeeded"))
        # It stays so: the end is final.
        case.equal(tasks, set(case.pods(name)), name)


def scenario_40_ps_removed_on_success(case):
    """Parameter servers serve for ever; when the workers are done they go, and that is no loss."""
    case.submit(foreign(ps=2, spec=policy(successPolicy="AllWorkers")))
    case.wait_state("Running")
    case.finish("worker-0")
    case.finish("worker-1")
    status = case.wait_state("Succeeded")
    case.wait_pods(["worker-0", "worker-1"])
    case.equal((0, 0), (status["restarts"], status["disruptions"]))
    case.stays("the state", lambda: case.status()["state"] == "Succeeded", 1)
    case.equal([], case.events("TaskLost") + case.events("TaskDisrupted"))


def scenario_41_finished_pod_deleted_not_recreated(case):
    case.submit(foreign(spec=policy(successPolicy="AllWorkers")))
    case.wait_state("Running")
    case.finish("worker-1")
    case.wait("the end to be recorded", lambda: case.status()["worker"].get("finishedIndices") == "1")
    case.delete("demo-worker-1", kind="pods")
    case.wait_gone("pods", "demo-worker-1")
    case.stays("worker-1 is over", lambda: "worker-1" not in case.pods(), 3)
    case.finish("worker-0")
    status = case.wait_state("Succeeded")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))
    case.equal("0-1", status["worker"]["finishedIndices"])


def scenario_42_ttl(case):
    """ttlSecondsAfterFinished 0; 3; and 3 with an operator that was away when the time was over."""
    def end(name):
        case.wait_state("Running", name)
        case.finish("worker-0", name=name)

    def gone(name):
        case.wait_gone(name=name)
        case.wait("its pods and objects to go", lambda: not case.pods(name) and not case.get("services", name)
                  and not case.get("configmaps", f"{name}-membership"))

    for name, ttl in (("now", 0), ("later", 3), ("away", 3600)):
        case.submit(foreign(name, spec=policy(ttlSecondsAfterFinished=ttl)))
    end("now")
    gone("now")
    end("later")
    completed = seconds_of(case.wait_state("Succeeded", "later")["completionTime"])
    while case.job("later") is not None:
        seen = time.time()
        case.true(seen < completed + 60, "it is still there after a minute")
    case.true(time.time() >= completed + 3, f"it went {time.time() - completed:.1f} s after its end")
    gone("later")
    end("away")
    completed = seconds_of(case.wait_state("Succeeded", "away")["completionTime"])
    case.op.kill()
    # Only now, so that it does not go while there is an operator, however late that is killed.
    case.edit(policy(ttlSecondsAfterFinished=3), "away")
    case.wait("its time to be over", lambda: time.time() > completed + 4)
    case.true(case.job("away") is not None, "nobody deletes it")
    case.op.start()
    gone("away")


def scenario_43_deadline_without_events(case):
    """Nothing happens to the job, and its deadline is missed all the same."""
    case.submit(foreign(spec=policy(activeDeadlineSeconds=5)))
    status = case.wait_state("Failed")
    case.equal("DeadlineExceeded", case.condition("Failed")["reason"])
    took = seconds_of(status["completionTime"]) - seconds_of(status["startTime"])
    # Jobs are looked at every minute anyway; this must not be what did it.
    case.true(5 <= took < 45, f"after {took} s")
    case.wait("the pods to go", lambda: not case.pods())


def scenario_44_deadline_paused_when_suspended(case):
    case.submit(foreign(spec=policy(activeDeadlineSeconds=8)))
    first = case.wait("the start", lambda: case.status().get("startTime"))
    case.edit(policy(suspend=True))
    case.wait_state("Suspended")
    case.wait("the deadline to pass", lambda: time.time() > seconds_of(first) + 10)
    case.equal("Suspended", case.status()["state"])
    case.edit(policy(suspend=False))
    second = case.wait("a new start", lambda: case.status().get("startTime"))
    case.true(seconds_of(second) >= seconds_of(first) + 10, f"{second} is no new start")
    status = case.wait_state("Failed")
    case.equal("DeadlineExceeded", case.condition("Failed")["reason"])
    case.true(seconds_of(status["completionTime"]) >= seconds_of(second) + 8, f"failed too early: {status}")


def scenario_45_delete_foreground(case):
    """The three ways of deleting a job: pods first, job first, and the job alone."""
    names = ("foreground", "background", "orphan")
    for name in names:
        case.submit(foreign(name))
    for name in names:
        case.wait_state("Running", name)

    def left(name):
        return [kind for kind, label in (("pods", name), ("services", name), ("configmaps", name), ("secrets", name))
                if case.list(kind, f"trainyard.dev/job-name={label}")]

    case.delete("foreground", "Foreground")
    case.wait("the job to go", lambda: case.job("foreground") is None)
    case.equal({}, case.pods("foreground"), "the pods go first")
    case.wait("all of it to go", lambda: not left("foreground"))

    case.delete("background", "Background")
    case.wait("all of it to go", lambda: case.job("background") is None and not left("background"))

    before = case.uids("orphan")
    case.delete("orphan", "Orphan")
    case.wait_gone(name="orphan")
    case.wait("nothing of ours to hold the pods", lambda: free(case.pods("orphan").values()))
    case.equal(before, case.uids("orphan"), "the pods live on")
    case.stays("the pods live on", lambda: not any(
        "deletionTimestamp" in pod["metadata"] for pod in case.pods("orphan").values()), 1)
    # A job of that name is another one, which does not take them over.
    case.submit(foreign("orphan"))
    case.wait_condition("Reconciling", "True", "NameConflict", "orphan")
    case.equal(before, case.uids("orphan"))


def scenario_46_finalizer_crash(case):
    """The operator dies between the clean-up and taking its finalizers off: the next one does that."""
    proxy = case.proxy()
    operator = case.operator(kubeconfig=proxy.kubeconfig)
    case.submit(foreign())
    case.wait_state("Running")
    proxy.inject("dropRequest", method="PATCH", target="/pods/", times=-1)
    case.finish("worker-0")
    case.finish("worker-1")
    case.wait_state("Succeeded")
    operator.kill()
    held = [p for p in case.pods().values() if FINALIZER in p["metadata"].get("finalizers", [])]
    case.equal(3, len(held), "no finalizer was taken off")
    # Deleted by somebody meanwhile: only the finalizer holds it.
    case.delete("demo-worker-1", kind="pods")
    proxy.heal()
    operator.start()
    case.wait_pods(["worker-0"])
    case.wait("the pods to be free", lambda: free(case.pods().values()))
    case.equal("Succeeded", case.status()["state"])

    # The same with the job itself.
    proxy.inject("dropRequest", method="PATCH", target="/pods/", times=-1)
    case.submit(foreign("other"))
    case.wait_state("Running", "other")
    case.delete("other", "Background")
    case.wait_gone(name="other")
    operator.kill()
    case.true(case.pods("other"), "finalizers hold the pods of a job that is gone")
    proxy.heal()
    operator.start()
    case.wait("its pods to go", lambda: not case.pods("other"))
