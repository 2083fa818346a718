"""Scenarios 60-63: connections that died without a word, refused credentials, and leaders that come and go."""
import json
import time

from cases.api_machinery import PODS_WATCH, WATCH, refusal
from harness.jobs import foreign

TASKS = ["ps-0", "worker-0", "worker-1"]


def scenario_60_half_open_tcp(case):
    """The other end of a watch is gone, and nobody closes the connection: silence is noticed."""
    proxy = case.proxy()
    operator = case.operator(kubeconfig=proxy.kubeconfig)
    case.submit(foreign())
    case.wait_state("Running")
    watches = sum(PODS_WATCH in r["target"] for r in proxy.requests())
    proxy.inject("silence", target=PODS_WATCH, times=1)
    proxy.drop()
    case.wait("the silent watch", lambda: sum(PODS_WATCH in r["target"] for r in proxy.requests()) > watches)
    case.finish("worker-1", 137)
    # The server sends a bookmark every minute, so a minute and a half without one is too much.
    case.wait("the next watch to see what the silent one has not", lambda: case.lives().get("worker-1") == "2", 300)
    case.true(operator.alive(), "it goes on")
    status = case.wait_state("Running")
    case.equal((1, 0), (status["restarts"], status["disruptions"]))


scenario_60_half_open_tcp.seconds = 120


def scenario_61_401_403(case):
    """A token that is refused is read again, once; who is still refused ends, and says so."""
    proxy = case.proxy()
    config = json.loads(proxy.kubeconfig.read_text())
    token = case.folder / "token"
    token.write_text("first")
    config["users"][0]["user"] = {"tokenFile": str(token)}
    own = proxy.kubeconfig.with_name("token.kubeconfig")  # beside the CA's certificate
    own.write_text(json.dumps(config))
    unauthorized, forbidden = refusal(401, "Unauthorized"), refusal(403, "Forbidden")

    operator = case.operator(kubeconfig=own)
    case.submit(foreign())
    case.wait_state("Running")
    token.write_text("second")
    proxy.inject("answer", method="POST", target="/pods", times=1, **unauthorized)
    case.scale(3)
    case.wait_pods([*TASKS, "worker-2"])
    refused = [value for name, value in operator.metrics().items()
               if name.startswith("rest_client_requests_total") and 'code="401"' in name]
    case.equal([1.0], refused)
    before = case.uids()

    for answer, code in ((unauthorized, 401), (forbidden, 403)):
        case.true(operator.alive(), operator.text()[-500:])
        proxy.inject("answer", target=WATCH, times=-1, **answer)
        proxy.drop()
        case.equal(1, operator.wait_exit(), f"exit code after {code}")
        case.contains("the apiserver refuses us", operator.text())
        proxy.heal()
        operator.start()
        case.wait("it to be ready", lambda: operator.fetch("/readyz")[0] == 200)
    case.quiet(1)
    case.equal(before, case.uids(), "the job is none the worse")


def elected(case, name, kubeconfig=None):
    """An operator that takes part in the election; it is started. Its times leave a busy machine room."""
    return case.operator("--leader-elect", "--lease-namespace", case.ns, "--lease-name", "operator", "--identity", name,
                         "--lease-duration", 60, "--renew-deadline", 45, kubeconfig=kubeconfig)


def leader(case):
    lease = case.get("leases", "operator") or {}
    return lease.get("spec", {}).get("holderIdentity", "").partition("_")[0]


def scenario_62_leader_failover_mid_create(case):
    """The leader is killed when some of a job's pods are made; the other operator makes the rest."""
    proxy = case.proxy()
    first = elected(case, "first", proxy.kubeconfig)
    case.wait("the first to lead", lambda: leader(case) == "first")
    second = elected(case, "second")
    # Three pods come through, then the apiserver asks for patience.
    proxy.inject("dropStream", method="POST", target="/pods", times=3, afterMs=60000)
    proxy.inject("answer", method="POST", target="/pods", times=-1, headers="Retry-After: 9\r\n",
                 **refusal(429, "TooManyRequests"))
    case.submit(foreign(workers=8))
    case.wait("the first pods", lambda: any('code="429"' in name and value > 0 for name, value in first.metrics().items()))
    # Some are made side by side: those that come through may come after the refusal.
    case.wait("all that come through", lambda: len(case.pods()) >= 3)
    first.kill()
    made = case.uids()
    case.equal(3, len(made))
    case.wait("the second to lead", lambda: leader(case) == "second")
    status = case.wait_state("Running")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))
    case.equal({"ps-0": "1", **{f"worker-{index}": "1" for index in range(8)}}, case.lives())
    case.equal(made, {task: uid for task, uid in case.uids().items() if task in made})
    case.true(second.alive(), "the second goes on")


def scenario_63_old_leader_paused_resumes(case):
    """A leader is stopped for longer than its lease, with a write in hand, and wakes when another one leads: it
    writes nothing, and ends."""
    proxy = case.proxy()
    old = elected(case, "old", proxy.kubeconfig)
    case.wait("the old one to lead", lambda: leader(case) == "old")
    case.submit(foreign())
    case.wait_state("Running")
    # Nobody listens at the pods: once it has told their kubelets, nothing but what follows is in its hands.
    case.wait("the pods to be told of the membership", lambda: len(case.pods()) == len(TASKS) and all(
        "trainyard.dev/revision" in pod["metadata"].get("annotations", {}) for pod in case.pods().values()))
    new = elected(case, "new")
    # It waits with a creation, since the apiserver asked it to.
    proxy.inject("answer", method="POST", target="/pods", times=-1, headers="Retry-After: 9\r\n",
                 **refusal(429, "TooManyRequests"))
    case.scale(3)
    case.wait("the refusal", lambda: any(
        'code="429"' in name and value > 0 for name, value in old.metrics().items()))
    old.pause()
    time.sleep(0.5)  # what it sent before has arrived
    proxy.heal()
    begun = len(proxy.requests())
    case.wait("the new one to lead", lambda: leader(case) == "new")
    case.wait_pods([*TASKS, "worker-2"])
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    status = case.wait_state("Running")
    case.equal((1, 0), (status["restarts"], status["disruptions"]))
    before = case.uids()
    old.resume()
    case.equal(1, old.wait_exit(), "who led and does not any more ends")
    case.equal([], proxy.writes(begun), "what the old leader wrote after it woke")
    case.contains("no longer the leader", old.text())
    case.equal("new", leader(case))
    case.quiet(1)
    case.equal(before, case.uids())
    case.true(new.alive(), "the new one goes on")


scenario_62_leader_failover_mid_create.seconds = scenario_63_old_leader_paused_resumes.seconds = 100
