#!/usr/bin/env python3
"""deploy/install_packages.sh against stand-ins for dpkg-query, apt-get, id and sudo."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent

# Packages count as installed when a file of their name lies in installed/. apt-get install does that
# for all it is asked for; before `update` it fails when there is a file "stale".
DPKG_QUERY = """#!/bin/bash
for name in "$@"; do
  case $name in --*) ;; *) [ -e STATE/installed/$name ] && echo "ii  $name";; esac
done
exit 1
"""
APT_GET = """#!/bin/bash
echo "$@" >>STATE/calls
words=("$@")
for word in "$@"; do
  if [ "$word" = update ]; then rm -f STATE/stale; exit 0; fi
done
[ ! -e STATE/stale ] || exit 100
[ ! -e STATE/broken ] || { echo no space left; exit 100; }
for word in "$@"; do case $word in -*|install|*=*) ;; *) touch STATE/installed/$word;; esac; done
"""


LISTS = """# comment

[first]
one
two  # why
[second]
two
three
[empty]
"""


class InstallPackages(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for folder in ("deploy", "bin", "installed"):
            (self.root / folder).mkdir()
        shutil.copy(SOURCE / "deploy/install_packages.sh", self.root / "deploy")
        (self.root / "deploy/packages.txt").write_text(LISTS)
        for tool in ("bash", "env", "sed", "awk", "sort", "comm", "mkdir", "dirname", "touch", "rm"):
            os.symlink(shutil.which(tool), self.root / "bin" / tool)
        self.tool("dpkg-query", DPKG_QUERY)
        self.tool("apt-get", APT_GET)
        self.tool("id", "#!/bin/bash\necho 0\n")

    def tool(self, name, text):
        path = self.root / "bin" / name
        path.write_text(text.replace("STATE", str(self.root)))
        path.chmod(0o755)

    def run_it(self, *lists):
        done = subprocess.run(
            [shutil.which("bash"), self.root / "deploy/install_packages.sh", *(lists or ["first"])], env={"PATH": str(self.root / "bin")},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return done.returncode, done.stdout, done.stderr

    def calls(self):
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def test_nothing_to_do(self):
        for name in ("one", "two"):
            (self.root / "installed" / name).touch()
        self.assertEqual(self.run_it(), (0, "packages: all 2 for first are installed\n", ""))
        self.assertEqual(self.calls(), [])

    def test_installs_only_what_is_missing_without_update(self):
        (self.root / "installed/one").touch()
        code, _, error = self.run_it()
        self.assertEqual((code, error), (0, ""))
        self.assertEqual(len(self.calls()), 1)
        self.assertTrue(self.calls()[0].endswith("install --no-install-recommends two"), self.calls())

    def test_installs_the_union_of_the_lists(self):
        self.assertEqual(self.run_it("second", "first")[0], 0)
        self.assertTrue(self.calls()[0].endswith("install --no-install-recommends one three two"), self.calls())

    def test_lists_that_are_not_there(self):
        code, _, error = self.run_it("first", "third")
        self.assertEqual((code, error), (1, "packages: deploy/packages.txt has no list third, only first second empty\n"))
        code, _, error = self.run_it("empty")
        self.assertEqual((code, error), (1, "packages: deploy/packages.txt: no package for empty\n"))
        self.assertEqual(self.calls(), [])

    def test_stale_lists_are_refreshed(self):
        (self.root / "stale").touch()
        self.assertEqual(self.run_it()[0], 0)
        self.assertEqual(["update" in call.split() for call in self.calls()], [False, True, False])

    def test_failure_names_packages_and_log(self):
        (self.root / "broken").touch()
        code, _, error = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("one two", error)
        self.assertIn("build/packages.log", error)
        self.assertIn("no space left", (self.root / "build/packages.log").read_text())

    def test_neither_root_nor_sudo(self):
        self.tool("id", "#!/bin/bash\necho 1000\n")
        code, _, error = self.run_it()
        self.assertEqual(code, 1)
        self.assertEqual(error, "packages: neither root nor sudo; as root, run: apt-get install "
                                "--no-install-recommends one two\n")

    def test_sudo_is_used(self):
        self.tool("id", "#!/bin/bash\necho 1000\n")
        self.tool("sudo", '#!/bin/bash\necho sudo >>STATE/sudo\n[ "$1" = -n ] && exit 0\nexec "$@"\n')
        self.assertEqual(self.run_it()[0], 0)
        self.assertTrue((self.root / "sudo").exists())

    def test_sudo_that_wants_a_password_without_a_terminal(self):
        self.tool("id", "#!/bin/bash\necho 1000\n")
        self.tool("sudo", "#!/bin/bash\nexit 1\n")
        code, _, error = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("wants a password", error)

    def test_not_debian(self):
        (self.root / "bin/dpkg-query").unlink()
        code, _, error = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("PACKAGES=skip", error)


if __name__ == "__main__":
    unittest.main()
