#!/usr/bin/env python3
"""A release of this build: its images' weight, that they run, their SBOMs, and the way through a registry.

release_test.py VENV: VENV gets the wheels of deploy/wheels_spdx.txt. The registry is Debian's docker-registry, on
loopback; helm is that of the test cluster.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from archive import ROOT, Archive

import images
import oci
import push

sys.path.insert(0, str(ROOT / "deploy"))
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

from rig import build, unavailable  # noqa: E402
from venv_of import make_venv  # noqa: E402

VERSION = re.search(r"^project\(trainyard VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
CHART = ROOT / "helm" / "trainyard"
VENV = HELM = None
# Against hangs only.
SECONDS = 300


def run(*command, **more):
    """What the command printed; its failure is the test's."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=SECONDS, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def registry(folder):
    """A registry on a port that the system chose: its HOST:PORT."""
    config, log = folder / "registry.json", folder / "registry.log"
    config.write_text(json.dumps({"version": 0.1, "log": {"level": "info"}, "http": {"addr": "127.0.0.1:0"},
                                  "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}}}))
    with log.open("wb") as output:
        child = subprocess.Popen(["docker-registry", "serve", config], stdout=output, stderr=output,
                                 preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL))  # PR_SET_PDEATHSIG
    try:
        end = time.monotonic() + SECONDS
        while not (found := re.search(r"listening on (127\.0\.0\.1:\d+)", log.read_text())):
            if child.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the registry does not listen: {log.read_text()}")
            time.sleep(0.05)
        yield found[1]
    finally:
        child.kill()
        child.wait()


def build_images(out, *more):
    return run(sys.executable, "-B", ROOT / "deploy/image/images.py", "--bin", os.environ["TRAINYARD_BIN"],
               "--out", out, "--version", VERSION, *more, env={**os.environ, "SOURCE_DATE_EPOCH": "86400"})


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.images = cls.folder / "images"
        print(build_images(cls.images), end="", flush=True)  # also fails where one is too big
        cls.at = cls.enterClassContext(registry(cls.folder)) + "/team/a"
        cls.pushed = cls.push()

    @classmethod
    def push(cls, *more):
        return run(sys.executable, "-B", ROOT / "deploy/image/push.py", "--images", cls.images, "--version", VERSION,
                   "--chart", CHART, "--registry", cls.at, *more)

    def archive(self, name):
        return Archive(self.images / f"{name}.tar")

    def helm(self, *arguments):
        places = {f"HELM_{name}_HOME": str(self.folder / "helm") for name in ("CACHE", "CONFIG", "DATA")}
        return run(HELM, *arguments, env={**os.environ, **places})

    def test_programs_run_where_there_is_nothing_else(self):
        for name, options in (("trainyard-operator", ["--version"]), ("trainyard-agent", ["--help"]),
                              ("trainyard-runtime", ["--help"])):
            image = self.archive(name)
            root = self.folder / f"root-{name}"
            root.mkdir()
            image.unpack(root)
            program = image.image["config"]["Entrypoint"][0]
            enter = ["chroot", root] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--root", root]
            text = run(*enter, program, *options)
            self.assertIn(VERSION if options == ["--version"] else "Usage", text)

    def test_another_build_is_the_same(self):
        build_images(self.folder / "again", "trainyard-agent")
        for kind in (".tar", ".spdx.json"):
            first, second = (self.folder / out / f"trainyard-agent{kind}" for out in ("images", "again"))
            self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_spdx_accepts_the_sboms(self):
        python = make_venv(VENV, ROOT / "deploy" / "wheels_spdx.txt")
        if python is None:
            self.skipTest("the package index cannot be reached")

        def validate(path):
            done = subprocess.run([python.with_name("pyspdxtools"), "--infile", path, "--version", "SPDX-2.3"],
                                  capture_output=True, text=True, timeout=SECONDS)
            return done.returncode, done.stdout + done.stderr

        for name in images.RELEASE:
            self.assertEqual((0, ""), validate(self.images / f"{name}.spdx.json"))
        document = json.loads((self.images / "trainyard-runtime.spdx.json").read_text())
        known = {package["name"] for package in document["packages"]}
        self.assertLessEqual({"trainyard", "libc6", "libstdc++6", "libgrpc++1.51"}, known)
        document["files"][0]["checksums"][0]["checksumValue"] = "0"
        broken = self.folder / "broken.spdx.json"
        broken.write_text(json.dumps(document))
        self.assertNotEqual(0, validate(broken)[0])

    def test_what_is_pulled_is_what_was_built(self):
        lines = self.pushed.splitlines()
        for name in images.RELEASE:
            digest = oci.identity(self.images / f"{name}.tar")[1]
            self.assertIn(f"{self.at}/{name}:{VERSION}@{digest}", lines)
            back = self.folder / f"{name}.pulled.tar"
            run("skopeo", "copy", "--quiet", "--insecure-policy", "--src-tls-verify=false",
                f"docker://{self.at}/{name}@{digest}", f"oci-archive:{back}:{VERSION}")
            before, after = self.archive(name), Archive(back)
            self.assertEqual(before.manifest, after.manifest)
            self.assertEqual(before.blobs(), after.blobs())
            tagged = run("skopeo", "inspect", "--tls-verify=false", "--format", "{{.Digest}}",
                         f"docker://{self.at}/{name}:{VERSION}")
            self.assertEqual(digest, tagged.strip())

    def test_pushing_again_changes_nothing(self):
        self.assertEqual(self.pushed, self.push())

    def test_the_chart_is_pulled_as_it_is(self):
        out = self.folder / "charts"
        out.mkdir()
        self.helm("pull", f"oci://{self.at}/trainyard", "--version", VERSION, "--plain-http", "-d", out)
        name = f"trainyard-{VERSION}.tgz"
        self.assertEqual((self.images / name).read_bytes(), (out / name).read_bytes())
        # helm's own archive of the chart renders the same.
        self.helm("package", CHART, "-d", out / "own")
        values = ["--kube-version", "1.34.0", "--set", "rootSecret.existingSecret=own,dashboards.enabled=true,"
                  "metrics.prometheusRule.enabled=true"]
        self.assertEqual(self.helm("template", "r", out / "own" / name, *values),
                         self.helm("template", "r", out / name, *values))
        self.assertEqual(self.helm("show", "readme", out / "own" / name), self.helm("show", "readme", out / name))

    def test_an_installation_from_the_registry_finds_its_images_there(self):
        told = shlex.split(self.pushed.splitlines()[-1])
        self.assertEqual(["helm", "install"], told[:2])
        text = self.helm("template", *told[2:], "--kube-version", "1.34.0")
        named = set(re.findall(rf"{re.escape(self.at)}/\S+", text))
        # The operator names the one with LibTorch too, which is pushed on request.
        self.assertEqual({f"{self.at}/{name}:{VERSION}" for name in (*images.RELEASE, "trainyard-runtime-torch")}, named)
        for name in images.RELEASE:
            self.assertEqual(1, self.pushed.count(f"{self.at}/{name}:{VERSION}@sha256:"))

    def test_what_cannot_be_pushed_is_named(self):
        for expected, *more in (("trainyard-runtime-torch.tar is not built", "trainyard-runtime-torch"),
                                ("holds ghcr.io/trainyard/trainyard-operator", "--version", "9.9.9"),
                                ("expected HOST", "--registry", "https://somewhere"),
                                ("127.0.0.1:1/x/trainyard-operator", "--registry", "127.0.0.1:1/x")):
            with self.assertRaisesRegex(AssertionError, re.escape(expected)):
                self.push(*more)

    def test_tls_is_left_out_on_this_machine_only(self):
        for name, expected in (("localhost:5000/x", True), ("127.0.0.1:5000", True), ("127.1.2.3/x", True),
                               ("10.0.0.1:5000/x", False), ("localhost.example.com/x", False),
                               ("example.com/localhost", False)):
            self.assertEqual(expected, push.on_this_machine(name), name)


if __name__ == "__main__":
    VENV = pathlib.Path(sys.argv.pop(1)).absolute()
    try:
        build.build(["helm"])
        HELM = build.find("helm")
    except unavailable.Unavailable as error:
        unavailable.end(error)
    unittest.main()
