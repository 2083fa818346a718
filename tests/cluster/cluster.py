#!/usr/bin/env python3
"""A whole Kubernetes on this machine, in namespaces of its own: see tests/cluster/README.md.

    cluster.py build [COMPONENT...]      build the programs into the cache
    cluster.py up DIR [--detach] [--control-plane | --nodes 2] [--image ARCHIVE]... [--owner PID|parent]
    cluster.py down DIR
    cluster.py in [--node NAME] DIR COMMAND...    run a command in the namespaces of a node, KUBECONFIG set
    cluster.py load DIR ARCHIVE...       give each node's containerd OCI archives
    cluster.py kill DIR PROGRAM [--seconds N]    kill -9 one of its programs; it is back after N seconds
    cluster.py check                     why no cluster can be started here, if so

DIR/kubeconfig is for clients outside. Exits 77 where a cluster cannot run, with the reason as the last
line of output; with TRAINYARD_REQUIRE=cluster in the environment that is a failure.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from rig import build, namespaces, node, runner, unavailable  # noqa: E402
import oci  # noqa: E402
from rig.daemons import Broken  # noqa: E402
from rig.unavailable import Unavailable  # noqa: E402

USAGE = """cluster: ready in {seconds:.1f} s
  export KUBECONFIG={folder}/kubeconfig      # for clients on this machine
  {kubectl} get nodes
  tests/cluster/cluster.py in {shown} kubectl get pods -A    # inside, where pods can be reached
  tests/cluster/cluster.py load {shown} image.tar
  tests/cluster/cluster.py down {shown}"""


def check(control_plane=False):
    """Raises Unavailable."""
    reason = namespaces.reason_against()
    if reason:
        raise Unavailable(reason)
    if not control_plane and node.missing():
        raise Unavailable(f"packages are missing: {' '.join(node.missing())} (deploy/install_packages.sh cluster)")
    build.find("kube-apiserver")
    build.find("etcd")
    if not control_plane:
        build.find("coredns")


def pause_image(folder):
    """The archive of the image that holds a pod's namespaces."""
    archive = pathlib.Path(folder) / "pause.tar"
    entry = oci.file_entry("/pause", build.find("pause"))
    oci.write(archive, node.PAUSE_IMAGE, [[entry]], {"Entrypoint": ["/pause"], "User": "65532:65532"})
    return archive


def up(arguments):
    folder = pathlib.Path(arguments.dir).resolve()
    if runner.Published(folder).running():
        sys.exit(f"a cluster runs in {folder} already")
    if arguments.owner and os.environ.get("TRAINYARD_CLUSTER"):
        print(f"cluster: that in {os.environ['TRAINYARD_CLUSTER']} is used")
        return
    check(arguments.control_plane)
    started = time.monotonic()
    if arguments.detach:
        detach(folder, arguments.owner)
    owner = [os.pidfd_open(arguments.owner)] if arguments.owner else []
    with tempfile.TemporaryDirectory() as temporary:
        images = [] if arguments.control_plane else [pause_image(temporary), *arguments.image]
        cluster = runner.Runner(folder, runner.Settings(arguments.control_plane, arguments.nodes, tuple(images)))
        try:
            cluster.start()
        except Broken as error:
            sys.exit(f"cluster: {error}")
    print(USAGE.format(seconds=time.monotonic() - started, folder=folder, shown=arguments.dir,
                       kubectl=build.find("kubectl")), flush=True)
    wanted = cluster.wait(also=owner)
    cluster.stop()
    if not wanted:
        sys.exit(f"cluster: it ended by itself; logs: {folder}/log")


def detach(folder, owner):
    """The caller returns when the cluster is ready, a child goes on as its runner."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "runner.log"
    with open(output, "wb") as log:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            return
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        text = output.read_text(errors="replace")
        if ended:
            sys.exit(text.strip() or f"the runner ended with {os.waitstatus_to_exitcode(status)}")
        if runner.Published(folder).ready():
            break
        if owner and not namespaces.process_exists(owner):
            os.kill(child, signal.SIGTERM)
        time.sleep(0.1)
    while not output.read_text(errors="replace").strip():
        time.sleep(0.02)
    print(output.read_text(errors="replace").strip(), flush=True)
    os._exit(0)


def down(arguments):
    published = runner.Published(arguments.dir)
    if not published.running():
        print(f"no cluster runs in {published.folder}")
        return
    pid = int((published.folder / "runner").read_text())
    end = time.monotonic() + 30
    os.kill(pid, signal.SIGTERM)
    while namespaces.process_exists(pid) and time.monotonic() < end:
        time.sleep(0.05)
    if namespaces.process_exists(pid):
        os.kill(pid, signal.SIGKILL)
    print("cluster: down")


def enter(arguments):
    if not arguments.command:
        sys.exit("in: expected a command")
    command = runner.Published(arguments.dir).command(arguments.command, node.by_name(arguments.node))
    os.execvp(command[0], command)


def load(arguments):
    published = runner.Published(arguments.dir)
    published.first_process()
    nodes = published.nodes()
    if not nodes:
        sys.exit(f"the cluster in {published.folder} has no node")
    there = [images_on(published, each) for each in nodes]
    for archive in arguments.archive:
        identity = oci.identity(archive)
        lacking = [each for each, images in zip(nodes, there) if identity not in images]
        for each in lacking:
            load_one(published, each, archive)
        print(f"{archive}: {'loaded' if lacking else 'is there already'}")


def images_on(published, on):
    """(name, digest) of each."""
    done = subprocess.run(published.command(["ctr", "-n", "k8s.io", "images", "list"], on), capture_output=True,
                          text=True, check=True)
    return {tuple(line.split()[:3:2]) for line in done.stdout.splitlines()}


def load_one(published, on, archive):
    with open(archive, "rb") as opened:
        command = published.command(["ctr", "-n", "k8s.io", "images", "import", "-"], on)
        done = subprocess.run(command, stdin=opened, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{archive}: {done.stderr.strip()}")


def kill(arguments):
    published = runner.Published(arguments.dir)
    pid = (published.folder / "pids" / arguments.program).read_text()
    hold = published.folder / "hold" / arguments.program
    hold.touch()
    try:
        subprocess.run(published.command(["kill", "-9", pid]), check=True)
        time.sleep(arguments.seconds)
    finally:
        hold.unlink(missing_ok=True)


def build_command(arguments):
    build.build(arguments.component or None)
    print(f"cluster: its programs are in {build.cache()}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)

    def verb(name, function):
        sub = verbs.add_parser(name)
        sub.set_defaults(run=function)
        return sub

    verb("build", build_command).add_argument("component", nargs="*")
    sub = verb("up", up)
    sub.add_argument("dir")
    sub.add_argument("--detach", action="store_true")
    size = sub.add_mutually_exclusive_group()
    size.add_argument("--control-plane", action="store_true", help="no node: pods do not run")
    size.add_argument("--nodes", type=int, choices=range(1, len(node.ALL) + 1), default=1)
    sub.add_argument("--image", action="append", default=[])
    sub.add_argument("--owner", type=lambda text: os.getppid() if text == "parent" else int(text),
                     help="the cluster ends with this process")
    verb("down", down).add_argument("dir")
    sub = verb("in", enter)
    sub.add_argument("--node", choices=[each.name for each in node.ALL], default=node.FIRST.name)
    sub.add_argument("dir")
    sub.add_argument("command", nargs=argparse.REMAINDER)
    sub = verb("load", load)
    sub.add_argument("dir")
    sub.add_argument("archive", nargs="+")
    sub = verb("kill", kill)
    sub.add_argument("dir")
    sub.add_argument("program")
    sub.add_argument("--seconds", type=float, default=0)
    verb("check", lambda _: check())
    return parser.parse_args()


def main():
    arguments = parse()
    try:
        arguments.run(arguments)
    except Unavailable as error:
        unavailable.end(error)


if __name__ == "__main__":
    main()
