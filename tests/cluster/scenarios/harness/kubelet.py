"""A scheduler and kubelet of one node that starts no program: it says what became of one.

Pods of jobs (label trainyard.dev/job-name) are bound to the node and run at once, unless the namespace has
another plan. Everything else happens when a test says so. A deleted pod ends as on a real node: its
program ends, then the object goes, unless a finalizer holds it.
"""
import contextlib
import datetime
import itertools
import os
import queue
import threading
import traceback

LABEL = "trainyard.dev/job-name"
TASK_CONTAINER = "trainyard.dev/task-container"
PODS = "/api/v1/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
WORKERS = 4
RENEW_SECONDS = 10

# What becomes of a pod that nobody has said anything of.
RUN = "run"
HOLD = "hold"  # bound, not started
UNSCHEDULED = "unscheduled"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def lease_time():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def task_of(pod):
    """The name of the container that is the task's."""
    return pod["metadata"].get("annotations", {}).get(TASK_CONTAINER, pod["spec"]["containers"][0]["name"])


def _container(pod, container, state, ready):
    return {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
            "ready": ready, "started": ready, "state": state}


def _conditions(ready):
    word = "True" if ready else "False"
    return [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now()},
            {"type": "Initialized", "status": "True", "lastTransitionTime": now()},
            {"type": "Ready", "status": word, "lastTransitionTime": now()},
            {"type": "ContainersReady", "status": word, "lastTransitionTime": now()}]


class Kubelet:
    """Lifecycle: start(), stop(). Commands may come from any thread; they return once the apiserver knows."""

    def __init__(self, client, mark=None):
        """`mark`: what the names of its namespaces hold; else this process's number."""
        self.client, self.mark = client, mark or f"-{os.getpid()}"
        self.node = f"scenario-node-{os.getpid()}"
        self.plans = {}  # namespace: what to do with a new pod, or a function of the pod that says so
        self.room = set()  # uids of pods that run although their namespace's plan is UNSCHEDULED
        self.kept = set()  # namespaces whose deleted pods stay: their node is lost
        self.exit_on_delete = {}  # namespace: exit code of a program that is told to end
        self.addresses = itertools.count(1)
        self.given = {}  # pod's uid: its address
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.queues = [queue.Queue() for _ in range(WORKERS)]
        self.failures = []  # what the kubelet could not do, for the end of the run
        self.threads = []

    def start(self):
        self._make_node()
        loops = [self._watch, self._renew] + [lambda q=q: self._work(q) for q in self.queues]
        for loop in loops:
            thread = threading.Thread(target=loop, daemon=True)
            thread.start()
            self.threads.append(thread)

    def stop(self):
        self.stopping.set()
        for work in self.queues:
            work.put(None)
        for path in (f"/api/v1/nodes/{self.node}", f"{LEASES}/{self.node}"):
            with contextlib.suppress(Exception):
                self.client.request("DELETE", path)

    # --- commands of a test

    def plan(self, namespace, what):
        """RUN, HOLD or UNSCHEDULED for pods of the namespace that are new, or a function of the pod."""
        self.plans[namespace] = what

    def run(self, namespace, name):
        """The pod runs and is ready."""
        self._set_running(self._get(namespace, name), True)

    def unready(self, namespace, name):
        self._set_running(self._get(namespace, name), False)

    def finish(self, namespace, name, code=0, reason=None, message="", disrupted=False):
        """The task's program ends with `code` (128 + n: by signal n), and with it the pod."""
        pod = self._get(namespace, name)
        status = self._ended(pod, code, reason or ("Completed" if code == 0 else "Error"), message)
        if disrupted:
            status["conditions"].append({"type": "DisruptionTarget", "status": "True",
                                         "reason": "EvictionByEvictionAPI", "lastTransitionTime": now()})
        self._write(pod, status)

    def oom(self, namespace, name):
        self.finish(namespace, name, 137, "OOMKilled")

    def evict(self, namespace, name, reason="Evicted", message="the node was low on memory"):
        """The node ends the pod, as for want of memory."""
        pod = self._get(namespace, name)
        status = self._ended(pod, 137, "Error", "")
        self._write(pod, {**status, "reason": reason, "message": message})

    def waiting(self, namespace, name, reason, message=""):
        """The task's container does not start: ImagePullBackOff, CreateContainerConfigError..."""
        pod = self._get(namespace, name)
        states = [_container(pod, c, {"waiting": {"reason": reason, "message": message}}, False)
                  for c in pod["spec"]["containers"]]
        self._write(pod, {"phase": "Pending", "conditions": _conditions(False), "containerStatuses": states})

    def unschedulable(self, namespace, name, message="0/1 nodes are available"):
        pod = self._get(namespace, name)
        self._write(pod, {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                          "message": message, "lastTransitionTime": now()}]})

    def schedule(self, namespace, name):
        """There is room for a pod that plan() has left unscheduled: it runs."""
        pod = self._get(namespace, name)
        self.room.add(pod["metadata"]["uid"])
        self._hand_out(pod)  # bound where its events are handled, so that nothing else binds it meanwhile

    def unknown(self, namespace, name):
        """The node is not heard of: the pod's phase is Unknown, its containers are what they last were."""
        pod = self._get(namespace, name)
        self._write(pod, {"phase": "Unknown", "reason": "NodeLost", "conditions": _conditions(False)})

    def keep_deleted(self, namespace):
        """The node is lost: what is deleted from now on stays, until let_go() or forget()."""
        self.kept.add(namespace)

    def let_go(self, namespace):
        """The node is back: what was deleted meanwhile ends."""
        self.kept.discard(namespace)
        for pod in self.client.ask("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={LABEL}")["items"]:
            self._hand_out(pod)

    def forget(self, namespace, name):
        """What somebody who knows the node to be gone does: deletes the pod without grace."""
        self._remove(self._get(namespace, name))

    def set_status(self, namespace, name, status):
        """For what has no command: a merge patch of the pod's status."""
        self._write(self._get(namespace, name), status)

    # --- the node

    def _make_node(self):
        self.client.ask("POST", "/api/v1/nodes", {"metadata": {"name": self.node}})
        self.client.merge(f"/api/v1/nodes/{self.node}/status", {"status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
             "lastHeartbeatTime": now(), "lastTransitionTime": now()}]}})
        # kube-controller-manager never takes note of a lease that it has once seen without a time.
        self.client.ask("POST", LEASES, {"metadata": {"name": self.node}, "spec": {
            "holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": lease_time()}})

    def _renew(self):
        while not self.stopping.wait(RENEW_SECONDS):
            with contextlib.suppress(Exception):  # the next one may come through
                self.client.merge(f"{LEASES}/{self.node}", {"spec": {"renewTime": lease_time()}})

    # --- pods

    def _watch(self):
        while not self.stopping.is_set():
            try:
                listed = self.client.ask("GET", f"{PODS}?labelSelector={LABEL}")
                for pod in listed["items"]:
                    self._hand_out(pod)
                version = listed["metadata"]["resourceVersion"]
                for kind, pod in self.client.watch(PODS, version, labelSelector=LABEL):
                    if self.stopping.is_set():
                        return
                    if kind == "ERROR":
                        break
                    if kind != "DELETED":
                        self._hand_out(pod)
            except Exception:  # the apiserver may be away for a while
                self.stopping.wait(0.2)

    def _hand_out(self, pod):
        # Other tests and other runs may use the same apiserver.
        if self.mark not in pod["metadata"]["namespace"]:
            return
        self.queues[hash(pod["metadata"]["uid"]) % WORKERS].put(pod)

    def _work(self, work):
        while (pod := work.get()) is not None and not self.stopping.is_set():
            try:
                self._handle(pod)
            except Exception as error:
                gone = getattr(error, "code", 0) in (404, 409, 422)
                if not gone and not self.stopping.is_set():
                    self.failures.append(traceback.format_exc())

    def _handle(self, pod):
        meta, status = pod["metadata"], pod.get("status", {})
        if "deletionTimestamp" in meta:
            self._end(pod)
            return
        what = self.plans.get(meta["namespace"], RUN)
        what = what(pod) if callable(what) else what
        if what == UNSCHEDULED:
            if meta["uid"] not in self.room:
                return
            what = RUN
        if not pod["spec"].get("nodeName"):
            self._bind(pod)
        elif what == RUN and status.get("phase") == "Pending" and not status.get("containerStatuses"):
            self._set_running(pod, True)

    def _bind(self, pod):
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
        self.client.ask("POST", path, {"metadata": {"name": meta["name"], "uid": meta["uid"]},
                                       "target": {"kind": "Node", "name": self.node}})

    def _end(self, pod):
        meta = pod["metadata"]
        if not pod["spec"].get("nodeName") or meta["namespace"] in self.kept:
            return
        if meta.get("deletionGracePeriodSeconds", 0) == 0 and meta.get("finalizers"):
            return  # only they hold it; without them an interrupted request has left it behind
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if not ended and pod.get("status", {}).get("containerStatuses"):
            code = self.exit_on_delete.get(meta["namespace"], 143)
            self._write(pod, self._ended(pod, code, "Completed" if code == 0 else "Error", ""))
        self._remove(pod)

    def _remove(self, pod):
        meta = pod["metadata"]
        code, answer = self.client.request(
            "DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}",
            {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
        if code >= 400 and code not in (404, 409):
            raise AssertionError(f"delete pod {meta['name']}: {answer}")

    def _get(self, namespace, name):
        return self.client.ask("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def _write(self, pod, status):
        meta = pod["metadata"]
        self.client.merge(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status",
                          {"metadata": {"uid": meta["uid"]}, "status": status})

    def _address(self, pod):
        with self.lock:
            uid = pod["metadata"]["uid"]
            if uid not in self.given:
                number = next(self.addresses)
                # Of this machine, where nobody listens: who connects is refused at once.
                self.given[uid] = f"127.{100 + number // 60000}.{number // 250 % 240}.{number % 250 + 1}"
            return self.given[uid]

    def _set_running(self, pod, ready):
        address = self._address(pod)
        running = {"running": {"startedAt": now()}}
        inits = [_container(pod, c, {"terminated": {"exitCode": 0, "reason": "Completed"}}, True)
                 for c in pod["spec"].get("initContainers", [])]
        self._write(pod, {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": now(),
            "conditions": _conditions(ready), "initContainerStatuses": inits,
            "containerStatuses": [_container(pod, c, running, ready) for c in pod["spec"]["containers"]]})

    def _ended(self, pod, code, reason, message):
        """The status of a pod whose task ended; other containers end with success after it."""
        states = []
        for container in pod["spec"]["containers"]:
            own = container["name"] == task_of(pod)
            end = {"exitCode": code if own else 0, "reason": reason if own else "Completed",
                   "message": message if own else "", "finishedAt": now()}
            states.append(_container(pod, container, {"terminated": end}, False))
        return {"phase": "Succeeded" if code == 0 else "Failed", "conditions": _conditions(False),
                "containerStatuses": states}
