"""Scenarios 47-50: suspension, other managers, generations."""
import time

from harness.jobs import foreign


def scenario_47_suspend_at_creation(case):
    case.submit(foreign(spec={"runPolicy": {"suspend": True}}))
    case.wait_condition("Suspended", "True", "JobSuspended")

    def nothing():
        return not any(case.list(kind, "trainyard.dev/job-name=demo")
                       for kind in ("pods", "services", "configmaps", "secrets"))

    case.stays("nothing is made", nothing)
    case.equal(None, case.status().get("startTime"))
    case.edit({"runPolicy": {"suspend": False}})
    status = case.wait_state("Running")
    case.equal((0, 0), (status["restarts"], status["disruptions"]))


def scenario_48_suspend_running(case):
    """All pods go, in their next life they get other numbers, and the start time is set anew."""
    case.submit(foreign())
    first = case.wait_state("Running")["startTime"]
    case.edit({"runPolicy": {"suspend": True}})
    status = case.wait_state("Suspended")
    case.equal(None, status.get("startTime"))
    case.wait("the pods to go", lambda: not case.pods())
    case.stays("nothing comes back", lambda: not case.pods())
    time.sleep(1)  # times have seconds
    case.edit({"runPolicy": {"suspend": False}})
    status = case.wait_state("Running")
    case.true(status["startTime"] > first, f"{status['startTime']} is no later than {first}")
    case.equal({"ps-0": "2", "worker-0": "2", "worker-1": "2"}, case.lives())
    case.equal((0, 0), (status["restarts"], status["disruptions"]))


def scenario_49_managed_by_other(case):
    case.submit(foreign("other", spec={"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}))
    case.submit(foreign())
    case.wait_state("Running")  # the operator has looked
    case.stays("the other one is left alone", lambda: not case.pods("other") and not case.status("other"), 3)
    case.equal([], case.events(name="other"))
    case.equal([], case.job("other")["metadata"].get("finalizers", []))
    case.delete("other")
    case.wait_gone(name="other")


def scenario_50_generation_observed(case):
    case.submit(foreign())
    case.wait_state("Running")
    case.equal(1, case.status()["observedGeneration"])
    for workers in (3, 2):
        case.scale(workers)
        generation = case.job()["metadata"]["generation"]
        case.wait("it to be observed", lambda: case.status()["observedGeneration"] == generation)
    case.equal(3, case.status()["observedGeneration"])
    # A change of the metadata alone is none of the spec.
    case.api.merge(case.path("trainingjobs", "demo"), {"metadata": {"labels": {"more": "x"}}})
    case.quiet()
    case.equal(3, case.status()["observedGeneration"])
    case.equal(3, case.job()["metadata"]["generation"])
