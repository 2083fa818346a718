"""The first process of a cluster's namespaces: makes the place, starts the programs, watches them."""
import os
import select
import signal
import socket
import subprocess
import sys
import traceback

from rig import addons, build, control_plane, namespaces, node, second_node
from rig.daemons import Broken, Daemons
from rig.node import HOME

TICK_SECONDS = 0.2


def main(settings, published, listener, group, report):
    """Never returns. `report(text)` tells the runner: "ready", or why not."""
    code = 1
    try:
        make_place(published, group)
        daemons = Daemons(HOME / "published")
        start(settings, daemons, listener)
        report("ready")
        watch(daemons)
        code = 0
    except Broken as error:
        report(str(error))
    except (OSError, subprocess.SubprocessError) as error:
        report(f"{type(error).__name__}: {error} {getattr(error, 'stderr', None) or ''}".strip())
    except BaseException:  # a bug: the runner is to print all of it
        report(traceback.format_exc())
    os._exit(code)


def make_place(published, group):
    """Own mounts, network, hostname, cgroups; what is written to /run, /var, /etc, /opt stays inside."""
    hierarchies = namespaces.hierarchies()
    namespaces.enter_cgroups(group)
    namespaces.unshare(namespaces.ALL_BUT_PID)
    namespaces.run("mount", "--make-rprivate", "/")
    namespaces.run("mount", "-t", "proc", "proc", "/proc")
    namespaces.mount_cgroups(hierarchies)
    socket.sethostname(node.FIRST.name)
    folder = os.open(published, os.O_RDONLY | os.O_DIRECTORY)
    namespaces.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    (HOME / "published").mkdir(parents=True)
    namespaces.bind(folder, HOME / "published")
    os.close(folder)
    namespaces.cover(HOME)
    os.environ["PATH"] = ":".join([*build.search_path(), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    os.chdir(HOME)
    namespaces.run("ip", "link", "set", "lo", "up")


def start(settings, daemons, listener):
    nodes = node.of_cluster(0 if settings.control_plane else settings.nodes)
    authority = control_plane.certificates(HOME)
    # The apiserver advertises the first node's address: there in every size of a cluster.
    node.first_network()
    if nodes:
        node.hide_kernel_settings(HOME)
        addons.certificates(authority, HOME)
    if len(nodes) > 1:
        second_node.make(*nodes)
    for each in nodes:
        node.certificates(authority, each)
    api = control_plane.start(HOME, daemons, build.find, several_nodes=len(nodes) > 1)
    if nodes:
        (HOME / "volumes").mkdir(mode=0o755)
        addons.start(HOME, daemons, build.find, api)
        start_nodes(nodes, daemons, api, settings.images)
    # From outside, the apiserver is reached through a listening socket that was made there.
    port = listener.getsockname()[1]
    authority.kubeconfig("admin", f"https://127.0.0.1:{port}", HOME / "published" / "kubeconfig")
    listener.set_inheritable(True)
    daemons.start("forward", sys.executable, "-B", build.HERE / "rig" / "forward.py", listener.fileno(),
                  control_plane.PORT, pass_fds=[listener.fileno()])
    listener.close()


def start_nodes(nodes, daemons, api, images):
    """Returns when pods can run on all of them."""
    for each in nodes:
        node.start(each, daemons, build.find, images)
    for each in nodes:
        daemons.wait_for(each.name, lambda each=each: node.is_ready(api, each))


def watch(daemons):
    """Until the runner goes or says so (SIGTERM), or a program ends."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while not ended:
        daemons.tick()
        if select.select([reader], [], [], TICK_SECONDS)[0]:
            os.read(reader, 4096)
