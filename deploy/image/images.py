#!/usr/bin/env python3
"""Builds the images of a release as OCI archives, without a container engine:

    images.py --bin build/release/bin --out build/image --version 0.1.0 [--registry REGISTRY] [IMAGE...]

trainyard-operator       the operator
trainyard-agent          agent and runtime with a loader and libraries of their own, for images of users
trainyard-runtime        agent and training runtime: what tasks run when they name no image
trainyard-runtime-torch  the same with LibTorch, for TorchScript modules and GPUs; only when it is named

An image holds the programs, the libraries that ldd names with their licences, and nothing else: no
shell, no package manager. Its user is 65532, its root file system may be read-only. The same programs
and libraries give the same digest. Beside IMAGE.tar lies IMAGE.spdx.json, which says what is in it.
"""
import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import closure
import debian
import oci
import sbom

USER = "65532:65532"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# Where the self-contained agent stands: in its own image, and in tasks of other images as a volume
# (operator/kube/render/names.h).
HOME = "/opt/trainyard/agent"
HOME_LIBRARIES = f"{HOME}/lib"
MB = 1_000_000


@dataclasses.dataclass(frozen=True)
class Kind:
    """An image: its programs, the first of which it starts, and what a release may weigh in MB."""
    programs: tuple
    compressed: int = 100
    unpacked: int = 130


KINDS = {
    "trainyard-operator": Kind(("trainyard-operator", "trainyard-operator-cpprestsdk")),
    "trainyard-agent": Kind(("trainyard-agent", "trainyard-runtime")),
    "trainyard-runtime": Kind(("trainyard-runtime", "trainyard-agent")),
    # LibTorch of Debian alone links 500 MB of libraries.
    "trainyard-runtime-torch": Kind(("trainyard-runtime", "trainyard-runtime-torch", "trainyard-agent"),
                                    compressed=240, unpacked=640),
}
RELEASE = ("trainyard-operator", "trainyard-agent", "trainyard-runtime")


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


def self_contained(programs):
    """Entries of the libraries of `programs`, copies that are changed so that they run in any image: they
    name the loader and the library folder below HOME themselves, so that neither the image nor LD_*
    variables decide."""
    loader = f"{HOME_LIBRARIES}/{pathlib.Path(closure.LOADER).name}"
    entries = {loader: oci.file_entry(loader, pathlib.Path(closure.LOADER).resolve())}
    for program in programs:
        for soname, path in closure.libraries(program).items():
            entries[soname] = oci.file_entry(f"{HOME_LIBRARIES}/{soname}", path)
        # A path that also holds for libraries of libraries, and comes before LD_LIBRARY_PATH.
        subprocess.run(["patchelf", "--set-interpreter", loader, "--force-rpath",
                        "--set-rpath", HOME_LIBRARIES, str(program)], check=True)
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
        """A copy without symbols: a fifth less, and nothing reads them."""
        path, copy = self.programs / name, self.scratch / name
        if not path.exists():
            raise ValueError(f"{path} is not built")
        subprocess.run(["strip", "--strip-all", "-o", str(copy), str(path)], check=True)
        copy.chmod(0o755)
        return copy

    def image(self, name):
        """(layers, config, {path: package} for the SBOM)"""
        programs = [self.program(program) for program in KINDS[name].programs]
        if name == "trainyard-agent":
            home, libraries = HOME, self_contained(programs)
        else:
            home, libraries = "/usr/bin", linked(programs)
        own = [oci.file_entry(f"{home}/{path.name}", path) for path in programs]
        # What is no program is the distribution's, but a LibTorch from elsewhere, of which nothing is known.
        brought = debian.owners({entry.source for entry in libraries})
        owners = {entry.path: brought[entry.source] for entry in libraries if entry.source in brought}
        licences = []
        for package in sorted(set(brought.values()), key=lambda package: package.name):
            if package.copyright():
                licences.append(oci.file_entry(f"{debian.DOC}/{package.name}/copyright", package.copyright()))
                owners[licences[-1].path] = package
        owners.update({entry.path: sbom.OURS for entry in base() + own})
        # Libraries change seldom: a layer of their own is fetched once.
        return ([base() + libraries + licences, own], config(name, self.version, [own[0].path]), owners)


def date():
    """Seconds since 1970 that a release is said to be of: the environment's, else the commit's."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    done = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "log", "-1", "--format=%ct"],
                          capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else 0


def build(name, arguments):
    """Writes the image's archive and SBOM; returns what was found too big."""
    with tempfile.TemporaryDirectory() as scratch:
        layers, about, owners = Builder(arguments.bin, pathlib.Path(scratch), arguments.version).image(name)
        reference = f"{arguments.registry}/{name}:{arguments.version}"
        archive = arguments.out / f"{name}.tar"
        written = oci.write(archive, reference, layers, about)
        contents = sbom.files([entry for entries in layers for entry in entries], owners)
    text = sbom.document(name, arguments.version, written.digest, contents, date())
    (arguments.out / f"{name}.spdx.json").write_text(text, encoding="utf-8")
    print(f"{reference}@{written.digest}  {written.unpacked / MB:.0f} MB, "
          f"{written.compressed / MB:.0f} MB compressed  {archive}", flush=True)
    limits = {"unpacked": KINDS[name].unpacked, "compressed": KINDS[name].compressed}
    return [f"{name} is above {limit} MB {what}" for what, limit in limits.items()
            if getattr(written, what) > limit * MB]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--registry", default="ghcr.io/trainyard")
    parser.add_argument("image", nargs="*", default=list(RELEASE))
    arguments = parser.parse_args()
    for name in arguments.image:
        if name not in KINDS:
            parser.error(f"image {name}: expected one of {', '.join(KINDS)}")
    for tool in ("patchelf", "strip"):
        if not shutil.which(tool):
            sys.exit(f"images: {tool} is not installed (deploy/install_packages.sh)")

    arguments.out.mkdir(parents=True, exist_ok=True)
    found = []
    for name in arguments.image:
        try:
            found += build(name, arguments)
        except ValueError as error:
            sys.exit(f"images: {error}")
    for one in found:
        print(f"images: {one}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
