#!/usr/bin/env python3
"""Runs on one machine whose data, and first weights, are in a real object store."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from rig import http_proxy, identity, object_store, unavailable  # noqa: E402

TRAINYARD = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "trainyard"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
FILES = {"images": "train-images-idx3-ubyte.gz", "labels": "train-labels-idx1-ubyte.gz",
         "evalImages": "t10k-images-idx3-ubyte.gz", "evalLabels": "t10k-labels-idx1-ubyte.gz"}
PLACE = f"s3://{object_store.BUCKET}/fashion"
SETTINGS = ["model.name=mlp", "steps=12", "deterministic=true", "optimizer.name=SGD", "evaluateEverySteps=0"]


class ObjectRun(unittest.TestCase):
    store = None
    provider = None
    folder = None

    def trainyard(self, *words, **environment):
        return subprocess.run([TRAINYARD, *words], env={**os.environ, **self.store.environment(), **environment},
                              capture_output=True, text=True, timeout=240)

    def run_job(self, name, places, settings=(), **environment):
        """The job of the example with these settings; how it ended, and its folder."""
        job = self.folder / "job.yaml"
        text = (ROOT / "examples/fashion-mnist/ps-sync.yaml").read_text()
        job.write_text(re.sub(r"\n      (dropout|decay|  every|  rate): ?[\d.]*|\n        (every|rate): [\d.]+", "", text))
        words = [f"--set=training.{setting}" for setting in (*SETTINGS, *settings)]
        words += [f"--set=training.data.{field}={places}/{file}" for field, file in FILES.items()]
        folder = self.folder / name
        done = self.trainyard("run", "-f", job, "--dir", folder, "--volume", f"data={DATA}", *words, **environment)
        return done, folder

    def digest(self, *run):
        done, folder = self.run_job(*run)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return self.told_digest(folder)

    def told_digest(self, folder):
        told = self.trainyard("checkpoint", "digest", folder)
        self.assertEqual(0, told.returncode, told.stderr)
        return told.stdout.split()[-1]

    def logged(self, name):
        return "\n".join(path.read_text() for path in sorted((self.folder / name).glob("**/*.log")))

    def test_1_data(self):
        expected = self.digest("disk", DATA)
        self.assertEqual(expected, self.digest("fetched", PLACE))
        cache = self.folder / "cache"
        cache.mkdir()
        for run in ("copied", "again"):
            self.assertEqual(expected, self.digest(run, PLACE, [f"data.cache={cache}"]))
        self.assertEqual(len(FILES), len(list(cache.iterdir())))
        self.assertRegex(self.logged("copied"), f"{PLACE}/{FILES['images']} is kept as {cache}/")
        self.assertRegex(self.logged("again"), f"{PLACE}/{FILES['images']} is read from {cache}/")
        self.assertNotIn("is kept as", self.logged("again"))

    def test_2_who_has_no_key_is_told(self):
        done, _ = self.run_job("refused", PLACE, AWS_SECRET_ACCESS_KEY="another")
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn(f"training.data.labels: {PLACE}/{FILES['labels']}: SignatureDoesNotMatch", done.stdout + done.stderr)

    def test_3_first_weights(self):
        """Of a checkpoint that lies in the store, as of one on a disk."""
        for file in (self.folder / "disk" / "checkpoints").iterdir():
            self.store.put(f"runs/first/checkpoints/{file.name}", file.read_bytes())
        runs = [self.digest(f"after-{at}", DATA, [f"initFrom={place}"])
                for at, place in enumerate((self.folder / "disk", f"s3://{object_store.BUCKET}/runs/first"))]
        self.assertEqual(runs[0], runs[1])
        self.assertNotEqual(runs[0], self.digest("without", DATA))

    def test_4_followed(self):
        written = []
        for at, place in enumerate((self.folder / "disk", f"s3://{object_store.BUCKET}/runs/first")):
            out = self.folder / f"followed-{at}"
            done = self.trainyard("checkpoint", "follow", place, "-o", out, "--once")
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertTrue([json.loads(line) for line in done.stdout.splitlines()])
            written.append({file.name: file.read_bytes() for file in out.glob("*.safetensors")})
        self.assertTrue(written[0])
        self.assertEqual(written[0], written[1])

    def test_5_a_role(self):
        """Whose keys are lent to whoever has a token, and not when that is over."""
        token = self.folder / "token"
        role = {**self.store.environment_of_role(token), "AWS_ENDPOINT_URL_S3": "", "AWS_ACCESS_KEY_ID": "",
                "AWS_SECRET_ACCESS_KEY": ""}
        self.provider.write_token(token, 600)
        done, folder = self.run_job("role", PLACE, **role)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual(self.told_digest(folder), self.told_digest(self.folder / "disk"))
        self.provider.write_token(token, -1)
        done, _ = self.run_job("role-over", PLACE, **role)
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertRegex(done.stdout + done.stderr, rf"{FILES['labels']}: keys of role {identity.ROLE} from https://.*xpired")

    def test_6_behind_a_proxy(self):
        """Which is passed by data and by requests for keys, but not on the way to whom it is not for."""
        token = self.folder / "token"
        self.provider.write_token(token, 600)
        role = {**self.store.environment_of_role(token), "AWS_ENDPOINT_URL_S3": "", "AWS_ACCESS_KEY_ID": "",
                "AWS_SECRET_ACCESS_KEY": "", "NO_PROXY": "", "no_proxy": ""}
        with http_proxy.HttpProxy(self.folder) as proxy:
            done, folder = self.run_job("behind", PLACE, **role, HTTPS_PROXY=proxy.url())
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            self.assertEqual(self.told_digest(folder), self.told_digest(self.folder / "disk"))
            self.assertGreaterEqual(proxy.asked_for(self.store.address), 2)

            place = f"s3://{object_store.BUCKET}/runs/first"
            told = self.trainyard("checkpoint", "digest", place, HTTPS_PROXY=proxy.url("ann:wrong"), NO_PROXY="")
            self.assertNotEqual(0, told.returncode)
            self.assertRegex(told.stderr, rf"the proxy 127.0.0.1:{proxy.port}: answers HTTP/1\.\d 401")
            # Who answers without TLS is no store, but is asked.
            plain = self.trainyard("checkpoint", "digest", place, AWS_ENDPOINT_URL_S3=self.provider.url,
                                   HTTP_PROXY=proxy.url(), NO_PROXY="")
            self.assertNotEqual(0, plain.returncode)
            self.assertIn(f" GET {self.provider.url}/", proxy.log.read_text())
            before = proxy.asked_for(self.store.address)
            direct = self.trainyard("checkpoint", "digest", place, HTTPS_PROXY=proxy.url(), NO_PROXY="127.0.0.0/8")
            self.assertEqual(0, direct.returncode, direct.stderr)
            self.assertEqual(before, proxy.asked_for(self.store.address))


def main():
    with tempfile.TemporaryDirectory() as folder, identity.Provider(folder) as provider, \
            object_store.ObjectStore(folder, settings=identity.trusted_by(provider.url)) as store:
        for file in FILES.values():
            store.put(f"fashion/{file}", (DATA / file).read_bytes())
        ObjectRun.store, ObjectRun.provider, ObjectRun.folder = store, provider, pathlib.Path(folder)
        outcome = unittest.main(exit=False, verbosity=2, failfast=True)
    return 0 if outcome.result.wasSuccessful() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except unavailable.Unavailable as reason:
        unavailable.end(str(reason))
