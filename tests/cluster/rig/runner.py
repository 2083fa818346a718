"""The runner: the process outside whose life is the cluster's."""
import dataclasses
import os
import pathlib
import select
import shutil
import signal
import socket
import sys

from rig import inside, namespaces, node
from rig.daemons import Broken

# What a cluster leaves in its folder for others to use it; removed when it ends. log/ stays.
STATE = ("kubeconfig", "first-process", "runner", "pids", "hold")


@dataclasses.dataclass
class Settings:
    control_plane: bool = False  # without node: no pod runs
    nodes: int = 1
    images: tuple = ()  # OCI archives that containerd is given


def remove_state(folder):
    for name in STATE:
        path = pathlib.Path(folder) / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class Runner:
    """Starts a cluster that is published in `folder`; it ends with this process, however that ends."""

    def __init__(self, folder, settings):
        self.folder = pathlib.Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_state(self.folder)
        shutil.rmtree(self.folder / "log", ignore_errors=True)
        self.settings = settings
        self.group = namespaces.group_name(os.getpid())

    def start(self):
        """Returns when the cluster is ready; raises Broken."""
        (self.folder / "runner").write_text(str(os.getpid()))
        self._start_cleaner()
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._start_first(listener, writer)
        os.close(writer)
        listener.close()
        self.child = child
        text = _read_line(reader)
        os.close(reader)
        if text != "ready":
            self.stop()
            raise Broken(text or "the cluster's first process ended without a word")

    def _start_cleaner(self):
        """A process of its own session removes what outlives a killed runner: cgroups, the folder's state.
        The pipe that only the runner holds open tells it when."""
        reader, self.alive = os.pipe()
        child = os.fork()
        if child != 0:
            os.close(reader)
            self.cleaner = child
            return
        os.close(self.alive)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # Whoever reads the runner's output must not wait for this process.
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        os.read(reader, 1)
        namespaces.remove_cgroups(self.group)
        remove_state(self.folder)
        os._exit(0)

    def _start_first(self, listener, writer):
        """In a child: leaves the PID namespace; its own child is the first process of the new one."""
        os.close(self.alive)
        namespaces.die_with_parent()
        namespaces.unshare(namespaces.CLONE_NEWPID)
        first = os.fork()
        if first == 0:
            namespaces.die_with_parent()
            os.setsid()
            inside.main(self.settings, self.folder, listener, self.group,
                        lambda text: os.write(writer, text.strip().encode() + b"\0"))
        os.close(writer)
        listener.close()
        (self.folder / "first-process").write_text(str(first))
        signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0x7F)

    def wait(self, also=()):
        """Until the cluster ends by itself (returns False), or a signal or one of the file descriptors
        `also` says that it is no longer wanted (returns True)."""
        ended = os.pidfd_open(self.child)
        wanted, asked = os.pipe()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os.write(asked, b"x"))
        ready = select.select([ended, wanted, *also], [], [])[0]
        return ended not in ready

    def stop(self):
        try:
            os.kill(self.child, signal.SIGTERM)
        except ProcessLookupError:
            pass
        os.waitpid(self.child, 0)
        os.close(self.alive)
        os.waitpid(self.cleaner, 0)


def _read_line(reader):
    """All that comes before a zero byte or the end."""
    text = b""
    while not text.endswith(b"\0"):
        piece = os.read(reader, 4096)
        if not piece:
            break
        text += piece
    return text.rstrip(b"\0").decode(errors="replace")


class Published:
    """A running cluster, by its folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()

    def running(self):
        try:
            runner, first = (int((self.folder / name).read_text()) for name in ("runner", "first-process"))
        except (OSError, ValueError):
            return False
        return namespaces.process_exists(runner) and namespaces.process_exists(first)

    def ready(self):
        return self.running() and (self.folder / "kubeconfig").exists()

    def first_process(self):
        if not self.running():
            sys.exit(f"no cluster runs in {self.folder} (start one: make cluster)")
        return int((self.folder / "first-process").read_text())

    def nodes(self):
        """Those whose containerd has been started."""
        return [each for each in node.ALL if (self.folder / "pids" / each.program("containerd")).exists()]

    def command(self, command, on=node.FIRST):
        """`command` inside the cluster's namespaces, in those of a node, as a list for exec."""
        return ["nsenter", "--target", str(self.first_process()), "--mount", "--net", "--pid", "--uts",
                "--ipc", "--cgroup", "--", *on.nsenter(), "env", f"KUBECONFIG={on.home}/admin.kubeconfig",
                f"CONTAINERD_ADDRESS={on.containerd}", f"PATH={_path()}", *command]


def _path():
    return ":".join([*inside.build.search_path(), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
