"""The first process of a cluster's namespaces: makes the place, starts the programs, watches them."""
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import traceback

from rig import build, control_plane, namespaces, node
from rig.daemons import Broken, Daemons

HOME = pathlib.Path("/run/cluster")
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
    socket.sethostname(node.NODE)
    folder = os.open(published, os.O_RDONLY | os.O_DIRECTORY)
    namespaces.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    (HOME / "published").mkdir(parents=True)
    subprocess.run(["mount", "--bind", f"/proc/self/fd/{folder}", str(HOME / "published")], check=True,
                   pass_fds=[folder])
    os.close(folder)
    for covered in ("/var", "/etc", "/opt"):
        if not os.path.isdir(covered):
            continue
        name = covered[1:]
        upper, work = HOME / "changes" / name, HOME / "changes" / f"{name}.work"
        upper.mkdir(parents=True)
        work.mkdir()
        subprocess.run(["mount", "-t", "overlay", "-o",
                        f"lowerdir={covered},upperdir={upper},workdir={work}", "overlay", covered], check=True)
    os.environ["PATH"] = ":".join([*build.search_path(), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    os.chdir(HOME)
    namespaces.run("ip", "link", "set", "lo", "up")


def start(settings, daemons, listener):
    authority = control_plane.certificates(HOME)
    # The apiserver advertises the node's address: there in both sizes of a cluster.
    node.network()
    if not settings.control_plane:
        node.certificates(authority, HOME)
    api = control_plane.start(HOME, daemons, build.find)
    if not settings.control_plane:
        (HOME / "volumes").mkdir(mode=0o755)
        node.start(HOME, daemons, build.find, api, settings.images)
    # From outside, the apiserver is reached through a listening socket that was made there.
    port = listener.getsockname()[1]
    authority.kubeconfig("admin", f"https://127.0.0.1:{port}", HOME / "published" / "kubeconfig")
    listener.set_inheritable(True)
    daemons.start("forward", sys.executable, "-B", build.HERE / "rig" / "forward.py", listener.fileno(),
                  control_plane.PORT, pass_fds=[listener.fileno()])
    listener.close()


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
