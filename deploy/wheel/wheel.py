#!/usr/bin/env python3
"""The wheel trainyard-client: the Python package, libtrainyard, and the libraries that it needs and a Linux
distribution may not have.

    deploy/wheel/wheel.py --library build/release/lib/libtrainyard.so --out build/wheel

Prints the wheel's path. Exit code 77: its tools cannot be had (no way to the package index).
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import venv_of  # noqa: E402

# glibc 2.34: Debian 12, Ubuntu 22.04, RHEL 9 and newer.
PLATFORM = "manylinux_2_34_x86_64"


def copy_sources(library, folder):
    """The package with the library in it, and what makes a wheel for any Python of it."""
    shutil.copytree(ROOT / "python", folder, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info"))
    installed = folder / "trainyard/libtrainyard.so"
    shutil.copyfile(library.resolve(), installed)
    subprocess.run(["strip", "--strip-unneeded", str(installed)], check=True)
    (folder / "setup.cfg").write_text("[bdist_wheel]\npython_tag = py3\nplat_name = linux_x86_64\n", encoding="utf-8")


def build(python, folder, out):
    tools = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    subprocess.run([python, "-m", "pip", "-q", "wheel", "--no-deps", "--no-build-isolation",
                    "--disable-pip-version-check", "-w", folder / "dist", folder], check=True, env=tools)
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([python.parent / "auditwheel", "repair", "--plat", PLATFORM, "-w", out, wheel],
                   check=True, env=tools, stdout=sys.stderr, stderr=sys.stderr)
    (repaired,) = out.glob("*.whl")
    return repaired


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    python = venv_of.make_venv(out.parent / "venv-wheel", ROOT / "deploy/wheels_wheel.txt")
    if python is None:
        print("the package index cannot be reached")
        return 77
    shutil.rmtree(out, ignore_errors=True)
    folder = out / "source"
    copy_sources(arguments.library, folder)
    print(build(python, folder, out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
