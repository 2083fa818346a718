#!/usr/bin/env python3
"""The package's types, checked by mypy: types_test.py VENVS"""
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
sys.path.insert(0, str(SOURCE / "deploy"))

import venv_of  # noqa: E402


def main():
    venvs = pathlib.Path(sys.argv[1])
    python = venv_of.make_venv(venvs / "mypy", SOURCE / "deploy/wheels_mypy.txt")
    if python is None:
        print("the package index cannot be reached")
        return 77
    return subprocess.run([python, "-m", "mypy", "--config-file", SOURCE / "python/pyproject.toml", "--cache-dir",
                           venvs / "mypy-cache", "-p", "trainyard"], cwd=SOURCE / "python", timeout=240).returncode


if __name__ == "__main__":
    sys.exit(main())
