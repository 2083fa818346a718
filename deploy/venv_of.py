"""Virtual environments of tests, below the build folder."""
import fcntl
import hashlib
import shutil
import subprocess
import sys

# What pip says when it found no way to the index, as against a version that the index does not have.
UNREACHABLE = ("NewConnectionError", "ConnectTimeout", "Connection refused", "ReadTimeout",
               "ProxyError", "Temporary failure in name resolution", "Name or service not known",
               "Network is unreachable", "Connection reset", "RemoteDisconnected", "ProtocolError")


def make_venv(venv, wheels):
    """The Python of the environment `venv` with the wheels pinned in the file `wheels`, kept for the
    next time and made anew when the list or the Python changes; None when the index cannot be reached.
    Tests that share one may run side by side."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with venv.with_name(venv.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _make_venv(venv, wheels)


def _make_venv(venv, wheels):
    python = venv / "bin/python"
    stamp = venv / "wheels.sha256"
    wanted = hashlib.sha256(wheels.read_bytes() + sys.version.encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = subprocess.run([str(python), "-m", "pip", "install", "--disable-pip-version-check",
                          "--only-binary", ":all:", "--retries", "2", "--timeout", "20",
                          "-r", str(wheels)], capture_output=True, text=True)
    if pip.returncode != 0:
        output = pip.stdout + pip.stderr
        if any(word in output for word in UNREACHABLE):
            return None
        sys.exit(f"pip install -r {wheels.name} failed:\n{output}")
    stamp.write_text(wanted)
    return python
