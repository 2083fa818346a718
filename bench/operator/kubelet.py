"""Kubelets of nodes that are not there: every pod that has a node runs at once. Used where kwok is not built.

    python3 kubelet.py KUBECONFIG [PIPE...]     # inside the cluster's namespaces; until it is killed

Into a PIPE, the same one for all of a job, goes a line for each task of a job of ours before it runs, as
agents.cc reads them.
"""
import datetime
import http.client
import itertools
import json
import pathlib
import queue
import sys
import threading
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests" / "cluster"))

from rig.api import Api  # noqa: E402

WRITERS = 4
LEASE_SECONDS = 40
PENDING = "fieldSelector=status.phase%3DPending,spec.nodeName%21%3D"


def stamp(micro=False):
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def address(number):
    return f"10.244.{number // 250}.{number % 250 + 1}"


def agent_line(meta, ip):
    """Who a pod is to its job; nothing: no task of ours."""
    labels, owners = meta.get("labels", {}), meta.get("ownerReferences", [])
    if "trainyard.dev/created" not in labels or not owners:
        return ""
    told = (labels[f"trainyard.dev/{name}"] for name in ("role", "index", "created"))
    return " ".join(["pod", owners[0]["uid"], *told, ip]) + "\n"


def running(containers, ip):
    """The status of a pod whose containers have been started."""
    now = stamp()
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {"phase": "Running", "startTime": now, "hostIP": "192.168.77.1",
            "podIP": ip,
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
            "containerStatuses": [
                {"name": container["name"], "image": container["image"], "imageID": "", "ready": True,
                 "started": True, "restartCount": 0, "state": {"running": {"startedAt": now}}}
                for container in containers]}


class Kubelets:
    def __init__(self, api, *pipes):
        self.api = api
        self.pipes = [open(pipe, "w", buffering=1) for pipe in pipes]
        self.pods = queue.SimpleQueue()
        self.numbers = itertools.count()
        self.seen = set()  # uids: a pod that runs keeps its address

    def watch(self):
        """Pods that have a node and do not run yet."""
        while True:
            connection = http.client.HTTPSConnection(*self.api.address, context=self.api.tls)
            connection.request("GET", f"/api/v1/pods?watch=1&{PENDING}")
            answer = connection.getresponse()
            while answer.status == 200 and (line := answer.readline()):
                event = json.loads(line)
                if event["type"] not in ("ADDED", "MODIFIED"):
                    continue
                uid = event["object"]["metadata"]["uid"]
                if uid not in self.seen:
                    self.seen.add(uid)
                    self.pods.put(event["object"])

    def write(self):
        connection = http.client.HTTPSConnection(*self.api.address, context=self.api.tls)
        while True:
            pod = self.pods.get()
            meta = pod["metadata"]
            ip = address(next(self.numbers))
            if self.pipes and (line := agent_line(meta, ip)):
                self.pipes[zlib.crc32(line.split()[1].encode()) % len(self.pipes)].write(line)
            body = {"metadata": {"uid": meta["uid"]}, "status": running(pod["spec"]["containers"], ip)}
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
            try:
                self.patch(connection, path, body)
            except (OSError, http.client.HTTPException):  # idle for too long
                connection.close()
                self.patch(connection, path, body)

    @staticmethod
    def patch(connection, path, body):
        connection.request("PATCH", path, json.dumps(body), {"Content-Type": "application/merge-patch+json"})
        connection.getresponse().read()

    def renew(self):
        """Nodes that say nothing are given up by the controller manager."""
        while True:
            for node in self.api.get("/api/v1/nodes")[1]["items"]:
                name = node["metadata"]["name"]
                self.api.apply(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}", {
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                    "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS,
                             "renewTime": stamp(micro=True)}})
            time.sleep(LEASE_SECONDS / 3)

    def run(self):
        for _ in range(WRITERS):
            threading.Thread(target=self.write, daemon=True).start()
        threading.Thread(target=self.renew, daemon=True).start()
        self.watch()


def register(api, name):
    """A node that is ready for any number of pods."""
    room = {"cpu": "1000", "memory": "1Ti", "pods": "1000"}
    now = stamp()
    status, answer = api.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    if status != 201:
        raise RuntimeError(f"node {name}: {status} {answer}")
    api.request("PATCH", f"/api/v1/nodes/{name}/status", {
        "status": {"capacity": room, "allocatable": room, "conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now,
             "lastTransitionTime": now}]}}, "application/merge-patch+json")


if __name__ == "__main__":
    Kubelets(Api(sys.argv[1]), *sys.argv[2:]).run()
