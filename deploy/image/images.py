#!/usr/bin/env python3
"""Builds the images of a release as OCI archives, without a container engine:

    images.py --bin build/release/bin --out build/image --version 0.1.0 [--registry REGISTRY] [IMAGE...]

trainyard-operator  the operator
trainyard-agent     the agent with a loader and libraries of its own, for images of users
trainyard-runtime   agent and training runtime: what tasks run when they name no image

An image holds the programs, the libraries that ldd names, and nothing else: no shell, no package
manager. Its user is 65532, its root file system may be read-only. The same programs and libraries give
the same digest.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import closure
import oci

USER = "65532:65532"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# Where the self-contained agent stands: in its own image, and in tasks of other images as a volume
# (operator/kube/render/names.h).
HOME = "/opt/trainyard/agent"
HOME_LIBRARIES = f"{HOME}/lib"
# What a release may weigh, unpacked. LibTorch of Debian alone links 500 MB of libraries.
LIMIT_MB = {"trainyard-operator": 60, "trainyard-agent": 60, "trainyard-runtime": 640}
MB = 1_000_000


def base():
    """What a program expects of any system: who its user is, and a folder for temporary files."""
    return [
        oci.Entry("/etc/passwd", text=b"root:x:0:0::/:/none\nnonroot:x:65532:65532::/tmp:/none\n", mode=0o644),
        oci.Entry("/etc/group", text=b"root:x:0:\nnonroot:x:65532:\n", mode=0o644),
        oci.Entry("/etc/nsswitch.conf", text=b"hosts: files dns\n", mode=0o644),
        oci.Entry("/tmp", mode=0o1777),
    ]


def linked(programs):
    """The entries of all libraries of `programs` (paths), and of the loader."""
    entries = {closure.LOADER: oci.file_entry(closure.LOADER, pathlib.Path(closure.LOADER).resolve())}
    for program in programs:
        for soname, path in closure.libraries(program).items():
            entries[soname] = oci.file_entry(f"{LIBRARIES}/{soname}", path)
    return list(entries.values())


def self_contained(programs, scratch):
    """Entries of {name below HOME: program} that run in any image: copies that name the loader and the
    library folder below HOME themselves, so that neither the image nor LD_* variables decide."""
    entries = {}
    loader = f"{HOME_LIBRARIES}/{pathlib.Path(closure.LOADER).name}"
    entries[loader] = oci.file_entry(loader, pathlib.Path(closure.LOADER).resolve())
    for name, program in programs.items():
        for soname, path in closure.libraries(program).items():
            place = f"{HOME_LIBRARIES}/{soname}"
            entries[place] = oci.file_entry(place, path)
        copy = scratch / name
        shutil.copy(program, copy)
        # A path that also holds for libraries of libraries, and comes before LD_LIBRARY_PATH.
        subprocess.run(["patchelf", "--set-interpreter", loader, "--force-rpath",
                        "--set-rpath", HOME_LIBRARIES, str(copy)], check=True)
        entries[name] = oci.file_entry(f"{HOME}/{name}", copy)
    return list(entries.values())


def config(title, version, entrypoint):
    return {"User": USER, "WorkingDir": "/tmp", "Entrypoint": entrypoint,
            "Env": ["PATH=/usr/bin", "HOME=/tmp"],
            "Labels": {"org.opencontainers.image.title": title,
                       "org.opencontainers.image.version": version,
                       "org.opencontainers.image.licenses": "Apache-2.0"}}


class Builder:
    def __init__(self, programs, scratch, version):
        self.programs, self.scratch, self.version = programs, scratch, version

    def program(self, name):
        path = self.programs / name
        if not path.exists():
            sys.exit(f"images: {path} is not built")
        return path

    def image(self, name):
        """(layers, config)"""
        if name == "trainyard-agent":
            agent = self_contained({"trainyard-agent": self.program("trainyard-agent")}, self.scratch)
            return [base() + agent], config(name, self.version, [f"{HOME}/trainyard-agent"])
        names = ["trainyard-operator"] if name == "trainyard-operator" else [
            "trainyard-runtime", "trainyard-runtime-torch", "trainyard-agent"]
        programs = [self.program(program) for program in names]
        own = [oci.file_entry(f"/usr/bin/{path.name}", path) for path in programs]
        # Libraries change seldom: a layer of their own is fetched once.
        return [base() + linked(programs), own], config(name, self.version, [f"/usr/bin/{names[0]}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--registry", default="ghcr.io/trainyard")
    parser.add_argument("image", nargs="*", default=list(LIMIT_MB))
    arguments = parser.parse_args()
    for name in arguments.image:
        if name not in LIMIT_MB:
            parser.error(f"image {name}: expected one of {', '.join(LIMIT_MB)}")
    if not shutil.which("patchelf"):
        sys.exit("images: patchelf is not installed (deploy/install_packages.sh)")

    arguments.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in arguments.image:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                layers, about = Builder(arguments.bin, pathlib.Path(scratch), arguments.version).image(name)
            except ValueError as error:
                sys.exit(f"images: {error}")
            reference = f"{arguments.registry}/{name}:{arguments.version}"
            archive = arguments.out / f"{name}.tar"
            written = oci.write(archive, reference, layers, about)
        print(f"{reference}@{written.digest}  {written.unpacked / MB:.0f} MB, "
              f"{written.compressed / MB:.0f} MB compressed  {archive}", flush=True)
        if written.unpacked > LIMIT_MB[name] * MB:
            print(f"images: {name} is above {LIMIT_MB[name]} MB", file=sys.stderr)
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
