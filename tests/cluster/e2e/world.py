"""What the tests of whole jobs share: a cluster with the chart and the images of this build."""
import contextlib
import fcntl
import json
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "python")]

from rig import build, inside, shell_image, testing  # noqa: E402
import images  # noqa: E402
import oci  # noqa: E402
import side_by_side  # noqa: E402, F401

VERSION = "0.1.0"
REGISTRY = "registry.test/trainyard"
SYSTEM = "trainyard-system"  # namespace of the operator
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
# Against hangs; a machine with other work takes twenty times the usual.
LIMIT = 1800
METRICS_PORT = 2231
WORTH_TELLING = 3


class World:
    """A cluster in which the chart is installed."""

    def __init__(self, cluster):
        self.cluster = cluster

    # --- objects

    def apply(self, *manifests, namespace="default"):
        text = "\n---\n".join(m if isinstance(m, str) else json.dumps(m) for m in manifests)
        return self.cluster.kubectl("apply", "-n", namespace, "-f", "-", input=text)

    def read(self, kind, namespace, rest):
        """What the apiserver answers, without a kubectl for each look."""
        group = {"trainingjobs": "apis/trainyard.dev/v1alpha1",
                 "endpointslices": "apis/discovery.k8s.io/v1"}.get(kind, "api/v1")
        where = f"namespaces/{namespace}/" if namespace else ""
        try:
            status, answer = self.cluster.api.get(f"/{group}/{where}{kind}{rest}")
        except OSError as error:  # as kubectl would end
            raise AssertionError(f"{kind}{rest}: {error}") from error
        if status != 200:
            raise AssertionError(f"{kind}{rest}: {status} {answer}")
        return answer

    def get(self, kind, name, namespace):
        return self.read(kind, namespace, f"/{name}")

    def find(self, kind, namespace=None, selector=""):
        """Objects of a namespace, else of all."""
        return self.read(kind, namespace, f"?labelSelector={urllib.parse.quote(selector)}")["items"]

    def namespace(self, name, labels=None):
        """Makes it; one of that name that an earlier test has left goes first."""
        self.wait(f"a former namespace {name} to be gone", lambda: not any(
            one["metadata"]["name"] == name and "deletionTimestamp" in one["metadata"] for one in self.find("namespaces")))
        self.apply({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": name, "labels": labels or RESTRICTED}})

    def define(self, path, name):
        """Makes the definitions of a file or folder; waits for that of `name`. (`kubectl wait` fails where a definition has
        no conditions yet.)"""
        self.cluster.kubectl("apply", "--server-side", "-f", path)

        def established():
            _, found = self.cluster.api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
            conditions = found.get("status", {}).get("conditions") or []
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        self.wait(f"the definition of {name}", established)

    def volume(self, namespace, claim, path=None, read_only=False):
        """A claim bound to a folder of the node: `path`, or a new one that everybody may write. A pod whose
        claim is not bound when the scheduler looks at it may wait for minutes until it looks again."""
        name = f"{namespace}-{claim}-{secrets.token_hex(4)}"
        if path is None:
            path = inside.HOME / "volumes" / name
            self.cluster.inside("mkdir", "-p", "-m", "0777", path, check=True)
        mode = "ReadOnlyMany" if read_only else "ReadWriteMany"
        common = {"accessModes": [mode], "storageClassName": ""}
        self.apply(
            {"apiVersion": "v1", "kind": "PersistentVolume",
             "metadata": {"name": name, "labels": {"made-for": namespace}},
             "spec": {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(path)}}},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim},
             "spec": {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}},
            namespace=namespace)
        self.wait(f"the claim {claim} to be bound", lambda: self.get(
            "persistentvolumeclaims", claim, namespace).get("status", {}).get("phase") == "Bound")
        return pathlib.Path(path)

    # --- jobs

    def job(self, name, namespace):
        return self.get("trainingjobs", name, namespace)

    def status(self, name, namespace):
        return self.job(name, namespace).get("status", {})

    def pods(self, name, namespace):
        """{pod's name: pod} of a job's tasks."""
        return {p["metadata"]["name"]: p
                for p in self.find("pods", namespace, f"trainyard.dev/job-name={name}")}

    def global_step(self, name, namespace):
        """What worker-0 says; the job's status is written every ten seconds only. 0 while it does not answer."""
        pod = self.pods(name, namespace).get(f"{name}-worker-0")
        address = pod and pod["status"].get("podIP")
        page = self.cluster.fetch(f"http://{address}:{METRICS_PORT}/metrics") if address else ""
        return max((int(float(line.split()[-1])) for line in page.splitlines()
                    if line.startswith("trainyard_global_step{")), default=0)

    def wait_steps(self, name, namespace, more):
        """Waits until `more` steps have been made since now."""
        before = self.wait(f"the step of {name}", lambda: self.global_step(name, namespace))
        self.wait(f"{name} beyond step {before + more}", lambda: self.global_step(name, namespace) >= before + more)

    def evict(self, pod, namespace):
        """As a node that is drained does it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        self.cluster.kubectl("create", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", "-f", "-",
                             input=json.dumps(body))

    def wait(self, what, condition, seconds=LIMIT):
        """The first true value of condition(); what kubectl cannot do while the apiserver is away
        counts as not yet. Raises AssertionError."""
        began = time.monotonic()
        last = ""
        while time.monotonic() < began + seconds:
            try:
                value = condition()
                if value:
                    if (took := time.monotonic() - began) > WORTH_TELLING:
                        print(f"waited {took:.1f} s for {what}", flush=True)
                    return value
            except AssertionError as error:
                last = f": {error}"
            time.sleep(0.2)
        raise AssertionError(f"timed out after {seconds:g} s waiting for {what}{last}\n{self.describe()}")

    def wait_state(self, name, namespace, state, seconds=LIMIT):
        """Waits for a terminal state; another terminal one fails at once."""

        def reached():
            now = self.status(name, namespace).get("state", "")
            if now in ("Failed", "Succeeded") and now != state:
                raise SystemExit(f"{namespace}/{name} is {now}\n{self.describe(namespace)}")
            return now == state

        try:
            self.wait(f"{namespace}/{name} to be {state}", reached, seconds)
        except SystemExit as error:
            raise AssertionError(str(error)) from None
        return self.status(name, namespace)

    def describe(self, namespace=None):
        """For a failure's message: what there is and what the operator says."""
        where = ["-n", namespace] if namespace else ["-A"]
        text = ""
        for arguments in (["get", "trainingjobs,pods", *where], ["get", "events", *where],
                          ["logs", "-n", SYSTEM, "-l", "app.kubernetes.io/name=trainyard", "--tail=40"]):
            with contextlib.suppress(AssertionError):
                text += self.cluster.kubectl(*arguments)
        return text[-12000:]

    def operator_pods(self):
        return self.find("pods", SYSTEM, "app.kubernetes.io/component=operator")

    # --- the chart

    def helm(self, *arguments):
        done = subprocess.run([build.find("helm"), "--kubeconfig", self.cluster.kubeconfig, *map(str, arguments)],
                              capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != 0:
            raise AssertionError(f"helm {' '.join(map(str, arguments))}: {done.stderr}\n{self.describe(SYSTEM)}")
        return done.stdout

    def install(self, *settings):
        self.namespace(SYSTEM)
        sets = [word for setting in settings for word in ("--set", setting)]
        self.helm("upgrade", "--install", "trainyard", ROOT / "helm" / "trainyard", "-n", SYSTEM, "--wait",
                  "--timeout", f"{LIMIT}s", "--set", f"registry={REGISTRY}", *sets)


def build_images():
    """The archives of this build's images, made anew where a program is newer: by one test, the others wait for them."""
    programs = pathlib.Path(os.environ["TRAINYARD_BIN"])
    folder = programs.parent / "test-images"
    folder.mkdir(exist_ok=True)
    newest = max((programs / name).stat().st_mtime
                 for name in ("trainyard-operator", "trainyard-agent", "trainyard-runtime"))
    archives = [folder / f"{name}.tar" for name in images.RELEASE]
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(archive.exists() and archive.stat().st_mtime > newest for archive in archives):
            subprocess.run([sys.executable, "-B", ROOT / "deploy/image/images.py", "--bin", programs, "--out", folder,
                            "--version", VERSION, "--registry", REGISTRY], check=True, stdout=sys.stderr)
    return archives


def image(name, version=VERSION):
    return f"{REGISTRY}/trainyard-{name}:{version}"


def static_image(folder, name, program):
    """An image that holds one program, in /bin, and nothing else."""
    program = pathlib.Path(program)
    archive = pathlib.Path(folder) / f"{program.name}.tar"
    oci.write(archive, name, [[oci.file_entry(f"/bin/{program.name}", program)]],
              {"Entrypoint": [f"/bin/{program.name}"], "Env": ["PATH=/bin"], "User": "65532:65532"})
    return archive


MUSL_LOADER = "/lib/ld-musl-x86_64.so.1"
# How plain_task.c is linked, and what its image holds beside it: no shell, and no library but its own.
PLAIN = {"musl": (["musl-gcc"], lambda program: [oci.file_entry(MUSL_LOADER, pathlib.Path(MUSL_LOADER).resolve())]),
         "musl-static": (["musl-gcc", "-static"], lambda program: []),
         "distroless": (["cc"], lambda program: images.linked([program]))}


def plain_image(folder, kind):
    """(name of the image, its archive) of plain_task.c, linked as PLAIN says."""
    compiler, libraries = PLAIN[kind]
    if shutil.which(compiler[0]) is None:
        raise AssertionError("packages are missing: musl-tools (deploy/install_packages.sh cluster)")
    name, program = f"registry.test/{kind}:1", pathlib.Path(folder) / f"plain-{kind}"
    subprocess.run([*compiler, "-O1", "-o", program, pathlib.Path(__file__).with_name("plain_task.c")], check=True)
    archive = program.with_suffix(".tar")
    oci.write(archive, name, [[oci.file_entry("/bin/plain_task", program), *libraries(program)]],
              {"Entrypoint": ["/bin/plain_task"], "User": "65532:65532"})
    return name, archive


@contextlib.contextmanager
def world(space, *settings, more_images=lambda folder: [], nodes=1):
    """A cluster that has all images, the namespace `space` for the length of a `with`, and the chart with
    `settings`. `more_images` writes archives into a folder and returns their paths.
    With several `nodes` the cluster is its own."""
    with testing.cluster(nodes=nodes) as cluster, tempfile.TemporaryDirectory() as temporary:
        for archive in [*build_images(), shell_image.write(temporary), *more_images(temporary)]:
            cluster.load(archive)
        made = World(cluster)
        made.namespace(space)
        made.install(*settings)
        try:
            yield made
        finally:
            # Jobs first: an operator of one namespace has its rights from that namespace.
            for what in (["trainingjobs", "--all", "-n", space], ["pods", "--all", "-n", space],
                         ["namespace", space, "--wait=false"],
                         ["persistentvolume", "-l", f"made-for={space}", "--wait=false"]):
                with contextlib.suppress(AssertionError):
                    cluster.kubectl("delete", *what, "--timeout=120s")
