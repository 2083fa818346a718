"""Linux namespaces and cgroups of a test cluster: what is done in them ends with them.

The cluster's first process (PID 1 of a PID namespace) has mounts, network, hostname, IPC and cgroups of
its own. The kernel ends everything in there when it dies, and it dies with the runner. Only cgroups
outlive their processes: remove_cgroups() is called by whoever is left. A second node has namespaces beside
these, below the same PID namespace: keep() makes them.
"""
import contextlib
import ctypes
import errno
import os
import pathlib
import signal
import socket
import subprocess
import time
import traceback

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
ALL_BUT_PID = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET
PR_SET_PDEATHSIG = 1
# What nsenter and /proc call the kinds; the last one is entered last.
KEPT = {"cgroup": "cgroup", "ipc": "ipc", "uts": "uts", "net": "net", "mount": "mnt"}
COVERED = ("/var", "/etc", "/opt")
LEAF = "daemons"  # the group of the programs, beside that of the pods
REAL_TIME_SHARE = "900000"  # microseconds of a second, of the 950000 that all groups have

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags):
    """Leaves the namespaces in `flags` for new ones; raises OSError."""
    if _libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")


def die_with_parent():
    """The kernel kills this process when the thread that started it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def reason_against():
    """Why namespaces cannot be made here, or None; tried in a child."""
    if os.geteuid() != 0:
        return "it takes root (mounts, network interfaces, containers)"
    child = os.fork()
    if child == 0:
        try:
            unshare(ALL_BUT_PID)
            # Not every sandbox that lets namespaces be made lets file systems be mounted in them.
            run("mount", "--make-rprivate", "/")
            run("mount", "-t", "tmpfs", "tmpfs", "/run")
            run("ip", "link", "add", "probe0", "type", "bridge")
            unshare(CLONE_NEWPID)
        except (OSError, subprocess.CalledProcessError):
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return None if status == 0 else "namespaces, mounts or bridges are not allowed here"


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def bind(folder, place):
    """Mounts what the file descriptor `folder` is open on at `place`, with all that is mounted below it; also
    where something else covers its path by now, which mount would find if it looked for the path."""
    subprocess.run(["mount", "--no-canonicalize", "--rbind", f"/proc/self/fd/{folder}", str(place)], check=True,
                   pass_fds=[folder])


def cover(home):
    """What is written to /var, /etc and /opt from now on lands in home/changes."""
    for covered in filter(os.path.isdir, COVERED):
        name = covered[1:]
        upper, work = home / "changes" / name, home / "changes" / f"{name}.work"
        upper.mkdir(parents=True)
        work.mkdir()
        subprocess.run(["mount", "-t", "overlay", "-o",
                        f"lowerdir={covered},upperdir={upper},workdir={work}", "overlay", covered], check=True)


def uncover():
    """A cover over a cover would be more layers than the kernel allows where the machine's root is one too."""
    for covered in filter(os.path.isdir, COVERED):
        run("umount", covered)


# --- namespaces beside the first process's, which it keeps without a process in them


def keep(folder, group):
    """Makes namespaces of all kinds but PID, with their cgroups' root at `group`. The caller, the first process,
    keeps them by open files; links in `folder` lead there. (To mount them at files, as `unshare --mount=FILE` does,
    is refused for that kind now and then: seen with Linux 6.18.)"""
    here, there = socket.socketpair()

    def make():
        enter_cgroups(group, at_root=True)
        unshare(ALL_BUT_PID)
        socket.send_fds(there, [b"made"], [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in KEPT.values()])

    in_child(make)
    handles = socket.recv_fds(here, 4, len(KEPT), socket.MSG_CMSG_CLOEXEC)[1]
    folder.mkdir(parents=True)
    for kind, handle in zip(KEPT, handles, strict=True):
        (folder / kind).symlink_to(f"/proc/{os.getpid()}/fd/{handle}")
    here.close()
    there.close()


def enter(folder, group):
    """Moves this process, which has a single thread, into namespaces that keep() made."""
    enter_cgroups(group, at_root=True)
    for handle in [os.open(folder / kind, os.O_RDONLY | os.O_CLOEXEC) for kind in KEPT]:
        if _libc.setns(handle, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")
        os.close(handle)


def nsenter(folder):
    """The command that does the same for the command behind it, all but the group."""
    return ["nsenter", *(f"--{kind}={folder / kind}" for kind in KEPT), "--"]


def in_child(function):
    """Runs function() in a child; raises OSError when it fails, what it raised is on standard error."""
    child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError(f"{function.__name__}: failed, see standard error")


# --- cgroups: version 1, version 2, or both side by side


def hierarchies():
    """(controllers, mount point, own path below it) of every mounted hierarchy; "" is version 2."""
    own = {}
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        root, mount_point = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        for controllers, path in own.items():
            same = kind == "cgroup2" if not controllers else (
                kind == "cgroup" and set(controllers.split(",")) <= set(options.split(",")))
            if same and (path + "/").startswith(root.rstrip("/") + "/"):
                found.append((controllers, mount_point, path[len(root.rstrip("/")):]))
    return found


def group_name(runner):
    """What the groups of the cluster of process `runner` are called."""
    return f"trainyard-cluster-{runner}"


def group_paths(name, at_root=False):
    """The folder called `name` in every hierarchy: below this process's own group, or at the root that the
    cgroup namespace shows."""
    return [pathlib.Path(mount_point + ("" if at_root else own)) / name for _, mount_point, own in hierarchies()]


def enter_cgroups(name, at_root=False):
    """Makes a group `name` in every hierarchy, where it is not there yet, and puts this process into it."""
    for group in group_paths(name, at_root):
        group.mkdir(exist_ok=True)
        for limit in ("cpuset.cpus", "cpuset.mems"):  # version 1: empty in a new group, and needed
            if (group / limit).exists() and not (group / limit).read_text().strip():
                (group / limit).write_text((group.parent / limit).read_text())
        budget = group / "cpu.rt_runtime_us"  # likewise: 0 in a new group, which real-time processes cannot enter
        if budget.exists() and os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO):
            budget.write_text(REAL_TIME_SHARE)
        leaf = group / LEAF
        ((leaf if leaf.exists() else group) / "cgroup.procs").write_text("0")


def mount_cgroups(found):
    """In new mount and cgroup namespaces: /sys and the hierarchies below it, seen from this group.
    `found` is what hierarchies() said before."""
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    if len(found) == 1 and not found[0][0]:
        run("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
        _delegate(pathlib.Path("/sys/fs/cgroup"))
        return
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup")
    for controllers, mount_point, _ in found:
        place = pathlib.Path("/sys/fs/cgroup") / pathlib.Path(mount_point).name
        place.mkdir(exist_ok=True)
        if controllers:
            named = "none," if controllers.startswith("name=") else ""
            run("mount", "-t", "cgroup", "-o", named + controllers, "cgroup", str(place))
        else:
            run("mount", "-t", "cgroup2", "cgroup2", str(place))


def _delegate(group):
    """Version 2 gives controllers only to groups whose parent holds no process: move to a leaf."""
    leaf = group / LEAF
    leaf.mkdir()
    (leaf / "cgroup.procs").write_text("0")
    names = (group / "cgroup.controllers").read_text().split()
    (group / "cgroup.subtree_control").write_text(" ".join("+" + name for name in names))


def remove_cgroups(name, seconds=10):
    """Removes the groups called `name` with all below; waits for their processes to be gone."""
    end = time.monotonic() + seconds
    left = [group for group in group_paths(name) if group.exists()]
    while left and time.monotonic() < end:
        for group in left:
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        left = [group for group in left if group.exists()]
        if left:
            time.sleep(0.05)
    return not left


def process_exists(pid):
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno != errno.ESRCH
    return True
