#!/usr/bin/env python3
"""Image archives: the same bytes for the same files, digests that hold, and nothing missing."""
import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy" / "image"))

import closure  # noqa: E402
import images  # noqa: E402
import oci  # noqa: E402

NAME = "registry.test/some/image:1"


class Archive:
    """What a container engine reads from an archive; checks every digest on the way."""

    def __init__(self, path):
        with tarfile.open(path) as archive:
            self.files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
        self.index = json.loads(self.files["index.json"])
        self.manifest = json.loads(self.blob(self.index["manifests"][0]))
        self.image = json.loads(self.blob(self.manifest["config"]))
        self.entries = {}
        for descriptor, plain_digest in zip(self.manifest["layers"], self.image["rootfs"]["diff_ids"], strict=True):
            plain = gzip.decompress(self.blob(descriptor))
            assert plain_digest == "sha256:" + hashlib.sha256(plain).hexdigest()
            with tarfile.open(fileobj=io.BytesIO(plain)) as layer:
                for member in layer.getmembers():
                    data = layer.extractfile(member).read() if member.isfile() else None
                    self.entries[member.name] = (member, data)

    def blob(self, descriptor):
        data = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert descriptor["size"] == len(data)
        assert descriptor["digest"] == "sha256:" + hashlib.sha256(data).hexdigest()
        return data


class Writing(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def source(self, name, text, mode=0o600):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def test_bytes_do_not_depend_on_order_times_or_owners(self):
        entries = [oci.file_entry("/usr/bin/a", self.source("a", "A", 0o700)), oci.Entry("/tmp", mode=0o1777),
                   oci.file_entry("/etc/b", self.source("b", "B")), oci.Entry("/bin/c", link="../usr/bin/a")]
        first = oci.write(self.folder / "1.tar", NAME, [entries], {"User": "1:1"})
        os.utime(self.folder / "a", (1, 1))
        second = oci.write(self.folder / "2.tar", NAME, [entries[::-1]], {"User": "1:1"})
        self.assertEqual(first, second)
        self.assertEqual((self.folder / "1.tar").read_bytes(), (self.folder / "2.tar").read_bytes())
        self.source("b", "other")
        third = oci.write(self.folder / "3.tar", NAME, [entries], {"User": "1:1"})
        self.assertNotEqual(first.digest, third.digest)

    def test_an_archive_holds_what_was_given(self):
        written = oci.write(self.folder / "x.tar", NAME, [
            [oci.file_entry("/usr/bin/a", self.source("a", "A", 0o711))], [oci.Entry("/l", link="usr/bin/a")]],
            {"User": "1:1", "Entrypoint": ["/usr/bin/a"]})
        self.assertEqual((NAME, written.digest), oci.identity(self.folder / "x.tar"))
        archive = Archive(self.folder / "x.tar")
        self.assertEqual("1:1", archive.image["config"]["User"])
        self.assertEqual(2, len(archive.manifest["layers"]))
        member, data = archive.entries["usr/bin/a"]
        self.assertEqual((b"A", 0o755, 0, 0), (data, member.mode, member.uid, member.mtime))
        self.assertTrue(archive.entries["usr"][0].isdir())
        self.assertEqual("usr/bin/a", archive.entries["l"][0].linkname)

    def test_one_path_has_one_content(self):
        with self.assertRaisesRegex(ValueError, "/a: two different entries"):
            oci.layer([oci.Entry("/a", text=b"1"), oci.Entry("/a", text=b"2")])

    def test_missing_libraries_are_named(self):
        with self.assertRaisesRegex(ValueError, "program: libnone.so.1 => not found"):
            closure.parse("\tlibnone.so.1 => not found\n", "program")
        found = closure.parse("\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n"
                              f"\t{closure.LOADER} (0x00007f)\n", "program")
        self.assertEqual(["libc.so.6"], list(found))


class Images(unittest.TestCase):
    def test_what_every_image_has(self):
        # Any dynamic program will do for what is asked here.
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            for name in ("trainyard-operator", "trainyard-agent", "trainyard-runtime", "trainyard-runtime-torch"):
                (folder / name).write_bytes((pathlib.Path(os.environ["TRAINYARD_BIN"]) / "yaml_to_json").read_bytes())
                (folder / name).chmod(0o755)
            done = subprocess.run([sys.executable, "-B", ROOT / "deploy/image/images.py", "--bin", folder, "--out",
                                   folder, "--version", "1.2.3", "--registry", "registry.test/t"],
                                  capture_output=True, text=True)
            self.assertEqual(0, done.returncode, done.stderr)
            self.assertEqual(3, done.stdout.count("MB compressed"), done.stdout)
            for name in images.LIMIT_MB:
                self.check(name, Archive(folder / f"{name}.tar"))

    def check(self, name, archive):
        config = archive.image["config"]
        self.assertRegex(config["User"], r"^[1-9]\d*:[1-9]\d*$")
        self.assertEqual("1.2.3", config["Labels"]["org.opencontainers.image.version"])
        self.assertIn(config["Entrypoint"][0].lstrip("/"), archive.entries)
        self.assertEqual(0o1777, archive.entries["tmp"][0].mode)
        if name != "trainyard-agent":
            self.assertIn(closure.LOADER.lstrip("/"), archive.entries)
            return
        home = images.HOME.lstrip("/")
        program = archive.entries[f"{home}/trainyard-agent"][1]
        self.assertIn(f"{images.HOME_LIBRARIES}/ld-linux-x86-64.so.2\0".encode(), program)
        self.assertNotIn("lib64", {path.split("/")[0] for path in archive.entries})

    def test_programs_that_are_not_built_are_named(self):
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run([sys.executable, "-B", ROOT / "deploy/image/images.py", "--bin", empty, "--out",
                                   empty, "--version", "1"], capture_output=True, text=True)
        self.assertNotEqual(0, done.returncode)
        self.assertIn("trainyard-operator is not built", done.stderr)


if __name__ == "__main__":
    unittest.main()
