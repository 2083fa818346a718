#!/usr/bin/env python3
"""The suite of storages on a real object store: by keys that are given, and by keys that its token service lends for
some seconds at a time."""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from rig import identity, object_store, unavailable  # noqa: E402

SECONDS = 6  # that lent keys are good for: they end with the token; the suite takes more than half of it


def main():
    suite = pathlib.Path(os.environ["TRAINYARD_BIN"]).parent / "tests" / "storage_conformance_test"
    with tempfile.TemporaryDirectory() as folder, identity.Provider(folder) as provider, \
            object_store.ObjectStore(folder, settings=identity.trusted_by(provider.url)) as store:
        told = {**os.environ, "TRAINYARD_TEST_STORAGE": f"s3://{object_store.BUCKET}", "TMPDIR": folder}
        given = subprocess.run([suite], env={**told, **store.environment()})
        token = pathlib.Path(folder) / "token"
        with provider.renewed_token(token, SECONDS):
            lent = subprocess.run([suite], env={**told, **store.environment_of_role(token)})
    return given.returncode or lent.returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except unavailable.Unavailable as reason:
        unavailable.end(str(reason))
