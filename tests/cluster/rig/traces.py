"""What a cluster could leave on this machine, to be compared before and after."""
import os
import pathlib
import subprocess
import time

from rig import namespaces

# What must be the same on the machine before and after.
SETTINGS = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"]


def machine():
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "links": sorted(line.split(":")[1] for line in links.splitlines()),
        "mounts": sorted(pathlib.Path("/proc/self/mounts").read_text().splitlines()),
        "settings": [pathlib.Path("/proc/sys", name).read_text() for name in SETTINGS],
        "folders": [sorted(os.listdir(place)) for place in ("/run", "/var/lib", "/etc", "/opt", "/var/log")],
    }


def groups(runner):
    """The cgroups of the cluster of process `runner`; others' clusters may come and go meanwhile."""
    return [path for path in namespaces.group_paths(namespaces.group_name(runner)) if path.exists()]


def wait_for_cleaner(folder, first, seconds=60):
    """After its runner was killed: until the first process of the cluster in `folder` is gone, and what removes
    the groups is done."""
    end = time.monotonic() + seconds
    while (namespaces.process_exists(first) or (folder / "runner").exists()) and time.monotonic() < end:
        time.sleep(0.05)
