"""The shared libraries that a program needs, from ldd."""
import pathlib
import re
import subprocess

LOADER = "/lib64/ld-linux-x86-64.so.2"


def libraries(program):
    """{soname: path on this machine} of all that `program` links, the loader left out.

    Raises ValueError when one is missing.
    """
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"ldd {program}: {(done.stderr or done.stdout).strip()}")
    return parse(done.stdout, program)


def parse(text, program):
    found = {}
    for line in text.splitlines():
        line = line.strip()
        if "not found" in line:
            raise ValueError(f"{program}: {line}")
        match = re.fullmatch(r"(\S+) => (/\S+) \(0x[0-9a-f]+\)", line)
        if match:
            found[match.group(1)] = pathlib.Path(match.group(2)).resolve()
        elif not line.startswith(("linux-vdso", "linux-gate", LOADER)) and line != "statically linked":
            raise ValueError(f"{program}: ldd says {line!r}")
    return found
