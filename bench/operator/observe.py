"""What is seen at the apiserver: when objects come and what their state is, how many writes it answered."""
import contextlib
import http.client
import json
import re
import socket
import threading
import time

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
# What a cluster at rest writes by itself.
HEARTBEATS = ("leases", "nodes")


class Watch(threading.Thread):
    """When objects of one kind appeared, and when each was first in a state. By the printed columns, which
    are a tenth of the objects."""

    def __init__(self, api, path, column, state):
        super().__init__(daemon=True)
        self.api, self.path, self.column, self.state = api, path, column, state
        self.created, self.reached = {}, {}
        self.closed = False
        self.before = set()  # what was there already does not count
        self.begin_when_served()
        self.before = set(self.created)
        self.created, self.reached = {}, {}
        self.start()

    def begin_when_served(self, seconds=30):
        """A kind that has just been defined is refused for a moment still."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self.begin()
            except (KeyError, http.client.HTTPException):
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def begin(self):
        """Lists, then watches from there."""
        connection = http.client.HTTPSConnection(*self.api.address, context=self.api.tls, timeout=20)
        connection.request("GET", f"{self.path}?includeObject=None", headers={"Accept": TABLE})
        listed = json.loads(connection.getresponse().read())
        connection.close()
        names = [column["name"] for column in listed["columnDefinitions"]]
        self.name_at, self.state_at = names.index("Name"), names.index(self.column)
        self.take({"object": listed}, time.monotonic())
        version = listed["metadata"]["resourceVersion"]
        self.connection = http.client.HTTPSConnection(*self.api.address, context=self.api.tls)
        self.connection.request("GET", f"{self.path}?watch=1&includeObject=None&resourceVersion={version}",
                                headers={"Accept": TABLE})
        self.answer = self.connection.getresponse()

    def run(self):
        while not self.closed:
            with contextlib.suppress(OSError, ValueError, AttributeError, KeyError, http.client.HTTPException):
                while self.answer.status == 200 and (line := self.answer.readline()):
                    self.take(json.loads(line), time.monotonic())
            if not self.closed:  # the server has ended it
                time.sleep(0.1)
                with contextlib.suppress(OSError, KeyError, http.client.HTTPException):
                    self.begin()

    def take(self, event, now):
        for row in event["object"].get("rows", []):
            name = row["cells"][self.name_at]
            if name in self.before:
                continue
            self.created.setdefault(name, now)
            if row["cells"][self.state_at] == self.state:
                self.reached.setdefault(name, now)

    def close(self):
        self.closed = True
        with contextlib.suppress(OSError, AttributeError):
            self.connection.sock.shutdown(socket.SHUT_RDWR)


def parse_metrics(text):
    """{(name, ((label, value), ...)): number} of a Prometheus page."""
    result = {}
    for line in text.splitlines():
        match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", line)
        if match:
            labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")))
            result[match[1], labels] = float(match[3])
    return result


def writes(api):
    """{"verb resource": count} of what the apiserver has answered well."""
    return writes_told(api.get("/metrics")[1])


def refused(api):
    """The same of attempts that changed nothing: what is there already (409), what may not be (403)."""
    return writes_told(api.get("/metrics")[1], answered_well=False)


def writes_told(page, answered_well=True):
    """writes() by a page of the apiserver's metrics; or refused()."""
    result = {}
    for (name, labels), value in parse_metrics(page).items():
        found = dict(labels)
        if name != "apiserver_request_total" or found["verb"] not in WRITES:
            continue
        if found["code"].startswith("2") != answered_well:
            continue
        if found["resource"] in HEARTBEATS or found["resource"].endswith("reviews"):
            continue
        sub = f"/{found['subresource']}" if found["subresource"] else ""
        key = f"{found['verb']} {found['resource']}{sub}"
        result[key] = result.get(key, 0) + int(value)
    return result


def difference(before, after):
    return {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}


def histogram(page, name, *wanted):
    """{bound: cumulative count} of one histogram, summed over all labels but those `wanted`, each (key, value)."""
    result = {}
    for (found, labels), value in parse_metrics(page).items():
        if found == f"{name}_bucket" and set(wanted) <= set(labels):
            bound = float(dict(labels)["le"].replace("+Inf", "inf"))
            result[bound] = result.get(bound, 0) + value
    return result


def quantile(buckets, share):
    """By linear interpolation inside the bucket, as Prometheus does it; None of an empty histogram."""
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] == 0:
        return None
    wanted = share * buckets[bounds[-1]]
    low, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (wanted - below) / max(buckets[bound] - below, 1e-9)
        low, below = bound, buckets[bound]
    return low
