"""The operator dies after each of its writes."""
import concurrent.futures
import contextlib

from harness import jobs
from harness.case import Case
from harness.client import Refused

AT_ONCE = 4
TASKS = ["ps-0", "worker-0", "worker-1"]
# The job's objects, four pods, their release, the status now and then: no life does with less.
WRITES_MIN = 10


class Life:
    """One job's life, in which the operator is killed at its k-th write, and started again."""

    def __init__(self, case, kill_at):
        self.case = case
        self.proxy = case.proxy()
        self.kill_at = kill_at
        self.operator = case.operator(kubeconfig=self.proxy.kubeconfig)
        self.arm()

    def arm(self):
        """Also for one that was started because the former one had given up by itself before."""
        if self.kill_at and not self.proxy.killed():
            self.proxy.kill_at(self.operator.pid, max(1, self.kill_at - len(self.proxy.writes())))

    def wait(self, what, condition):
        def tended():
            if not self.operator.alive():
                self.operator.start()
                self.arm()
            return condition()

        return self.case.wait(what, tended)

    def lives_are(self, lives):
        entries = self.case.entries()
        return self.case.status().get("state") == "Running" and [
            entries.get(task, {}).get("created") for task in TASKS] == lives

    def lead(self):
        """From creation over the death of a worker to the end; what is left then."""
        case = self.case
        case.submit(jobs.job(spec={"runPolicy": {"successPolicy": "AllWorkers"}}))
        self.wait("the job to run", lambda: self.lives_are([1, 1, 1]))
        case.finish("worker-1", 137)
        self.wait("the job to run again", lambda: self.lives_are([1, 1, 2]))
        for task in TASKS:
            with contextlib.suppress(Refused):
                case.finish(task, 0)
        self.wait("the job to succeed", lambda: case.status().get("state") == "Succeeded")
        self.wait("the pods to be released", lambda: not any(
            pod["metadata"].get("finalizers") for pod in case.pods().values()))
        self.wait("the counts", lambda: self.left()["worker"].get("succeeded") == 2)
        return self.left()

    def left(self):
        status = self.case.status()
        pods = {task: (pod["status"]["phase"], pod["metadata"]["labels"]["trainyard.dev/created"])
                for task, pod in self.case.pods().items()}
        conditions = sorted((c["type"], c["status"], c["reason"]) for c in status["conditions"])
        return {"conditions": conditions, "pods": pods, "revision": self.case.membership()["revision"],
                **{key: status.get(key) for key in ("state", "restarts", "disruptions", "ps", "worker")}}


def lead(case, kill_at):
    """(what is left, how many writes that took, whether the operator was killed)."""
    inner = Case(case.world, f"{case.ns}-{kill_at}", case.folder / str(kill_at))
    try:
        inner.open()
        life = Life(inner, kill_at)
        left = life.lead()
        writes, killed = len(life.proxy.writes()), life.proxy.killed()
        print(f"{inner.ns}: {writes} writes, {'killed' if killed else 'not killed'}", flush=True)
        return left, writes, killed
    except AssertionError as error:
        raise AssertionError(f"killed at write {kill_at}: {error}\n{inner.describe()}") from error
    finally:
        inner.close()


def scenario_64_kill_9_at_every_write(case):
    expected, writes, _ = lead(case, 0)
    case.true(writes >= WRITES_MIN, f"{writes} writes")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        lives = list(pool.map(lambda k: (k, *lead(case, k)), range(1, writes + 1)))
    for number, left, own_writes, killed in lives:
        case.equal(expected, left, f"killed at write {number}")
        # What comes together is one write in one life and two in another: some lives have fewer.
        case.true(killed or own_writes < number, f"not killed at write {number} of {own_writes}")
    case.true(sum(killed for *_, killed in lives) >= WRITES_MIN, "too few lives had a killed operator")


scenario_64_kill_9_at_every_write.seconds = 100
