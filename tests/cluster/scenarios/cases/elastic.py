"""Tasks that join and leave a running job."""
from harness import jobs
from harness.kubelet import UNSCHEDULED

START = ["ps-0", "worker-0", "worker-1", "worker-2"]


def begin(case, job=None):
    """A job of one parameter server and three workers that runs; the uids of its pods."""
    case.submit(job or jobs.job(ps=1, workers=3))
    case.wait_members(START)
    case.wait_state("Running")
    return case.uids()


def revision(case):
    return int(case.membership()["revision"])


def scenario_18_worker_up(case):
    before = begin(case)
    case.scale(5)
    case.wait_members([*START, "worker-3", "worker-4"])
    case.wait_condition("Resizing", "False", "AllTasksReady")
    after = case.uids()
    case.equal(before, {task: after[task] for task in before}, "who stays is not touched")
    case.equal(set(before) | {"worker-3", "worker-4"}, set(after))
    case.equal(2, revision(case), "both join in one revision")
    status = case.wait_state("Running")
    case.equal((5, 5), (status["worker"]["desired"], status["worker"]["ready"]))
    case.equal((0, 0), (status["restarts"], status["disruptions"]))


def scenario_19_worker_down(case):
    before = begin(case)
    case.scale(2)
    case.wait_members(START[:-1])
    case.wait_condition("Resizing", reason="ScalingDown")
    # It is told that it is left out, ends its step, and goes.
    case.finish("worker-2", 0)
    case.wait_pods(START[:-1])
    case.wait_condition("Resizing", "False", "AllTasksReady")
    case.quiet()
    del before["worker-2"]
    case.equal(before, case.uids())
    case.equal(2, revision(case), "one revision, once")
    status = case.wait_state("Running")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))
    case.true(not status["worker"].get("finishedIndices"), "who left has not finished")


def scenario_20_ps_up(case):
    before = begin(case)
    case.edit({"ps": {"replicas": 3}})
    case.wait_members(["ps-0", "ps-1", "ps-2", *START[1:]])
    case.wait_condition("Resizing", "False", "AllTasksReady")
    after = case.uids()
    case.equal(before, {task: after[task] for task in before}, "who stays is not touched")
    case.equal(set(before) | {"ps-1", "ps-2"}, set(after))
    case.equal(2, revision(case), "both join in one revision")
    case.equal(1, case.membership()["gridPs"], "the chunks are those of the job's start")
    status = case.wait_state("Running")
    case.equal((3, 3), (status["ps"]["desired"], status["ps"]["ready"]))
    case.equal((0, 0), (status["restarts"], status["disruptions"]))


def scenario_21_ps_down_drains(case):
    tasks = ["ps-0", "ps-1", "ps-2", "worker-0"]
    case.submit(jobs.job(ps=3, workers=1))
    case.wait_members(tasks)
    case.wait_state("Running")
    before = case.uids()
    case.edit({"ps": {"replicas": 1}})
    case.wait_members(["ps-0", "worker-0"])
    case.wait_condition("Resizing", reason="ScalingDown")
    case.stays("others still need what it holds", lambda: case.uids() == before)
    # Their chunks are elsewhere, and each goes by itself.
    case.finish("ps-2", 0)
    case.wait_pods(["ps-0", "ps-1", "worker-0"])
    case.finish("ps-1", 0)
    case.wait_pods(["ps-0", "worker-0"])
    case.wait_condition("Resizing", "False", "AllTasksReady")
    case.quiet()
    case.equal({task: before[task] for task in ("ps-0", "worker-0")}, case.uids())
    case.equal(2, revision(case), "one revision, once")
    status = case.wait_state("Running")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))


def scenario_22_scale_storm(case):
    before = begin(case)
    sizes = [4, 7, 3, 9, 5, 8, 3, 6, 4, 10, 5, 3, 7, 9, 4, 8, 6, 3, 10, 5]
    for size in sizes:
        case.scale(size)
    tasks = ["ps-0"] + [f"worker-{index}" for index in range(sizes[-1])]
    case.wait_members(tasks)
    case.wait_pods(tasks)
    case.wait_state("Running")
    after = case.uids()
    case.equal(before, {task: after[task] for task in before}, "who was always wanted is not touched")
    status = case.status()
    case.equal((0, 0), (status["restarts"], status["disruptions"]))


def scenario_23_scale_up_during_restart(case):
    before = begin(case)
    case.finish("worker-1", 137)
    case.wait_condition("Restarting")
    case.scale(4)
    case.wait_life("worker-1", 2)
    case.wait_members([*START, "worker-3"])
    case.wait("the new life to be a member", lambda: case.entries()["worker-1"]["created"] == 2)
    case.wait_state("Running")
    case.wait_condition("Restarting", "False")
    after = case.uids()
    stayers = ("ps-0", "worker-0", "worker-2")
    case.equal({task: before[task] for task in stayers}, {task: after[task] for task in stayers})
    status = case.status()
    case.equal((1, 0), (status["restarts"], status["disruptions"]))


def scenario_24_scale_down_then_up_same_index(case):
    before = begin(case, jobs.foreign(ps=1, workers=3))  # who leaves is deleted at once
    case.kubelet.keep_deleted(case.ns)
    case.scale(2)
    case.wait_members(START[:-1])
    case.wait("worker-2 to be deleted",
              lambda: "deletionTimestamp" in case.pods().get("worker-2", {"metadata": {}})["metadata"])
    case.scale(3)
    case.wait("the edit to be seen", lambda: case.status().get("worker", {}).get("desired") == 3)
    case.stays("the one that goes is not taken for a new one",
               lambda: case.uids() == before and "worker-2" not in case.members())
    case.kubelet.let_go(case.ns)
    pod = case.wait_life("worker-2", 2)
    case.wait_members(START)
    case.true(pod["metadata"]["uid"] != before["worker-2"], "another pod")
    case.equal(2, case.entries()["worker-2"]["created"])
    case.wait_state("Running")


def scenario_25_scale_to_min_by_preemption(case):
    before = begin(case, jobs.job(ps=1, workers=3, spec={"worker": {"minReplicas": 2}}))
    case.pod_plan(UNSCHEDULED)
    case.finish("worker-1", 137, disrupted=True)
    case.wait_life("worker-1", 2)
    case.kubelet.unschedulable(case.ns, "demo-worker-1")
    case.stays("the others wait for it at first", lambda: case.members() == START)
    case.wait_members(["ps-0", "worker-0", "worker-2"])
    running = case.wait_condition("Running", reason="WorkersMissing")
    case.true("worker-1: Unschedulable" in running["message"], running["message"])
    case.equal((3, 2), tuple(case.wait_state("Running")["worker"][n] for n in ("desired", "ready")))
    # The number may not fall below the least: the next one is waited for.
    case.finish("worker-2", 137, disrupted=True)
    case.wait_life("worker-2", 2)
    case.wait_state("Restarting")
    case.kubelet.schedule(case.ns, "demo-worker-2")
    case.wait_state("Running")
    case.equal(["ps-0", "worker-0", "worker-2"], case.members())
    # There is room again.
    case.kubelet.schedule(case.ns, "demo-worker-1")
    entries = case.wait_members(START)
    case.equal([1, 2, 2], [entries[f"worker-{i}"]["created"] for i in range(3)])
    case.wait_condition("Resizing", "False", "AllTasksReady")
    status = case.wait_state("Running")
    case.equal((0, 2), (status["restarts"], status["disruptions"]))
    after = case.uids()
    case.equal([before[t] for t in START[:2]], [after[t] for t in START[:2]], "who stays is not touched")


scenario_25_scale_to_min_by_preemption.seconds = 40


def scenario_26_kubectl_scale_roundtrip(case):
    hpas = f"/apis/autoscaling/v2/namespaces/{case.ns}/horizontalpodautoscalers"
    target = {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "demo"}
    wish = {"type": "Utilization", "averageUtilization": 50}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": wish}}
    begin(case)
    case.api.ask("POST", hpas, {"metadata": {"name": "demo"}, "spec": {
        "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": [metric]}})
    kubectl = case.world.cluster.kubectl
    kubectl("scale", "tj/demo", "-n", case.ns, "--replicas=4", "--current-replicas=3")
    case.wait_members([*START, "worker-3"])
    case.wait("the counts", lambda: case.status()["worker"]["replicas"] == 4)
    scale = case.api.ask("GET", case.path("trainingjobs", "demo") + "/scale")
    case.equal((4, 4), (scale["spec"]["replicas"], scale["status"]["replicas"]))
    found = case.list("pods", scale["status"]["selector"].replace(",", "%2C").replace("=", "%3D"))
    case.equal([f"demo-worker-{index}" for index in range(4)], sorted(p["metadata"]["name"] for p in found))

    # What an autoscaler needs of us it finds.
    def able():
        conditions = case.api.ask("GET", f"{hpas}/demo").get("status", {}).get("conditions", [])
        return any(c["type"] == "AbleToScale" and c["status"] == "True" for c in conditions)

    case.wait("the autoscaler to read the scale", able)


def scenario_27_drop_chosen_pod(case):
    before = begin(case)
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}}
    case.api.merge(case.path("pods", "demo-worker-1"), cost)
    # Once the operator has seen a later change of a pod, it has seen this one.
    case.kubelet.unready(case.ns, "demo-worker-2")
    case.wait("one worker less", lambda: case.status()["worker"]["ready"] == 2)
    case.run("worker-2")
    case.wait("all workers again", lambda: case.status()["worker"]["ready"] == 3)
    case.scale(2)
    kept = ["ps-0", "worker-0", "worker-2"]
    case.wait_members(kept)
    case.finish("worker-1", 0)
    case.wait_pods(kept)
    case.wait_condition("Resizing", "False", "AllTasksReady")
    case.quiet()
    case.equal({task: before[task] for task in kept}, case.uids(), "the chosen one left, nobody else")
    case.equal((2, "0,2"), tuple(case.status()["worker"][name] for name in ("desired", "indices")))
    # The free index is given again, as another life.
    case.scale(3)
    case.equal(2, case.wait_members(START)["worker-1"]["created"])
    case.wait_condition("Resizing", "False", "AllTasksReady")
    status = case.wait_state("Running")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))


def scenario_75_steps_change(case):
    before = begin(case, jobs.job(ps=1, workers=3, spec={"training": {"steps": 100}}))
    case.equal((1, 100), (revision(case), int(case.membership()["steps"])))
    for number, steps in enumerate((250, 50), 2):
        case.edit({"training": {"steps": steps}})
        case.wait("the membership to say so", lambda: int(case.membership()["steps"]) == steps)
        case.equal(number, revision(case), "one revision, once")
    case.quiet()
    case.equal(before, case.uids(), "nobody is touched")
    status = case.wait_state("Running")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))
