"""One scenario's view of the cluster: a namespace of its own, an operator of its own, the fake kubelet."""
import json
import re
import time

from harness.client import JOBS, Client, Refused
from harness.processes import LIMIT, Operator, Proxy

POLL = 0.1
PODS_TOLD = 40
NOT_YET = (Refused, OSError)


class Case:
    """Made by the runner; everything in it is in namespace `ns` and goes when the scenario ends."""

    def __init__(self, world, ns, folder):
        self.world = world
        self.api: Client = world.api
        self.kubelet = world.kubelet
        self.ns = ns
        self.folder = folder
        self.to_close = []
        self._operator = None

    def open(self):
        self.make_namespace(self.ns)

    def make_namespace(self, name):
        """Returns when pods can be created there. The runner removes the case's own one; others are the
        scenario's."""
        self.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.wait("the namespace's service account",
                  lambda: self.api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"))

    # --- processes

    def operator(self, *flags, kubeconfig=None, start=True, scope=True):
        """Another operator process, started; the first one is also self.op. `scope`: only this namespace."""
        scoped = ["--namespace", self.ns] if scope else []
        made = Operator(self.folder / f"operator-{len(self.to_close)}", kubeconfig or self.world.kubeconfig,
                        [*scoped, *flags])
        self.to_close.append(made)
        self._operator = self._operator or made
        return made.start() if start else made

    @property
    def op(self):
        """The case's operator; started when first asked for."""
        return self._operator or self.operator()

    def proxy(self):
        made = Proxy(self.folder / f"proxy-{len(self.to_close)}", self.world.kubeconfig)
        self.to_close.insert(0, made)  # ends last
        return made

    # --- objects

    def path(self, kind, name="", ns=None):
        """Of a kind in the case's namespace: "pods", "trainingjobs", "services"..."""
        groups = {"trainingjobs": JOBS, "networkpolicies": "/apis/networking.k8s.io/v1",
                  "leases": "/apis/coordination.k8s.io/v1", "roles": "/apis/rbac.authorization.k8s.io/v1",
                  "rolebindings": "/apis/rbac.authorization.k8s.io/v1"}
        return f"{groups.get(kind, '/api/v1')}/namespaces/{ns or self.ns}/{kind}" + (f"/{name}" if name else "")

    def create(self, kind, body):
        return self.api.ask("POST", self.path(kind), body)

    def get(self, kind, name):
        """The object, or None."""
        return self.api.find(self.path(kind, name))

    def list(self, kind, selector=""):
        query = f"?labelSelector={selector}" if selector else ""
        return self.api.ask("GET", self.path(kind) + query)["items"]

    def submit(self, job):
        """Creates a job (a dict, or YAML text); what the apiserver made of it. Starts the operator first, if
        no scenario has made one."""
        self.op  # noqa: B018
        if isinstance(job, str):
            return self.api.ask("POST", self.path("trainingjobs"), job.encode(), "application/yaml")
        return self.create("trainingjobs", job)

    def refused(self, change, code=422):
        """What the apiserver says to `change`, a callable that it must refuse with `code`."""
        try:
            change()
        except Refused as refusal:
            self.equal(code, refusal.code, str(refusal))
            return refusal
        raise AssertionError("the apiserver accepted what it must refuse")

    def job(self, name="demo"):
        return self.get("trainingjobs", name)

    def status(self, name="demo"):
        job = self.job(name)
        return {} if job is None else job.get("status", {})

    def edit(self, patch, name="demo"):
        """A merge patch of the job's spec."""
        return self.api.merge(self.path("trainingjobs", name), {"spec": patch})

    def scale(self, workers, name="demo"):
        """As `kubectl scale` does."""
        return self.api.merge(self.path("trainingjobs", name) + "/scale", {"spec": {"replicas": workers}})

    def delete(self, name="demo", policy="Background", kind="trainingjobs"):
        return self.api.ask("DELETE", self.path(kind, name), {"propagationPolicy": policy})

    def pods(self, name="demo"):
        """{"worker-0": pod} of the job's tasks."""
        return {pod["metadata"]["name"].removeprefix(f"{name}-"): pod
                for pod in self.list("pods", f"trainyard.dev/job-name={name}")}

    def uids(self, name="demo"):
        return {task: pod["metadata"]["uid"] for task, pod in self.pods(name).items()}

    def lives(self, name="demo"):
        """{"worker-0": "1"}: which life of each task there is a pod of."""
        return {task: pod["metadata"]["labels"]["trainyard.dev/created"] for task, pod in self.pods(name).items()}

    def membership(self, name="demo"):
        """The published membership; None before there is one."""
        found = self.get("configmaps", f"{name}-membership")
        text = (found or {}).get("data", {}).get("membership.json")
        return json.loads(text) if text else None

    def members(self, name="demo"):
        """["ps-0", "worker-0"...] of the published membership, sorted."""
        return sorted(self.entries(name))

    def entries(self, name="demo"):
        """{"ps-0": its entry} of the published membership."""
        tasks = (self.membership(name) or {}).get("tasks", [])
        return {f"{t['id']['role'].removeprefix('ROLE_').lower()}-{t['id'].get('index', 0)}": t for t in tasks}

    def condition(self, kind, name="demo"):
        """{"status", "reason", "message"...}; {} where it never applied."""
        for condition in self.status(name).get("conditions", []):
            if condition["type"] == kind:
                return condition
        return {}

    def events(self, reason=None, name="demo"):
        return [e for e in self.list("events") if e["involvedObject"]["name"] == name
                and e["involvedObject"]["kind"] == "TrainingJob" and reason in (None, e["reason"])]

    # --- the fake kubelet, in this namespace

    def pod_plan(self, what):
        self.kubelet.plan(self.ns, what)

    def run(self, task, name="demo"):
        self.kubelet.run(self.ns, f"{name}-{task}")

    def finish(self, task, code=0, name="demo", **more):
        self.kubelet.finish(self.ns, f"{name}-{task}", code, **more)

    # --- waiting and judging

    def wait(self, what, condition, seconds=LIMIT):
        """The first true value of condition(); an answer that is none yet counts as not yet."""
        end = time.monotonic() + seconds
        last = ""
        while True:
            try:
                value = condition()
                if value:
                    return value
            except NOT_YET as error:
                last = f" ({error})"
            if time.monotonic() > end:
                raise AssertionError(f"timed out after {seconds:g} s waiting for {what}{last}")
            time.sleep(POLL)

    def wait_state(self, state, name="demo"):
        """Waits for status.state; another final one fails at once. The status."""

        def reached():
            status = self.status(name)
            now = status.get("state", "")
            if now in ("Failed", "Succeeded") and now != state:
                raise AssertionError(f"{name} is {now}, not {state}: {status.get('conditions')}")
            return status if now == state else None

        return self.wait(f"{name} to be {state}", reached)

    def wait_condition(self, kind, status="True", reason=None, name="demo"):
        def holds():
            found = self.condition(kind, name)
            fits = found.get("status") == status and reason in (None, found.get("reason"))
            return found if fits else None

        return self.wait(f"condition {kind} {status} {reason or ''}", holds)

    def wait_pods(self, tasks, name="demo"):
        """Waits until exactly these tasks ("worker-0"...) have pods that are not being deleted."""

        def there():
            pods = self.pods(name)
            alive = {task for task, pod in pods.items() if "deletionTimestamp" not in pod["metadata"]}
            return pods if alive == set(tasks) and len(pods) == len(alive) else None

        return self.wait(f"the pods {sorted(tasks)}", there)

    def wait_life(self, task, life, name="demo"):
        """Waits for the pod of that life of the task, not being deleted."""

        def there():
            pod = self.pods(name).get(task)
            fits = pod and pod["metadata"]["labels"]["trainyard.dev/created"] == str(life)
            return pod if fits and "deletionTimestamp" not in pod["metadata"] else None

        return self.wait(f"life {life} of {task}", there)

    def wait_members(self, tasks, name="demo"):
        """Waits until the published membership has exactly these tasks; its entries."""
        return self.wait(f"the membership of {sorted(tasks)}",
                         lambda: self.entries(name) if self.members(name) == sorted(tasks) else None)

    def wait_gone(self, kind="trainingjobs", name="demo"):
        self.wait(f"{kind} {name} to go", lambda: self.get(kind, name) is None)

    def stays(self, what, condition, seconds=2.0):
        """Something that must not happen has this long to happen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not condition():
                raise AssertionError(f"did not stay so: {what}")
            time.sleep(POLL)

    def quiet(self, seconds=2.0):
        """Waits until the job's objects have not changed for that long."""
        last, since = None, time.monotonic()
        end = since + LIMIT
        while time.monotonic() - since < seconds:
            seen = self.versions()
            if seen != last:
                last, since = seen, time.monotonic()
            if time.monotonic() > end:
                raise AssertionError(f"timed out after {LIMIT} s waiting for the job's objects to come to rest")
            time.sleep(POLL)
        return last

    def versions(self):
        """{kind/name: resourceVersion} of what the operator writes."""
        kinds = ("trainingjobs", "pods", "configmaps", "services", "secrets", "events")
        return {f"{kind}/{o['metadata']['name']}": o["metadata"]["resourceVersion"]
                for kind in kinds for o in self.list(kind)
                if o.get("involvedObject", {}).get("kind", "TrainingJob") == "TrainingJob"}

    def true(self, value, what):
        if not value:
            raise AssertionError(what)

    def equal(self, expected, seen, what=""):
        if expected != seen:
            if isinstance(expected, dict) and isinstance(seen, dict):  # what is alike says nothing
                differ = [key for key in {**expected, **seen} if expected.get(key) != seen.get(key)]
                expected, seen = ({key: side.get(key) for key in differ} for side in (expected, seen))
            raise AssertionError(f"{what or 'not equal'}:\n expected {expected!r}\n      saw {seen!r}")

    def contains(self, part, text):
        if part not in text:
            raise AssertionError(f"{part!r} is not in {text!r}")

    def matches(self, pattern, text):
        if not re.search(pattern, text):
            raise AssertionError(f"{pattern!r} does not match {text!r}")

    # --- the end

    def describe(self):
        """For a failure's message: what the programs said first, since a long message is cut."""
        lines = []
        for made in self.to_close:
            if isinstance(made, Operator) and made.log.exists():
                logged = made.log.read_text(errors="replace").splitlines()
                # Nobody answers for the agents.
                told = [line for line in logged if "D UNAVAILABLE: " not in line]
                lines += [f"--- {made.log.parent.name}", *told[-60:]]
        try:
            for job in self.list("trainingjobs"):
                lines.append(json.dumps({"job": job["metadata"]["name"], "status": job.get("status")}))
            for event in self.list("events"):
                if event["involvedObject"]["kind"] == "TrainingJob":
                    lines.append(f"event {event['involvedObject']['name']} {event['reason']}: {event['message']}")
            pods = self.list("pods")
            for pod in pods[:PODS_TOLD]:
                meta, status = pod["metadata"], pod.get("status", {})
                lines.append(f"pod {meta['name']} {meta.get('labels', {}).get('trainyard.dev/created')} "
                             f"{status.get('phase')} deleted={meta.get('deletionTimestamp')} "
                             f"finalizers={meta.get('finalizers')}")
            lines += [f"and {len(pods) - PODS_TOLD} more pods"] if len(pods) > PODS_TOLD else []
        except NOT_YET as error:
            lines.append(f"(cannot list: {error})")
        return "\n".join(lines)

    def close(self):
        """Ends the processes and removes the namespace, without waiting for it."""
        for made in reversed(self.to_close):
            made.close()
        self.world.remove_namespace(self.ns)
