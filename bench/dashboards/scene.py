"""What goes on while the pictures of dashboards are taken: jobs of this machine train, lose tasks, grow; an operator on a
real apiserver looks after jobs of the same names, whose pods a fake kubelet says to run, and others come, fail and go."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import jobs
import programs
import queries
from harness.client import JOBS
from harness.kubelet import RUN, UNSCHEDULED
from harness.world import World

SPACE = "default"  # where local jobs say that they are
TASKS = 11  # of the local jobs at the start
MOST = 25  # steps a second
PLACE = f"{JOBS}/namespaces/{SPACE}/trainingjobs"


class Local:
    """The jobs that train."""

    def __init__(self, folder, start, steps):
        self.slow = folder / "slow"
        self.fashion = start(self.made(folder, jobs.fashion(steps), jobs.pace(60, 140, "worker-1", self.slow),
                                       "--volume", f"data={jobs.FASHION}"))
        self.ring = start(self.made(folder, jobs.ring(), jobs.pace(80, 130, "worker-2", self.slow)))
        self.clicks = start(self.made(folder, jobs.clicks(), jobs.pace(60, 60, "worker-1", self.slow)))
        self.all = (self.fashion, self.ring, self.clicks)

    @staticmethod
    def made(folder, job, failpoints, *flags):
        return programs.LocalJob(folder, job["metadata"]["name"], jobs.text(job), flags,
                                 env={**os.environ, "TRAINYARD_FAILPOINTS": failpoints})

    def alive(self):
        return all(one.alive() for one in self.all)

    @staticmethod
    def kill(job, *tasks):
        """The programs of tasks; their agents start others."""
        for task in tasks:
            agent = json.loads((job.directory / "tasks" / task / "agent.json").read_text())
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent["childPid"], signal.SIGKILL)

    @staticmethod
    def scale(job, *flags):
        subprocess.run([queries.BIN / "trainyard", "scale", job.directory, *flags, "--no-wait"], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


class Cluster:
    """The jobs that the operator sees."""

    def __init__(self, cluster, folder):
        self.world = World(cluster, folder, SPACE)
        self.api, self.kubelet = self.world.api, self.world.kubelet
        self.passing = 0
        self.no_room = True
        self.kubelet.plan(SPACE, self.plan)

    def plan(self, pod):
        waits = self.no_room and pod["metadata"]["name"].startswith("waiting-")
        return UNSCHEDULED if waits else RUN

    def apply(self, job):
        status, answer = self.world.cluster.api.apply(f"{PLACE}/{job['metadata']['name']}", job)
        if status not in (200, 201):
            raise RuntimeError(f"{job['metadata']['name']}: {status} {answer}")

    def open(self, steps):
        self.world.open()
        programs.until("the namespace has its account", lambda: self.api.request(
            "GET", f"/api/v1/namespaces/{SPACE}/serviceaccounts/default")[0] == 200)
        for job in (jobs.fashion(steps), jobs.ring(), jobs.clicks(), jobs.small("nightly"), jobs.small("waiting"),
                    jobs.small("late", runPolicy={"activeDeadlineSeconds": 1})):
            self.apply(job)

    def pods(self, job):
        listed = self.api.ask("GET", f"/api/v1/namespaces/{SPACE}/pods?labelSelector=trainyard.dev/job-name={job}")
        return {one["metadata"]["name"]: one.get("status", {}).get("phase") for one in listed["items"]}

    def finish(self, job, only="", code=0):
        """Programs of a job's tasks that run end."""
        for name, phase in self.pods(job).items():
            if only in name and phase == "Running":
                self.kubelet.finish(SPACE, name, code)

    def evict(self, pod):
        self.kubelet.evict(SPACE, pod)

    def make_room(self):
        self.no_room = False
        for name, phase in self.pods("waiting").items():
            if phase == "Pending":
                self.kubelet.schedule(SPACE, name)

    def come_and_go(self):
        """A job comes, the one before it ends well, and the one before that goes."""
        self.passing += 1
        self.apply(jobs.small(f"sweep-{self.passing}"))
        if self.passing > 1:
            self.finish(f"sweep-{self.passing - 1}")
        if self.passing > 2:
            self.api.request("DELETE", f"{PLACE}/sweep-{self.passing - 2}")

    def progress(self, prometheus):
        """The operator asks the agents of pods, of which there are none here: the steps of the local jobs, from Prometheus."""
        for labels, step in prometheus.query("max by (trainyard_job) (trainyard_global_step)"):
            self.api.request("PATCH", f"{PLACE}/{labels['trainyard_job']}/status",
                             {"status": {"progress": {"step": int(step)}}}, "application/merge-patch+json")

    def close(self):
        self.kubelet.stop()


def grow(local, cluster, size="3"):
    """More workers and servers, here and there."""
    local.scale(local.fashion, "--workers", size, "--ps", size)
    wanted = {"replicas": int(size)}
    cluster.api.merge(f"{PLACE}/fashion", {"spec": {"worker": wanted, "ps": wanted}})


def events(local, cluster):
    """[(part of the time that has passed, what happens then)]."""
    return [
        (0.12, lambda: local.slow.touch()),
        (0.27, lambda: local.slow.unlink()),
        (0.30, lambda: local.kill(local.fashion, "worker-1")),
        (0.33, lambda: cluster.finish("ring", "worker-1", code=1)),
        (0.40, cluster.make_room),
        (0.45, lambda: cluster.finish("nightly")),
        (0.55, lambda: grow(local, cluster)),
        (0.60, lambda: cluster.evict("clicks-worker-1")),
        (0.70, lambda: local.kill(local.ring, "worker-1")),
        (0.80, lambda: local.kill(local.fashion, "ps-0", "ps-1", "ps-2")),
    ]


def play(local, cluster, prometheus, length, every=20):
    """Lets it all happen within `length` seconds."""
    left, began, turn = events(local, cluster), time.monotonic(), 0
    while (passed := time.monotonic() - began) < length:
        local.alive()
        while left and passed >= left[0][0] * length:
            left.pop(0)[1]()
        if passed >= turn * every / 2:
            cluster.progress(prometheus)
            if turn % 2 == 0:
                cluster.come_and_go()
            turn += 1
        time.sleep(0.2)


@contextlib.contextmanager
def stage(rig, folder, length):
    """(local jobs, the cluster's jobs, Prometheus, which scrapes all of them), once all tasks are there. No job ends within
    `length` seconds."""
    steps = int(length * MOST)
    folder = pathlib.Path(folder)
    with contextlib.ExitStack() as stack:
        cluster = Cluster(rig, folder)
        stack.callback(cluster.close)
        local = Local(folder, stack.enter_context, steps)
        # There are no agents in the pods: nobody is to be told that they do not answer.
        operator = stack.enter_context(programs.Operator(folder / "operator", rig, SPACE, "--unreachable-after", "3600"))
        cluster.open(steps)
        programs.until("the operator serves", operator.address)
        operator.publish()
        prometheus = stack.enter_context(programs.Prometheus(folder / "prometheus", {
            "trainyard-operator": [operator.targets],
            "trainyard-tasks": [one.directory / "prometheus.json" for one in local.all]}))
        programs.until("Prometheus is ready", prometheus.ready)
        programs.until(lambda: f"all tasks train: {prometheus.query('trainyard_task_ready')}", lambda: local.alive() and
                       prometheus.sum("trainyard_task_ready") == TASKS and
                       prometheus.sum("leader_election_master_status") == 1)
        yield local, cluster, prometheus
