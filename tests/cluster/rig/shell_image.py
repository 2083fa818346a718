"""An image with a shell for tests: Debian's static busybox under the names of its programs."""
import pathlib
import subprocess

import oci
from rig.unavailable import Unavailable

NAME = "registry.test/shell:1"
BUSYBOX = pathlib.Path("/bin/busybox")


def entries():
    if not BUSYBOX.exists():
        raise Unavailable("packages are missing: busybox-static (deploy/install_packages.sh cluster)")
    names = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    return [oci.file_entry("/bin/busybox", BUSYBOX), oci.Entry("/tmp", mode=0o1777),
            *[oci.Entry(f"/bin/{name}", link="busybox") for name in names if name != "busybox"]]


def write(folder):
    """Writes the archive into `folder` and returns its path."""
    archive = pathlib.Path(folder) / "shell.tar"
    oci.write(archive, NAME, [entries()], {"Env": ["PATH=/bin"], "Cmd": ["sh"], "User": "1000:1000"})
    return archive
