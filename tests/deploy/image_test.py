#!/usr/bin/env python3
"""Image archives: the same bytes for the same files, digests that hold, and nothing missing."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from archive import ROOT, Archive

import closure
import images
import oci

NAME = "registry.test/some/image:1"


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


def build(out, programs, *more, **environment):
    return subprocess.run([sys.executable, "-B", ROOT / "deploy/image/images.py", "--bin", programs, "--out", out,
                           "--version", "1.2.3", "--registry", "registry.test/t", *more],
                          capture_output=True, text=True, env={**os.environ, **environment})


def programs_of(names):
    return {program for name in names for program in images.KINDS[name].programs}


class Images(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.programs = self.copies("programs", *programs_of(images.KINDS))

    def copies(self, folder, *names):
        """Any dynamic program will do for what is asked here."""
        (self.folder / folder).mkdir()
        for name in names:
            shutil.copy(shutil.which("true"), self.folder / folder / name)
        return self.folder / folder

    def test_what_every_image_has(self):
        done = build(self.folder, self.programs, *images.KINDS)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(len(images.KINDS), done.stdout.count("MB compressed"), done.stdout)
        for name in images.KINDS:
            self.check(name, Archive(self.folder / f"{name}.tar"))

    def check(self, name, archive):
        config = archive.image["config"]
        self.assertRegex(config["User"], r"^[1-9]\d*:[1-9]\d*$")
        self.assertEqual("1.2.3", config["Labels"]["org.opencontainers.image.version"])
        self.assertIn(config["Entrypoint"][0].lstrip("/"), archive.entries)
        self.assertEqual(0o1777, archive.entries["tmp"][0].mode)
        self.assertIn("usr/share/doc/libc6/copyright", archive.entries)
        if name != "trainyard-agent":
            self.assertIn(closure.LOADER.lstrip("/"), archive.entries)
            self.assertEqual({f"usr/bin/{program}" for program in images.KINDS[name].programs},
                             {path for path in archive.entries if path.startswith("usr/bin/")})
            return
        home = images.HOME.lstrip("/")
        program = archive.entries[f"{home}/trainyard-agent"][1]
        self.assertIn(f"{images.HOME_LIBRARIES}/ld-linux-x86-64.so.2\0".encode(), program)
        self.assertNotIn("lib64", {path.split("/")[0] for path in archive.entries})

    def test_the_same_programs_give_the_same_bytes_whenever_and_wherever(self):
        other = self.copies("elsewhere", *programs_of(images.RELEASE))
        for at, path in enumerate(other.iterdir()):
            os.utime(path, (at, at))
            path.chmod(0o700)
        day = {"SOURCE_DATE_EPOCH": "86400"}
        for programs, out, more in ((self.programs, "first", {"TZ": "UTC"}), (other, "second", {"TZ": "Asia/Tokyo"})):
            done = build(self.folder / out, programs, **day, **more)
            self.assertEqual(0, done.returncode, done.stderr)
        made = sorted(path.name for path in (self.folder / "first").iterdir())
        self.assertEqual(sorted(f"{name}{kind}" for name in images.RELEASE for kind in (".tar", ".spdx.json")), made)
        for name in made:
            self.assertEqual((self.folder / "first" / name).read_bytes(), (self.folder / "second" / name).read_bytes())

    def test_what_is_too_big_is_named(self):
        small = {"trainyard-agent": images.Kind(("trainyard-agent",), compressed=0, unpacked=1)}
        command = ["images", "--bin", str(self.programs), "--out", str(self.folder), "--version", "1", "trainyard-agent"]
        with (mock.patch.dict(images.KINDS, small), mock.patch.object(sys, "argv", command),
              mock.patch("sys.stderr") as errors, mock.patch("sys.stdout"), self.assertRaises(SystemExit) as ended):
            images.main()
        self.assertEqual(1, ended.exception.code)
        told = "".join(call.args[0] for call in errors.write.call_args_list)
        self.assertIn("trainyard-agent is above 1 MB unpacked", told)
        self.assertIn("trainyard-agent is above 0 MB compressed", told)

    def test_programs_that_are_not_built_are_named(self):
        done = build(self.folder, self.copies("empty"))
        self.assertNotEqual(0, done.returncode)
        self.assertIn("trainyard-operator is not built", done.stderr)


if __name__ == "__main__":
    unittest.main()
