"""Scenarios 65-68: what the operator says of itself, and that it is quiet when there is nothing to do."""
import collections
import concurrent.futures
import re
import time

from harness import jobs
from harness.jobs import foreign

# One line of /metrics: name, labels, value.
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def series(text):
    """[(name, {label: value}, value)] of a text that Prometheus reads."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = SAMPLE.match(line).groups()
            found.append((name, dict(LABEL.findall(labels or "")), float(value)))
    return found


def kinds(text):
    """{family: counter, gauge or histogram}."""
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))


def counted(operator, name, ns):
    return sum(value for found, labels, value in series(operator.fetch("/metrics")[1])
               if found == name and labels.get("job_namespace") == ns)


def scenario_65_metrics_after_restart(case):
    """Counters count what happens, not what is seen: jobs from before a restart are counted no second time."""
    names = ("trainyard_jobs_created_total", "trainyard_jobs_succeeded_total", "trainyard_jobs_failed_total",
             "trainyard_job_restarts_total")

    def counts():
        return tuple(int(counted(case.op, name, case.ns)) for name in names)

    for name in ("good", "bad", "going"):
        case.submit(foreign(name, spec={"worker": {"restartPolicy": "Never" if name == "bad" else "OnFailure"}}))
    for name in ("good", "bad", "going"):
        case.wait_state("Running", name)
    case.finish("worker-0", name="good")
    case.finish("worker-1", 137, name="bad")
    case.finish("worker-1", 137, name="going")
    case.wait_state("Succeeded", "good")
    case.wait_state("Failed", "bad")
    case.wait_life("worker-1", 2, "going")
    case.wait_state("Running", "going")
    case.wait("three begun, one succeeded, one failed, one restart", lambda: counts() == (3, 1, 1, 1))
    # Looked at again and again.
    for number in range(5):
        for name in ("good", "bad", "going"):
            case.api.merge(case.path("trainingjobs", name), {"metadata": {"labels": {"touched": str(number)}}})
    case.quiet()
    case.equal((3, 1, 1, 1), counts())

    case.op.restart()
    case.wait("it to have looked", lambda: case.op.metrics().get(
        'controller_runtime_reconcile_total{controller="trainingjob",result="success"}', 0) >= 3)
    case.quiet()
    case.equal((0, 0, 0, 0), counts(), "what was before")
    case.finish("worker-0", name="going")
    case.wait_state("Succeeded", "going")
    case.wait("the one that ended now", lambda: counts() == (0, 1, 0, 0))


def scenario_66_metric_cardinality(case):
    """What grows with the number of jobs are gauges that go with the job; all else has a fixed number of series."""
    def scrape():
        text = case.op.fetch("/metrics")[1]
        return series(text), kinds(text)

    def of_jobs(found, names):
        return [(name, labels) for name, labels, _ in found
                if any(word in value for word in names for value in labels.values())]

    case.submit(foreign("first"))
    case.wait_state("Running", "first")
    case.finish("worker-1", 137, name="first")
    case.wait_life("worker-1", 2, "first")
    case.wait_state("Running", "first")
    case.quiet()
    before, _ = scrape()
    more = [f"another-{index}" for index in range(4)]
    for name in more:
        case.submit(foreign(name))
    for name in more:
        case.wait_state("Running", name)
    case.quiet()
    found, types = scrape()
    for name, labels in of_jobs(found, ["first", *more]):
        case.equal("gauge", types.get(name), f"{name} {labels} has a series for each job")
        case.true(not set(labels) & {"uid", "pod", "node"}, f"{name} {labels}")
    per_job = collections.Counter(labels["trainyard_job"] for _, labels in of_jobs(found, more))
    case.true(all(count <= 60 for count in per_job.values()), f"series of each job: {per_job}")

    def rest(samples):
        """Without those of single jobs, and without what is new of the apiserver's answers."""
        jobs_own = of_jobs(samples, ["first", *more])
        return collections.Counter(name for name, labels, _ in samples
                                   if (name, labels) not in jobs_own and not name.startswith("rest_client"))

    case.equal(rest(before), rest(found), "series beside those of jobs")
    for name in more:
        case.delete(name)
    for name in more:
        case.wait_gone(name=name)
    case.wait("their series to go", lambda: not of_jobs(scrape()[0], more))


def scenario_67_event_once(case):
    """One event for what happened once, whoever looks how often."""
    case.submit(foreign())
    case.wait_state("Running")
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    case.wait_state("Running")
    case.wait("the job to run again", lambda: len(case.events("JobRunning")) == 2)
    for number in range(3):
        case.api.merge(case.path("trainingjobs", "demo"), {"metadata": {"labels": {"touched": str(number)}}})
    case.op.restart()
    case.quiet()
    case.finish("worker-0")
    case.wait_state("Succeeded")
    case.wait("the last event", lambda: case.events("JobSucceeded"))
    case.op.restart()
    case.quiet()
    reasons = collections.Counter(event["reason"] for event in case.events())
    case.equal({"JobCreated": 1, "MembershipPublished": 2, "JobRunning": 2, "TaskLost": 1, "JobSucceeded": 1}, dict(reasons))
    for event in case.events():
        case.equal(1, event["count"], event["reason"])
        case.equal(case.job()["metadata"]["uid"], event["involvedObject"]["uid"])


IDLE_JOBS = 1000
RUNNING_JOBS = 10  # of them


def scenario_68_steady_state_zero_writes(case):
    """A thousand jobs at rest, some of which run: nothing is written in a minute, nor when they are looked at again."""
    case.operator("--unreachable-after", 5)

    def submit(index):
        case.submit(jobs.foreign(f"idle-{index}", workers=1, spec={"runPolicy": {"suspend": index >= RUNNING_JOBS}}))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for made in [pool.submit(submit, index) for index in range(IDLE_JOBS)]:
            made.result()
    case.wait("all of them to rest", lambda: time.sleep(2) or all(
        job.get("status", {}).get("state") in ("Running", "Suspended") for job in case.list("trainingjobs")), 600)

    def writes():
        return sum(value for name, labels, value in series(case.op.fetch("/metrics")[1])
                   if name == "rest_client_requests_total" and labels["method"] != "GET")

    def looks():
        return sum(value for name, _, value in series(case.op.fetch("/metrics")[1])
                   if name == "controller_runtime_reconcile_total")

    def all_told(name):
        """Each agent of a job may be found silent in a round of its own; the first one's reason is the job's."""
        told = case.condition("AgentsReachable", name)
        return (told.get("reason") == "ConnectionFailed"
                and told["message"].startswith("2 of 2 agents do not answer; ps-0"))

    # Agents that do not answer are told of once, and helped once, by an annotation of their pods.
    for index in range(RUNNING_JOBS):
        case.wait(f"both agents of idle-{index} to be told of", lambda name=f"idle-{index}": all_told(name), 300)
    case.wait("the pods to be annotated", lambda: all(
        "trainyard.dev/revision" in pod["metadata"].get("annotations", {}) for pod in case.list("pods")), 300)
    case.stays("the last writes to have come", lambda: True, 3)
    before, versions, looked = writes(), case.versions(), looks()
    # Each job is looked at every minute.
    case.wait("all jobs to be looked at", lambda: looks() >= looked + IDLE_JOBS, 300)
    written = {name for name, _ in versions.items() ^ case.versions().items()}
    case.equal([], sorted(written), "objects that were written")
    case.equal(before, writes(), "requests that write")


scenario_68_steady_state_zero_writes.seconds = 200
