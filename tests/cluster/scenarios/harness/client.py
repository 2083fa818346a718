"""Requests to the apiserver over connections that stay open, one for each thread."""
import http.client
import json
import threading
import urllib.parse

from rig.api import Api

MERGE = "application/merge-patch+json"
JOBS = "/apis/trainyard.dev/v1alpha1"
# What cannot be done within this is a failure.
TIMEOUT = 120


class Refused(AssertionError):
    """The apiserver said no: .code, .reason, .message."""

    def __init__(self, what, code, answer):
        self.code = code
        self.answer = answer if isinstance(answer, dict) else {}
        self.reason = self.answer.get("reason", "")
        self.message = self.answer.get("message", str(answer))
        super().__init__(f"{what}: {code} {self.reason}: {self.message}")


class Client(Api):
    """As Api; a request that the apiserver refuses raises Refused."""

    def __init__(self, kubeconfig):
        super().__init__(kubeconfig)
        self.local = threading.local()

    def connection(self, fresh):
        if fresh or getattr(self.local, "connection", None) is None:
            self.local.connection = http.client.HTTPSConnection(*self.address, timeout=TIMEOUT, context=self.tls)
        return self.local.connection

    def request(self, method, path, body=None, content_type="application/json"):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        for attempt in (1, 2):  # the apiserver may have closed a connection that rested
            connection = self.connection(fresh=attempt > 1)
            try:
                connection.request(method, path, data, {"Content-Type": content_type})
                answer = connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, OSError):
                connection.close()
                if attempt > 1:
                    raise
        is_json = answer.getheader("Content-Type", "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else text.decode(errors="replace")

    def ask(self, method, path, body=None, content_type="application/json"):
        """The answer; raises Refused."""
        code, answer = self.request(method, path, body, content_type)
        if code >= 400:
            raise Refused(f"{method} {path}", code, answer)
        return answer

    def find(self, path):
        """The object, or None where there is none."""
        code, answer = self.request("GET", path)
        if code == 404:
            return None
        if code >= 400:
            raise Refused(f"GET {path}", code, answer)
        return answer

    def merge(self, path, patch):
        return self.ask("PATCH", path, patch, MERGE)

    def watch(self, path, version, **query):
        """Yields (type, object) until the apiserver ends the watch."""
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "300", **query}
        connection = http.client.HTTPSConnection(*self.address, timeout=400, context=self.tls)
        try:
            connection.request("GET", f"{path}?{urllib.parse.urlencode(query)}")
            answer = connection.getresponse()
            if answer.status != 200:
                raise Refused(f"watch {path}", answer.status, answer.read().decode(errors="replace"))
            while line := answer.readline():
                event = json.loads(line)
                yield event["type"], event["object"]
        finally:
            connection.close()
