"""Tasks that fail, are ended from outside, or vanish."""
from harness import jobs

TASKS = ["ps-0", "worker-0", "worker-1"]


def begin(case, job=None, tasks=TASKS):
    case.submit(job or jobs.job())
    case.wait_members(tasks)
    case.wait_state("Running")


def counts(case):
    status = case.status()
    return status["restarts"], status["disruptions"]


def scenario_28_exit_1_permanent(case):
    begin(case, jobs.foreign())
    case.finish("worker-1", 1)
    case.wait_state("Failed")
    failed = case.condition("Failed")
    case.equal("TaskFailed", failed["reason"])
    case.contains("worker-1", failed["message"])
    case.contains("exit code 1", failed["message"])
    case.stays("it is not run again", lambda: case.lives().get("worker-1", "1") == "1", 1)


def scenario_29_exit_137_retry(case):
    begin(case)
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    case.wait_state("Running")
    case.equal((1, 0), counts(case))
    case.finish("worker-0", 143)
    case.wait_life("worker-0", 2)
    case.wait_state("Running")
    case.equal((2, 0), counts(case))
    case.wait("the membership of the new lives",
              lambda: [case.entries()[task]["created"] for task in TASKS] == [1, 2, 2])


def scenario_30_backoff_limit_across_recreate(case):
    begin(case, jobs.job(spec={"runPolicy": {"backoffLimit": 2}}))
    for life in (1, 2):
        case.finish("worker-1", 137)
        case.wait("the restart to be counted", lambda: counts(case)[0] == life)  # noqa: B023
        case.op.restart()
        case.wait_life("worker-1", life + 1)
        case.wait_state("Running")
    case.op.kill()
    case.finish("worker-1", 137)
    case.op.start()
    status = case.wait_state("Failed")
    case.equal("BackoffLimitExceeded", case.condition("Failed")["reason"])
    case.equal(3, status["restarts"])


def scenario_31_evicted_not_counted(case):
    begin(case, jobs.job(spec={"runPolicy": {"backoffLimit": 0}}))
    case.kubelet.evict(case.ns, "demo-worker-1")
    case.wait_life("worker-1", 2)
    case.wait_state("Running")
    case.equal((0, 1), counts(case))
    case.finish("worker-0", 137, disrupted=True)
    case.wait_life("worker-0", 2)
    case.wait_state("Running")
    case.equal((0, 2), counts(case))


def scenario_32_pod_deleted_by_user(case):
    begin(case)
    before = case.uids()
    case.delete("demo-worker-1", kind="pods")
    pod = case.wait_life("worker-1", 2)
    case.true(pod["metadata"]["uid"] != before["worker-1"], "another pod")
    case.wait("the new life to be a member", lambda: case.entries()["worker-1"]["created"] == 2)
    case.wait_state("Running")
    case.equal((0, 1), counts(case))
    after = case.uids()
    case.equal({t: before[t] for t in TASKS[:2]}, {t: after[t] for t in TASKS[:2]})


def scenario_33_ring_restart_as_unit(case):
    ring = ["worker-0", "worker-1", "worker-2"]
    begin(case, jobs.foreign(ps=0, workers=3), ring)
    # One dies, and does not come back at once.
    case.create("resourcequotas", {"metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}})
    case.wait("the quota to hold",
              lambda: case.get("resourcequotas", "full").get("status", {}).get("hard", {}).get("pods") == "0")
    case.finish("worker-1", 137)
    case.wait("the loss to be counted", lambda: counts(case) == (1, 0))
    # The programs of the others can do no more than end when they miss it.
    case.finish("worker-0", 1)
    case.finish("worker-2", 1)
    case.wait("what followed to be told", lambda: len(case.events("TaskDisrupted")) == 2)
    case.delete("full", kind="resourcequotas")
    for task in ring:
        case.wait_life(task, 2)
    case.wait("all to be members by their new lives",
              lambda: [case.entries()[task]["created"] for task in ring] == [2, 2, 2])
    case.wait_state("Running")
    case.equal((1, 0), counts(case), "one failure; the others followed from it")


def scenario_34_ps_lost_restores(case):
    tasks = ["ps-0", "ps-1", "worker-0"]
    begin(case, jobs.job(ps=2, workers=1), tasks)
    before = case.uids()
    case.finish("ps-1", 137)
    case.wait_condition("Restarting")
    case.wait_life("ps-1", 2)
    case.wait("the new life to be a member", lambda: case.entries()["ps-1"]["created"] == 2)
    case.wait_state("Running")
    case.wait_condition("Restarting", "False")
    case.equal((1, 0), counts(case))
    after = case.uids()
    stayers = ("ps-0", "worker-0")
    case.equal({t: before[t] for t in stayers}, {t: after[t] for t in stayers}, "the others wait for it")
