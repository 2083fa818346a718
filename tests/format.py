#!/usr/bin/env python3
"""Checks the layout of all C++ and proto sources with clang-format; --fix rewrites them."""
import os
import pathlib
import subprocess
import sys

FOLDERS = ["agent", "base", "bench", "cli", "operator", "proto", "runtime", "tests"]
SUFFIXES = {".cc", ".h"}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    files = sorted(
        str(path.relative_to(root))
        for folder in FOLDERS
        for path in (root / folder).rglob("*")
        if path.suffix in SUFFIXES
    )
    if not files:
        sys.exit("format: no source found")
    mode = ["-i"] if "--fix" in sys.argv[1:] else ["--dry-run", "-Werror"]
    step = max(1, -(-len(files) // (os.cpu_count() or 1)))
    running = [
        subprocess.Popen(["clang-format", *mode, *files[at : at + step]], cwd=root)
        for at in range(0, len(files), step)
    ]
    if any([process.wait() != 0 for process in running]):
        sys.exit("format: run `make format`")
    print(f"format: {len(files)} files")


if __name__ == "__main__":
    main()
