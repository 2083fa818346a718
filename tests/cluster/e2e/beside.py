"""Programs that run beside the cluster's own, where its apiserver can be reached."""
import contextlib
import subprocess

from world import inside  # puts rig on the path
from rig import namespaces


@contextlib.contextmanager
def program(cluster, name, command):
    """`command` for the length of a `with`, as the cluster's administrator."""
    # nsenter waits for it; it ends when nsenter does.
    command = cluster.published.command(["setpriv", "--pdeathsig", "KILL", "env",
                                         f"KUBECONFIG={inside.HOME}/admin.kubeconfig", *map(str, command)])
    with open(cluster.folder / "log" / f"{name}.log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   preexec_fn=namespaces.die_with_parent)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
