"""Creation and identity: what is made for a job, under which names, and what is left alone."""
import json
import time

from harness import jobs
from harness.processes import AGENT_IMAGE, RUNTIME_IMAGE


def scenario_01_create_ps_worker(case):
    made = case.submit(jobs.job(ps=2, workers=3))
    tasks = ["ps-0", "ps-1", "worker-0", "worker-1", "worker-2"]
    pods = case.wait_pods(tasks)
    for task in tasks:
        role, index = task.split("-")
        meta, spec = pods[task]["metadata"], pods[task]["spec"]
        labels = meta["labels"]
        case.equal([role, index, "demo"], [labels[f"trainyard.dev/{key}"] for key in ("role", "index", "job-name")])
        case.equal([{"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "name": "demo",
                     "uid": made["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}],
                   meta["ownerReferences"])
        case.equal((f"demo-{task}", None), (spec["hostname"], spec.get("subdomain")))
        words = spec["containers"][0]["command"]
        case.true(f"--role={role}" in words and f"--index={index}" in words, words)
        names = [entry["name"] for entry in spec["containers"][0]["env"]]
        no_gpu = ["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"] if role == "ps" else []
        case.equal(["TRAINYARD_POD_IP", *no_gpu], names)
        case.equal(RUNTIME_IMAGE, spec["containers"][0]["image"])
    case.equal([], case.list("services"), "our runtime goes by addresses")
    maps = case.list("configmaps", "trainyard.dev/job-name=demo")
    case.equal(["demo-membership"], [m["metadata"]["name"] for m in maps])
    entries = case.wait_members(tasks)
    # Our runtime goes by addresses.
    case.equal({task: (None, 2222) for task in tasks},
               {task: (entry.get("host"), entry["port"]) for task, entry in entries.items()})
    case.equal({task: pod["status"]["podIP"] for task, pod in case.pods().items()},
               {task: entry["ip"] for task, entry in entries.items()})
    secrets = [s["metadata"]["name"] for s in case.list("secrets")]
    case.equal([f"demo-{made['metadata']['uid'][:8]}-tls"], secrets)
    status = case.wait_state("Running")
    case.equal((2, 3), (status["ps"]["ready"], status["worker"]["ready"]))


def scenario_02_create_ring(case):
    case.submit(jobs.foreign(ps=0, workers=4))
    case.wait_pods([f"worker-{index}" for index in range(4)])
    entries = case.wait_members([f"worker-{index}" for index in range(4)])
    case.equal({task: f"demo-{task}.demo.{case.ns}.svc:2222" for task in entries},
               {task: f"{entry['host']}:{entry['port']}" for task, entry in entries.items()})
    # The agents take rank and coordinator from the order of the record: dense, worker-0 first.
    indices = [entry["id"].get("index", 0) for entry in case.membership()["tasks"]]
    case.equal([0, 1, 2, 3], indices)
    images = {pod["spec"]["containers"][0]["image"] for pod in case.pods().values()}
    case.equal({"registry.test/user:1"}, images)
    inits = {pod["spec"]["initContainers"][0]["image"] for pod in case.pods().values()}
    case.equal({AGENT_IMAGE}, inits)


def scenario_03_single_replica(case):
    case.submit(jobs.foreign(ps=0, workers=1))
    case.wait_state("Running")
    case.wait_members(["worker-0"])
    case.finish("worker-0")
    case.wait_state("Succeeded")


def scenario_04_create_twice(case):
    proxy = case.proxy()
    operator = case.operator(kubeconfig=proxy.kubeconfig)
    case.submit(jobs.job())
    case.wait_members(["ps-0", "worker-0", "worker-1"])
    case.wait_state("Running")
    # Nobody answers for the agents, so the pods are told of the membership in another way: once.
    case.wait("the pods to be told", lambda: all(
        pod["metadata"]["annotations"].get("trainyard.dev/revision") == "1" for pod in case.pods().values()))
    case.quiet()
    written = len(proxy.requests())
    count = 'controller_runtime_reconcile_total{controller="trainingjob",result="success"}'
    for number in range(10):
        before = operator.metrics()[count]
        case.api.merge(case.path("trainingjobs", "demo"), {"metadata": {"annotations": {"touched": str(number)}}})
        case.wait("another reconcile", lambda: operator.metrics()[count] > before)  # noqa: B023
    case.equal([], proxy.writes(written))


scenario_04_create_twice.seconds = 40


def scenario_05_already_exists_ours(case):
    case.submit(jobs.job())
    case.wait_members(["ps-0", "worker-0", "worker-1"])
    case.wait_state("Running")
    before = case.uids()
    case.op.kill()
    # As if it had died before it could write anything down.
    case.api.merge(case.path("trainingjobs", "demo") + "/status", {"status": None})
    case.api.ask("DELETE", case.path("configmaps", "demo-membership"))
    case.op.start()
    case.wait_state("Running")
    case.wait_members(["ps-0", "worker-0", "worker-1"])
    case.equal(before, case.uids())
    case.equal((0, 0), (case.status()["restarts"], case.status()["disruptions"]))


def scenario_06_already_exists_foreign(case):
    pod = case.create("pods", {"metadata": {"name": "demo-worker-0", "labels": {"app": "other"}},
                               "spec": {"containers": [{"name": "main", "image": "registry.test/other:1"}]}})
    case.submit(jobs.job())
    told = case.wait_condition("Reconciling", reason="NameConflict")
    case.contains("demo-worker-0", told["message"])
    case.wait("the event", lambda: case.events("NameConflict"))
    service = case.create("services", {"metadata": {"name": "second"},
                                       "spec": {"selector": {"app": "other"}, "ports": [{"port": 80}]}})
    case.submit(jobs.foreign("second"))
    told = case.wait_condition("Reconciling", reason="NameConflict", name="second")
    case.contains("Service second", told["message"])
    case.wait("the event", lambda: case.events("NameConflict", name="second"))
    case.equal(pod["metadata"]["uid"], case.get("pods", "demo-worker-0")["metadata"]["uid"])
    case.equal(pod["metadata"]["resourceVersion"], case.get("pods", "demo-worker-0")["metadata"]["resourceVersion"])
    case.equal(service["metadata"]["resourceVersion"], case.get("services", "second")["metadata"]["resourceVersion"])
    # Its owner takes it away: the job goes on.
    case.api.ask("DELETE", case.path("pods", "demo-worker-0"), {"gracePeriodSeconds": 0})
    case.wait_state("Running")


def scenario_07_same_name_new_uid(case):
    case.submit(jobs.job())
    case.wait_members(["ps-0", "worker-0", "worker-1"])
    case.wait_state("Running")
    before = case.uids()
    case.kubelet.keep_deleted(case.ns)
    case.delete()
    case.wait_gone()
    made = case.submit(jobs.job())
    case.wait("the former pods to be on their way out", lambda: len(case.pods()) == 3 and all(
        "deletionTimestamp" in pod["metadata"] for pod in case.pods().values()))
    case.wait_condition("Created")
    case.stays("the former pods have the names", lambda: case.uids() == before)
    case.equal(0, case.status()["ps"]["replicas"] + case.status()["worker"]["replicas"])
    case.kubelet.let_go(case.ns)
    case.wait_state("Running")
    pods = case.wait_pods(["ps-0", "worker-0", "worker-1"])
    case.equal({made["metadata"]["uid"]}, {p["metadata"]["ownerReferences"][0]["uid"] for p in pods.values()})
    case.equal({}, {task: uid for task, uid in case.uids().items() if uid == before[task]})
    # These pods are ready without it, and the former job's may have to go first.
    case.wait("the membership of the new job",
              lambda: (case.membership() or {}).get("uid") == made["metadata"]["uid"])


def scenario_08_user_template_kept(case):
    template = {
        "metadata": {"labels": {"team": "red", "trainyard.dev/role": "king"}, "annotations": {"note": "kept"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"}, "priorityClassName": "", "terminationGracePeriodSeconds": 7,
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "initContainers": [{"name": "fetch", "image": "registry.test/fetch:1"}],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
            "containers": [
                {"name": "sidecar", "image": "registry.test/sidecar:1", "command": ["/bin/log"]},
                {"name": "task", "image": "registry.test/user:1", "env": [{"name": "COLOUR", "value": "red"}],
                 "resources": {"requests": {"cpu": "50m"}}, "workingDir": "/work",
                 "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}]}}
    case.submit(jobs.job(spec={"worker": {"template": template}}))
    pod = case.wait_pods(["ps-0", "worker-0", "worker-1"])["worker-0"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    case.equal(("red", "worker"), (labels["team"], labels["trainyard.dev/role"]))
    case.equal("kept", pod["metadata"]["annotations"]["note"])
    case.equal(({"disk": "ssd"}, 7), (spec["nodeSelector"], spec["terminationGracePeriodSeconds"]))
    case.true({"key": "gpu", "operator": "Exists"} in spec["tolerations"], spec["tolerations"])
    case.equal(["trainyard-agent", "fetch"], [c["name"] for c in spec["initContainers"]])
    case.true({"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}} in spec["volumes"], spec["volumes"])
    sidecar, task = spec["containers"]
    case.equal(("registry.test/sidecar:1", ["/bin/log"]), (sidecar["image"], sidecar["command"]))
    case.equal(("registry.test/user:1", "/work", "50m"),
               (task["image"], task["workingDir"], task["resources"]["requests"]["cpu"]))
    case.true({"name": "COLOUR", "value": "red"} in task["env"], task["env"])
    case.true("/scratch" in [mount["mountPath"] for mount in task["volumeMounts"]], task["volumeMounts"])
    case.wait_state("Running")

    taken = {"spec": {"containers": [{"name": "task", "env": [{"name": "PS_HOSTS", "value": "mine"}]}]}}
    case.submit(jobs.job("taken", spec={"worker": {"template": taken}}))
    told = case.wait_condition("Stalled", name="taken", reason="TemplateInvalid")
    case.contains("PS_HOSTS", told["message"])
    case.stays("nothing is made", lambda: not case.pods("taken"), 1)


def scenario_09_template_invalid(case):
    proxy = case.proxy()
    case.operator(kubeconfig=proxy.kubeconfig)
    bad = {"spec": {"containers": [{"name": "task", "resources": {"requests": {"cpu": "-1"}}}]}}
    case.submit(jobs.job(spec={"worker": {"template": bad}}))
    told = case.wait_condition("Reconciling", reason="TemplateInvalid")
    case.contains("resources.requests", told["message"])
    case.wait("the event", lambda: case.events("TemplateInvalid"))
    case.quiet()
    seen = len(proxy.requests())
    case.stays("nothing is tried again and again", lambda: len([
        r for r in proxy.requests(seen) if r["method"] == "POST" and "/pods" in r["target"]]) <= 1, 5)
    case.equal(1, len(case.events("TemplateInvalid")))

    # The apiserver drops what it does not know, unless it is asked to say so.
    misspelt = {"spec": {"containers": [{"name": "task", "resource": {"limits": {"cpu": "1"}}}]}}
    case.submit(jobs.job("misspelt", spec={"worker": {"template": misspelt}}))
    told = case.wait_condition("Reconciling", name="misspelt", reason="TemplateInvalid")
    case.contains('unknown field "spec.containers[0].resource"', told["message"])


def scenario_78_shared_objects_return(case):
    peers = json.dumps({"agentFrom": [{"podSelector": {}}], "metricsFrom": []})
    case.operator("--shared-objects-interval", 1, "--job-network-policy", peers)
    case.submit(jobs.foreign())
    case.wait_state("Running")
    service = case.get("services", "demo")["spec"]
    case.equal("None", service["clusterIP"])
    case.true(service["publishNotReadyAddresses"], "names of pods that are not ready yet")
    case.equal({"demo"}, {pod["spec"]["subdomain"] for pod in case.pods().values()})
    names = {kind: name for kind in ("services", "networkpolicies", "secrets")
             for name in [each["metadata"]["name"] for each in case.list(kind) if each["metadata"]["name"].startswith("demo")]}
    case.equal({"services", "networkpolicies", "secrets"}, set(names))
    before = {kind: case.get(kind, name) for kind, name in names.items()}
    for kind, name in names.items():
        case.delete(name, kind=kind)

    def looked_at():
        """Nothing happens to it otherwise, so that it is looked at twice a minute."""
        case.api.merge(case.path("trainingjobs", "demo"), {"metadata": {"labels": {"now": str(time.monotonic())}}})
        return True

    for kind, name in names.items():
        case.wait(f"{kind} {name} again", lambda kind=kind, name=name: looked_at() and (
            found := case.get(kind, name)) and found["metadata"]["uid"] != before[kind]["metadata"]["uid"])
    case.equal(before["secrets"]["data"], case.get("secrets", names["secrets"])["data"], "the running tasks' keys")
    for kind, change in (("services", {"ports": [{"name": "task", "port": 1}], "selector": {"of": "others"}}),
                         ("networkpolicies", {"ingress": [{}], "podSelector": {"matchLabels": {"of": "others"}}})):
        case.api.merge(case.path(kind, names[kind]), {"spec": change})
        wanted = before[kind]["spec"]
        case.wait(f"{kind} as it was", lambda kind=kind, change=change, wanted=wanted: looked_at() and all(
            case.get(kind, names[kind])["spec"].get(field) == wanted.get(field) for field in change))
