"""What all scenarios of a run share: one apiserver, the definition of TrainingJob, one fake kubelet."""
import contextlib
import pathlib
import tempfile
import time

from harness.client import JOBS, Client
from harness.kubelet import Kubelet
from rig import testing

ROOT = pathlib.Path(__file__).resolve().parents[4]
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.trainyard.dev"
LIMIT = 300


class World:
    def __init__(self, cluster, folder, mark=None):
        self.cluster = cluster
        self.folder = pathlib.Path(folder)
        self.kubeconfig = cluster.kubeconfig
        self.api = Client(cluster.kubeconfig)
        self.kubelet = Kubelet(self.api, mark)

    def open(self):
        text = (ROOT / "deploy" / "crds.yaml").read_text(encoding="utf-8")
        self.api.ask("PATCH", f"{DEFINITION}?fieldManager=tests&force=true", text.encode(),
                     "application/apply-patch+yaml")
        end = time.monotonic() + LIMIT
        while self.api.request("GET", f"{JOBS}/trainingjobs")[0] != 200:
            if time.monotonic() > end:
                raise AssertionError(f"timed out after {LIMIT} s waiting for the definition to be served")
            time.sleep(0.05)
        self.kubelet.start()

    def remove_namespace(self, name):
        """Also what finalizers hold, since no operator is left there to release it."""
        self.kubelet.plan(name, "unscheduled")
        self.kubelet.kept.discard(name)
        with contextlib.suppress(AssertionError, OSError):
            for kind, base in (("pods", "/api/v1"), ("trainingjobs", JOBS)):
                for found in self.api.ask("GET", f"{base}/namespaces/{name}/{kind}")["items"]:
                    path = f"{base}/namespaces/{name}/{kind}/{found['metadata']['name']}"
                    if found["metadata"].get("finalizers"):
                        self.api.merge(path, {"metadata": {"finalizers": None}})
                    self.api.request("DELETE", path, {"gracePeriodSeconds": 0})
            self.api.ask("DELETE", f"/api/v1/namespaces/{name}")


@contextlib.contextmanager
def world():
    """Ends the process with the reason where there can be no apiserver."""
    with testing.cluster(control_plane=True) as cluster, tempfile.TemporaryDirectory() as folder:
        made = World(cluster, folder)
        try:
            made.open()
            yield made
        finally:
            made.kubelet.stop()
