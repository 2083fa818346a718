#!/usr/bin/env python3
"""SBOMs: packages and licences as Debian says them, and every file of an image once. SPDX's own tools read those
of real images in release_test.py."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from archive import ROOT, Archive

import debian
import oci
import sbom

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Source: somewhere

Files: *
Copyright: somebody
License: {}

Files: debian/*
Copyright: somebody else
License: whatever

License: Expat
 Permission is granted.
 .
 License: this is text.
"""


class Debian(unittest.TestCase):
    def test_licences_are_named_where_they_are_certain(self):
        for name, expected in (("Expat", "MIT"), ("GPL-2+", "GPL-2.0-or-later"), ("LGPL-2.1", "LGPL-2.1-only"),
                               ("Apache-2.0 or Expat", "Apache-2.0 OR MIT"), ("BSD-3-clause", "BSD-3-Clause"),
                               ("MIT", None), ("public-domain", None), ("Expat with something", None), ("", None),
                               ("Expat and GPL-2 or ISC", None), ("GPL-3+ with GCC exception", None)):
            self.assertEqual(expected, debian.declared(COPYRIGHT.format(name)), name)
        self.assertIsNone(debian.declared("This package was debianised by somebody.\n\nLicense: Expat\n"))
        both = COPYRIGHT.format("Expat or ISC") + "\nFiles: third/*\nLicense: Zlib\n text\n"
        self.assertEqual("(ISC OR MIT) AND Zlib", debian.declared(both))

    def test_files_have_owners(self):
        libc = pathlib.Path("/lib/x86_64-linux-gnu/libc.so.6").resolve()
        own = pathlib.Path(__file__).resolve()
        found = debian.owners([libc, own])
        self.assertEqual([libc], list(found))
        self.assertEqual(("libc6", "glibc", "amd64"), (found[libc].name, found[libc].source, found[libc].architecture))
        self.assertRegex(found[libc].version, r"^\d")
        self.assertTrue(found[libc].copyright().is_file())


class Document(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name in ("trainyard-operator", "trainyard-operator-cpprestsdk", "trainyard-agent", "trainyard-runtime"):
            shutil.copy(shutil.which("true"), self.folder / name)
        done = subprocess.run([sys.executable, "-B", ROOT / "deploy/image/images.py", "--bin", self.folder, "--out",
                               self.folder, "--version", "1.2.3", "trainyard-operator", "trainyard-agent"],
                              capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": "86400"})
        self.assertEqual(0, done.returncode, done.stderr)

    def path(self, name):
        return self.folder / f"{name}.spdx.json"

    def test_it_holds_every_file_of_the_image_and_whose_it_is(self):
        for name in ("trainyard-operator", "trainyard-agent"):
            document = json.loads(self.path(name).read_text())
            archive = Archive(self.folder / f"{name}.tar")
            expected = {f"./{path}": hashlib.sha256(data).hexdigest()
                        for path, (_, data) in archive.entries.items() if data is not None}
            sums = {file["fileName"]: {one["algorithm"]: one["checksumValue"] for one in file["checksums"]}
                    for file in document["files"]}
            self.assertEqual(expected, {path: each["SHA256"] for path, each in sums.items()})
            packages = {package["SPDXID"]: package for package in document["packages"]}
            names = {package["name"]: package for package in packages.values()}
            self.assertEqual("Apache-2.0", names["trainyard"]["licenseDeclared"])
            self.assertIn("pkg:deb/", names["libc6"]["externalRefs"][0]["referenceLocator"])
            self.assertIn(oci.identity(self.folder / f"{name}.tar")[1].replace(":", "%3A"),
                          names[name]["externalRefs"][0]["referenceLocator"])
            files = {file["SPDXID"]: file["fileName"] for file in document["files"]}
            held = {}
            for relation in document["relationships"]:
                if relation["relatedSpdxElement"] in files:
                    held[files[relation["relatedSpdxElement"]]] = packages[relation["spdxElementId"]]["name"]
            self.assertEqual(set(expected), set(held))
            self.assertNotIn(name, held.values())  # nothing of which nobody knows where it is from
            home = "./opt/trainyard/agent" if name == "trainyard-agent" else "./usr/bin"
            self.assertEqual("trainyard", held[f"{home}/{name}"])
            self.assertEqual("libc6", held["./usr/share/doc/libc6/copyright"])
            self.assertEqual("1970-01-02T00:00:00Z", document["creationInfo"]["created"])

    def test_what_nobody_knows_is_the_images_own(self):
        text = sbom.document("image", "1", "sha256:00", sbom.files([oci.Entry("/a", text=b"A")], {}), 0)
        document = json.loads(text)
        self.assertIn({"spdxElementId": "SPDXRef-Image", "relationshipType": "CONTAINS",
                       "relatedSpdxElement": "SPDXRef-File-0"}, document["relationships"])


if __name__ == "__main__":
    unittest.main()
