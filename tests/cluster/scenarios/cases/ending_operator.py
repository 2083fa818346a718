"""An operator that is asked to end in the middle of its work gives its lease back in time."""
import time

from harness import jobs
from harness.kubelet import UNSCHEDULED

TASKS = 4000
BEGUN = 200  # pods
# A pod is killed 30 s after it was asked to end.
SECONDS = 25


def begin(case, kubeconfig=None):
    """An operator that leads, and is in the middle of a job's tasks."""
    case.pod_plan(UNSCHEDULED)
    operator = case.operator("--leader-elect", "--lease-name", "ends", "--lease-namespace", case.ns,
                             # Its loss, which an apiserver without a processor for 10 s is, is not what is tried here.
                             "--lease-duration", 60, "--renew-deadline", 45, kubeconfig=kubeconfig)
    case.submit(jobs.job(ps=100, workers=TASKS - 100))
    case.wait("some of the pods", lambda: len(case.list("pods")) >= BEGUN)
    case.true(case.get("leases", "ends")["spec"]["holderIdentity"], "it leads")
    return operator


def end(case, operator):
    case.true(operator.alive(), "it runs until it is asked to end")
    begun = time.monotonic()
    case.equal(0, operator.stop())
    took = time.monotonic() - begun
    print(f"{case.ns}: ended after {took:.1f} s", flush=True)
    case.true(took < SECONDS, f"it took {took:.0f} s to end")
    case.equal("", case.get("leases", "ends")["spec"].get("holderIdentity", ""))
    case.true(len(case.list("pods")) < TASKS, "it carried out all of its plan first")


def scenario_76_sigterm_mid_create(case):
    end(case, begin(case))


def scenario_77_sigterm_without_answers(case):
    """The apiserver takes creates and does not answer them any more."""
    proxy = case.proxy()
    operator = begin(case, proxy.kubeconfig)
    proxy.inject("silence", method="POST", target="/pods", times=-1)
    case.wait("a create without an answer", lambda: still(case))
    end(case, operator)


def still(case):
    """Whether the number of pods has come to rest."""
    before = len(case.list("pods"))
    time.sleep(1)
    return len(case.list("pods")) == before


scenario_76_sigterm_mid_create.seconds = 40
scenario_77_sigterm_without_answers.seconds = 40
