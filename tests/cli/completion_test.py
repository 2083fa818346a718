#!/usr/bin/env python3
"""The scripts of `trainyard completion`, in the shells that are here."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path(os.environ["TRAINYARD_BIN"]) / "trainyard"


def script(shell):
    return subprocess.run([PROGRAM, "completion", shell], capture_output=True, text=True, check=True).stdout


class CompletionTest(unittest.TestCase):
    def bash(self, *words):
        """What bash offers for the last of `words`."""
        with tempfile.TemporaryDirectory() as home:
            job = pathlib.Path(home) / "runs" / "fashion"
            job.mkdir(parents=True)
            (job / "job.json").write_text('{"metadata": {"name": "fashion", "uid": "u"}, "spec": {}}')
            code = (f"{script('bash')}\nCOMP_WORDS=({' '.join(map(repr, words))})\n"
                    f"COMP_CWORD={len(words) - 1}\n_trainyard\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"")
            environment = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": home}
            done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=home, env=environment)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.split()

    def test_bash_completes_verbs_flags_and_jobs(self):
        verbs = self.bash("trainyard", "")
        for verb in ("run", "get", "top", "report", "doctor", "completion"):
            self.assertIn(verb, verbs)
        self.assertNotIn("launch", verbs)  # hidden
        self.assertEqual({"submit", "suspend"}, set(self.bash("trainyard", "su")))
        self.assertIn("--follow", self.bash("trainyard", "logs", "--f"))
        self.assertEqual(["--image"], self.bash("trainyard", "submit", "--i"))
        self.assertEqual(["--horovod"], self.bash("trainyard", "run", "--ho"))
        self.assertEqual(["fashion"], self.bash("trainyard", "logs", "fa"))
        self.assertEqual(["bash", "zsh", "fish"], self.bash("trainyard", "completion", ""))

    def test_other_shells_read_their_scripts(self):
        for shell, arguments in (("zsh", ["-n"]), ("fish", ["--no-execute"])):
            with self.subTest(shell=shell):
                text = script(shell)
                self.assertIn("trainyard get -o name", text)
                if shutil.which(shell) is None:
                    self.skipTest(f"there is no {shell} here")
                with tempfile.NamedTemporaryFile("w", suffix=f".{shell}") as file:
                    file.write(text)
                    file.flush()
                    done = subprocess.run([shell, *arguments, file.name], capture_output=True, text=True)
                self.assertEqual(0, done.returncode, done.stderr)


if __name__ == "__main__":
    unittest.main()
