#!/usr/bin/env python3
"""Pushes the images of a release and the chart to a registry, with skopeo:

    push.py --images build/image --version 0.1.0 --chart helm/trainyard --registry HOST[:PORT][/PATH] [IMAGE...]

Names are REGISTRY/IMAGE:VERSION, and REGISTRY/trainyard:VERSION for the chart; digests are those of the
archives. Who is not logged in does so with `skopeo login`. A registry on this machine (localhost,
127.0.0.0/8) may do without TLS, no other.
"""
import argparse
import ipaddress
import pathlib
import re
import shutil
import subprocess
import sys

import chart
import images
import oci

REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")


def registry(text):
    if not REGISTRY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected HOST[:PORT][/PATH]")
    return text


def on_this_machine(name):
    host = name.split("/")[0].split(":")[0]
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def push(archive, digest, reference):
    """The manifest goes as it is: what is pulled by `digest` is what was built. Raises ValueError."""
    # The policy is about images from elsewhere; this one is ours.
    command = ["skopeo", "copy", "--quiet", "--insecure-policy", "--preserve-digests",
               f"oci-archive:{archive}", f"docker://{reference}"]
    if on_this_machine(reference):
        command.insert(2, "--dest-tls-verify=false")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"{reference}: {done.stderr.strip()}")
    print(f"{reference}@{digest}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--chart", type=pathlib.Path, required=True)
    parser.add_argument("--registry", type=registry, required=True)
    parser.add_argument("image", nargs="*", default=list(images.RELEASE))
    arguments = parser.parse_args()
    if not shutil.which("skopeo"):
        sys.exit("push: skopeo is not installed (deploy/install_packages.sh)")
    try:
        # All there and of this version, before any goes.
        things = []
        for name in arguments.image:
            archive = arguments.images / f"{name}.tar"
            if not archive.exists():
                raise ValueError(f"{archive} is not built")
            known, digest = oci.identity(archive)
            if not known.endswith(f"/{name}:{arguments.version}"):
                raise ValueError(f"{archive} holds {known}, not version {arguments.version}")
            things.append((name, archive, digest))
        # The chart last: whoever finds it finds its images.
        things.append(chart.write(arguments.chart, arguments.images, arguments.version))
        for name, archive, digest in things:
            push(archive, digest, f"{arguments.registry}/{name}:{arguments.version}")
    except ValueError as error:
        sys.exit(f"push: {error}")
    plain = " --plain-http" if on_this_machine(arguments.registry) else ""
    print(f"helm install trainyard oci://{arguments.registry}/trainyard --version {arguments.version} "
          f"--set registry={arguments.registry}{plain}")


if __name__ == "__main__":
    main()
