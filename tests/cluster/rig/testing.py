"""What Python tests against a test cluster share."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

from rig import build, namespaces, node, runner, unavailable
from rig.api import Api

SCRIPT = build.HERE / "cluster.py"


class TestCluster:
    """A running cluster: requests from outside, commands inside."""

    def __init__(self, folder):
        self.published = runner.Published(folder)
        self.folder = self.published.folder
        self.kubeconfig = self.folder / "kubeconfig"
        self.api = Api(self.kubeconfig)

    def inside(self, *command, **more):
        """Runs a command in the cluster's namespaces; CompletedProcess with text output."""
        return self.on_node(node.FIRST.name, *command, **more)

    def on_node(self, name, *command, **more):
        """The same in the namespaces of the node `name`."""
        more = {"capture_output": True, "text": True, "timeout": 300, **more}
        return subprocess.run(self.published.command([str(part) for part in command], node.by_name(name)), **more)

    def cut(self, name):
        """Takes the network from the second node; its programs, pods and storage go on."""
        self.inside("ip", "link", "set", name, "down", check=True)

    def join(self, name):
        """Undoes cut()."""
        self.inside("ip", "link", "set", name, "up", check=True)

    def fetch(self, url, on=node.FIRST.name):
        """The text at `url`, asked for from a node; empty when there is no answer."""
        code = "import sys, urllib.request as u; sys.stdout.buffer.write(u.urlopen(sys.argv[1], timeout=5).read())"
        return self.on_node(on, sys.executable, "-c", code, url).stdout

    def kubectl(self, *arguments, **more):
        """kubectl from outside; its standard output. Raises with its error output."""
        done = subprocess.run([build.find("kubectl"), "--kubeconfig", self.kubeconfig, *arguments],
                              capture_output=True, text=True, timeout=300, **more)
        if done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def load(self, archive):
        subprocess.run([sys.executable, "-B", SCRIPT, "load", self.folder, archive], check=True,
                       stdout=subprocess.DEVNULL)


def require():
    """Ends the process where no cluster can be started; for tests that start one inside a test case."""
    done = subprocess.run([sys.executable, "-B", SCRIPT, "check"])
    if done.returncode != 0:
        sys.exit(done.returncode)


def reused(control_plane):
    """The folder of a cluster that runs already: the user's (TRAINYARD_CLUSTER), or that of this run of
    the tests (TRAINYARD_TEST_APISERVER, TRAINYARD_TEST_CLUSTER); None without one."""
    fixture = "TRAINYARD_TEST_APISERVER" if control_plane else "TRAINYARD_TEST_CLUSTER"
    for name in ("TRAINYARD_CLUSTER", fixture):
        folder = os.environ.get(name)
        if not folder:
            continue
        if runner.Published(folder).ready():
            return folder
        if name == "TRAINYARD_CLUSTER":
            sys.exit(f"TRAINYARD_CLUSTER={folder}: no cluster runs there")
    return None


@contextlib.contextmanager
def cluster(control_plane=False, nodes=1):
    """A cluster for the length of a `with`; ends the process with the reason where there can be none. One of
    several nodes is always the caller's own."""
    folder = reused(control_plane) if nodes == 1 else None
    if folder:
        yield TestCluster(folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        with start(pathlib.Path(temporary), control_plane, nodes) as started:
            yield started


@contextlib.contextmanager
def start(folder, control_plane=False, nodes=1):
    """A cluster of one's own in `folder`."""
    size = ["--control-plane"] if control_plane else ["--nodes", str(nodes)]
    command = [sys.executable, "-B", str(SCRIPT), "up", str(folder), *size]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=namespaces.die_with_parent)
    try:
        first = child.stdout.readline()
        if not first.startswith("cluster: ready"):
            output, errors = child.communicate()
            if child.returncode == unavailable.SKIPPED:
                unavailable.end(first.strip().removeprefix("no test cluster: "))
            raise AssertionError(f"the cluster did not start: {first}{output}{errors}")
        started = TestCluster(folder)
        started.runner = child
        yield started
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=60)
        child.kill()
        child.wait()
