#!/usr/bin/env python3
"""The suite of storages on a real object store."""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from rig import object_store, unavailable  # noqa: E402


def main():
    suite = pathlib.Path(os.environ["TRAINYARD_BIN"]).parent / "tests" / "storage_conformance_test"
    with tempfile.TemporaryDirectory() as folder, object_store.ObjectStore(folder) as store:
        told = {"TRAINYARD_TEST_STORAGE": f"s3://{object_store.BUCKET}", "TMPDIR": folder}
        done = subprocess.run([suite], env={**os.environ, **store.environment(), **told})
    return done.returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except unavailable.Unavailable as reason:
        unavailable.end(str(reason))
