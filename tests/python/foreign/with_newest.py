#!/usr/bin/env python3
"""Runs a test with PyPI's newest torch, in a virtual environment: with_newest.py SCRIPT [ARGUMENT ...]

The script is a path of tests/python. Debian's torch is of 2022: what came since is seen by this only."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "deploy")]
import ranks  # noqa: E402
import venv_of  # noqa: E402

VENV = ROOT / "build/venvs/torch-suite"


def run(command):
    """The exit status of Python in that environment; SKIPPED where it cannot be made."""
    python = venv_of.make_venv(VENV, ROOT / "deploy/wheels_torch_suite.txt")
    if python is None:
        print("skipped: the package index cannot be reached")
        return ranks.SKIPPED
    return subprocess.run([python, *command]).returncode


if __name__ == "__main__":
    sys.exit(run([ROOT / "tests/python" / sys.argv[1], *sys.argv[2:]]))
