"""Scenarios 51-59: an apiserver that forgets, delays, refuses and loses answers. A proxy stands before it."""
import json
import pathlib
import tempfile
import time

from harness import world as worlds
from harness.case import Case
from harness.jobs import foreign
from rig import testing

WATCH = "watch=true"
PODS_WATCH = "/pods?labelSelector=trainyard.dev%2Fjob-name&watch=true"
PODS_LIST = "/pods?labelSelector=trainyard.dev%2Fjob-name&limit="
TASKS = ["ps-0", "worker-0", "worker-1"]


def refusal(code, reason, **more):
    return {"status": code, "body": json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                                                "code": code, "reason": reason, "message": f"made to fail: {reason}",
                                                **more})}


def through_proxy(case, *flags):
    """The proxy, with an operator behind it."""
    proxy = case.proxy()
    case.operator(*flags, kubeconfig=proxy.kubeconfig)
    return proxy


def created_pods(proxy, start=0):
    """Names of the pods whose creation reached the apiserver."""
    return [json.loads(r["body"])["metadata"]["name"] for r in proxy.requests(start)
            if r["method"] == "POST" and r["target"].partition("?")[0].endswith("/pods")]


def as_it_was(case, restarts=0, disruptions=0):
    status = case.wait_state("Running")
    case.equal((restarts, disruptions), (status["restarts"], status["disruptions"]))


def scenario_51_watch_410(case):
    """The version that a watch begins at is forgotten: what was deleted meanwhile is found by a new list."""
    proxy = through_proxy(case)
    case.submit(foreign())
    case.wait_state("Running")
    expired = refusal(410, "Expired")
    events = {"status": 200, "body": json.dumps({"type": "ERROR", "object": json.loads(expired["body"])}) + "\n"}
    # Once as the answer, once as an event in a stream that began well.
    for life, fault in ((2, expired), (3, events)):
        proxy.inject("answer", target=WATCH, times=3, **fault)  # one for each kind
        proxy.drop()
        case.kubelet.keep_deleted(case.ns)
        case.delete("demo-worker-1", kind="pods")
        case.api.merge(case.path("pods", "demo-worker-1"), {"metadata": {"finalizers": None}})
        case.kubelet.forget(case.ns, "demo-worker-1")
        case.wait_life("worker-1", life)
        as_it_was(case, 0, life - 1)
    case.equal({"ps-0": "1", "worker-0": "1", "worker-1": "3"}, case.lives())


def scenario_52_watch_drop_every_2s(case):
    """No watch lasts longer than two seconds in a job's whole life."""
    proxy = case.proxy()
    proxy.inject("dropStream", target=WATCH, times=-1, afterMs=2000)
    case.operator(kubeconfig=proxy.kubeconfig)
    case.submit(foreign(spec={"runPolicy": {"successPolicy": "AllWorkers"}}))
    case.wait_state("Running")
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    as_it_was(case, 1, 0)
    case.scale(3)
    case.wait_pods([*TASKS, "worker-2"])
    case.wait_condition("Resizing", "False", "AllTasksReady")
    for worker in ("worker-0", "worker-1", "worker-2"):
        case.finish(worker)
    status = case.wait_state("Succeeded")
    case.equal((1, 0), (status["restarts"], status["disruptions"]))
    case.equal(sorted(["demo-ps-0", "demo-worker-0", "demo-worker-1", "demo-worker-1", "demo-worker-2"]),
               sorted(created_pods(proxy)))
    case.true(sum(WATCH in r["target"] for r in proxy.requests()) > 6, "the watches were dropped")


def scenario_53_apiserver_restart(case):
    """A control plane of its own, whose apiserver is away for some seconds; a pod ends meanwhile."""
    with tempfile.TemporaryDirectory() as folder, testing.start(pathlib.Path(folder), control_plane=True) as cluster:
        other = worlds.World(cluster, folder)
        other.open()
        own = Case(other, case.ns, case.folder / "own")
        try:
            own.open()
            own.submit(foreign())
            own.wait_state("Running")
            before = own.uids()
            begun = time.monotonic()
            testing.subprocess.run([testing.sys.executable, "-B", testing.SCRIPT, "kill", folder, "kube-apiserver",
                                    "--seconds", "8"], check=True, stdout=testing.subprocess.DEVNULL)
            own.wait("the apiserver", lambda: own.job() is not None)
            own.true(own.op.alive(), "the operator waits for it")
            own.wait("it to have been away", lambda: time.monotonic() > begun + 8)
            own.finish("worker-1", 137)
            own.wait_life("worker-1", 2)
            as_it_was(own, 1, 0)
            kept = ("ps-0", "worker-0")
            own.equal({t: before[t] for t in kept}, {t: own.uids()[t] for t in kept})
            own.scale(3)
            own.wait_pods([*TASKS, "worker-2"])
        finally:
            for made in reversed(own.to_close):
                made.close()
            other.kubelet.stop()


scenario_53_apiserver_restart.seconds = 60


def scenario_54_apiserver_429_503(case):
    """A server that asks to be left alone for a while is left alone, and then asked again."""
    proxy = case.proxy()
    busy = {"headers": "Retry-After: 3\r\n", "times": 1}
    for target in ("/pods?", "/trainingjobs?"):
        proxy.inject("answer", target=target, **busy, **refusal(503, "ServiceUnavailable"))
    proxy.inject("answer", method="POST", target="/services", **busy, **refusal(503, "ServiceUnavailable"))
    proxy.inject("answer", method="POST", target="/pods", **busy, **refusal(429, "TooManyRequests"))
    proxy.inject("answer", method="PATCH", target="/status", **busy, **refusal(429, "TooManyRequests"))
    begun = time.monotonic()
    operator = case.operator(kubeconfig=proxy.kubeconfig)
    case.submit(foreign())
    case.wait_state("Running")
    # The list, the status, the service and the first pod, one after the other.
    case.true(time.monotonic() - begun >= 12, f"waited for {time.monotonic() - begun:.1f} s in all")
    seen = operator.metrics()

    def counted(method, code):
        return sum(value for name, value in seen.items() if name.startswith("rest_client_requests_total")
                   and f'method="{method}"' in name and f'code="{code}"' in name)

    case.equal([1, 1, 1, 2], [counted("POST", 503), counted("POST", 429), counted("PATCH", 429),
                              counted("GET", 503)], "each refusal was heard once")
    as_it_was(case)
    case.equal(sorted(f"demo-{task}" for task in TASKS), sorted(created_pods(proxy)))


def scenario_55_status_conflict_409(case):
    """Somebody else writes the job between reading and writing: read again, and tell of nothing twice."""
    proxy = through_proxy(case)
    proxy.inject("answer", method="PATCH", target="/trainingjobs/demo/status", times=3, **refusal(409, "Conflict"))
    case.submit(foreign())
    # A real one besides.
    case.api.merge(case.path("trainingjobs", "demo"), {"metadata": {"labels": {"touched": "1"}}})
    as_it_was(case)
    # Each event follows the status that it belongs to.
    for reason in ("JobCreated", "MembershipPublished", "JobRunning"):
        case.wait(f"the event {reason}", lambda reason=reason: case.events(reason))
    case.quiet()
    for reason in ("JobCreated", "MembershipPublished", "JobRunning"):
        case.equal(1, len(case.events(reason)), reason)
    case.equal({task: "1" for task in TASKS}, case.lives())


def scenario_56_create_timeout_but_applied(case):
    """The answers to creations are lost: what was created is found, not created again, and not mourned."""
    proxy = through_proxy(case)
    proxy.inject("loseReply", method="POST", target="/configmaps", times=1)
    proxy.inject("loseReply", method="POST", target="/services", times=1)
    proxy.inject("loseReply", method="POST", target="/secrets", times=1)
    proxy.inject("loseReply", method="POST", target="/pods", times=2)
    case.submit(foreign())
    as_it_was(case)
    case.equal({task: "1" for task in TASKS}, case.lives())
    case.equal([], case.events("TaskLost") + case.events("TaskDisrupted"))
    # The same with what writes a status and a membership, and with a deletion.
    proxy.inject("loseReply", method="PATCH", target="/trainingjobs/demo/status", times=1)
    proxy.inject("loseReply", method="PATCH", target="/configmaps/", times=1)
    proxy.inject("loseReply", method="DELETE", target="/pods/", times=1)
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    as_it_was(case, 1, 0)


def scenario_57_delayed_watch_5s(case):
    """The cache of pods is seconds behind: nothing is created twice, nothing deleted that should not be."""
    proxy = through_proxy(case)
    case.wait("the watches", lambda: sum(WATCH in r["target"] for r in proxy.requests()) >= 3)
    proxy.inject("hold", target=PODS_WATCH, times=-1)
    proxy.drop()
    case.submit(foreign())
    begun = time.monotonic()
    case.wait("the first pods", case.pods)
    case.stays("no pod is created twice, none deleted", lambda: all(
        created == "1" for created in case.lives().values()), max(1.0, 5 - (time.monotonic() - begun)))
    case.true(not [r for r in proxy.requests() if r["method"] == "DELETE"], "nothing is deleted")

    def let_go():
        """What is held comes, some of it again and again behind the facts."""
        proxy.release()
        return case.status().get("state") == "Running"

    case.wait("the job to run in spite of it", lambda: time.sleep(0.5) or let_go())
    case.finish("worker-1", 137)
    case.wait("worker-1's next life", lambda: time.sleep(0.5) or let_go() or case.lives().get("worker-1") == "2")
    proxy.heal()
    proxy.drop()
    case.wait_life("worker-1", 2)
    as_it_was(case, 1, 0)
    case.equal(sorted(["demo-ps-0", "demo-worker-0", "demo-worker-1", "demo-worker-1"]), sorted(created_pods(proxy)))


def scenario_58_bookmark_only_stream(case):
    """A watch that says nothing but where it is: the next one goes on from there, and it is no object."""
    proxy = through_proxy(case)
    case.submit(foreign())
    as_it_was(case)
    before = case.op.metrics()["trainyard_cached_pods"]
    version = case.api.ask("GET", case.path("pods"))["metadata"]["resourceVersion"]
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1",
                                               "metadata": {"resourceVersion": version}}}
    seen = len(proxy.requests())
    proxy.inject("answer", target=PODS_WATCH, status=200, times=2, body=(json.dumps(bookmark) + "\n") * 2)
    proxy.drop()
    case.wait("a watch from there", lambda: any(PODS_WATCH in r["target"] and f"resourceVersion={version}&" in r["target"]
                                                for r in proxy.requests(seen)))
    case.true(not any("/pods?" in r["target"] and "resourceVersion=" not in r["target"] for r in proxy.requests(seen)),
              "nothing is listed again")
    case.equal(before, case.op.metrics()["trainyard_cached_pods"])
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    as_it_was(case, 1, 0)


def scenario_59_list_paged_token_expired(case):
    """A list takes longer than the apiserver remembers it: the rest comes in one piece."""
    proxy = through_proxy(case)
    case.submit(foreign())
    as_it_was(case)
    case.op.kill()
    version = case.api.ask("GET", case.path("pods"))["metadata"]["resourceVersion"]
    first = {"kind": "PodList", "apiVersion": "v1", "items": [],
             "metadata": {"resourceVersion": version, "continue": "bmV4dA"}}
    # A server that offers no other way of listing.
    proxy.inject("answer", target="sendInitialEvents=true", times=-1, **refusal(400, "BadRequest"))
    proxy.inject("answer", target=PODS_LIST, status=200, body=json.dumps(first))
    proxy.inject("answer", target="continue=bmV4dA", **refusal(410, "Expired"))
    seen = len(proxy.requests())
    case.op.start()
    case.wait("the whole list", lambda: any("/pods?labelSelector" in r["target"] and "limit=" not in r["target"]
                                            and WATCH not in r["target"] for r in proxy.requests(seen)))
    case.wait("the pods to be cached", lambda: case.op.metrics().get("trainyard_cached_pods") == 3)
    # Had it taken the first page for everything, all tasks would be gone.
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    as_it_was(case, 1, 0)
