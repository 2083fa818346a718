#!/usr/bin/env python3
"""The wheel in an empty environment: it installs without anything else, imports fast and without torch, and two ranks
put numbers together. Shown are its size, what it needs of the system, and what its library exports.

    wheel_test.py VENVS
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

BUILD = pathlib.Path(os.environ["TRAINYARD_BIN"]).parent
SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/python"))

from ranks import free_port  # noqa: E402

MOST_BYTES = 10 << 20
RANK = """
import array, sys, time
begin = time.perf_counter()
import trainyard as ty
took = time.perf_counter() - begin
assert not {"torch", "numpy"} & set(sys.modules), "torch or numpy was imported"
group = ty.init()
numbers = array.array("d", [ty.rank() + 1.0, 5.0])
group.all_reduce(numbers)
assert list(numbers) == [3.0, 10.0], numbers
print(f"import {took * 1e3:.0f} ms")
ty.shutdown()
"""


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300,
                          **options)
    if done.returncode not in (0, 77):
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def build(out):
    made = run(sys.executable, SOURCE / "deploy/wheel/wheel.py", "--library", BUILD / "lib/libtrainyard.so", "--out", out)
    if made.returncode == 77:
        print(made.stdout.strip().splitlines()[-1])
        sys.exit(77)
    return pathlib.Path(made.stdout.strip().splitlines()[-1])


def check_content(wheel, folder):
    size = wheel.stat().st_size
    assert size <= MOST_BYTES, f"{size} bytes"
    assert wheel.name.endswith("py3-none-manylinux_2_34_x86_64.whl"), wheel.name
    with zipfile.ZipFile(wheel) as content:
        content.extract("trainyard/libtrainyard.so", folder)
        assert "trainyard/py.typed" in content.namelist()
    symbols = run("nm", "-D", "--defined-only", folder / "trainyard/libtrainyard.so").stdout.split()[2::3]
    strangers = [symbol for symbol in symbols if not symbol.startswith("ty_")]
    assert symbols and not strangers, f"exported: {strangers}"
    print(f"{wheel.name}: {size >> 10} KiB, {len(symbols)} symbols")


def check_ranks(python, port):
    ranks = []
    for rank in range(2):
        environment = {"PATH": os.environ["PATH"], "RANK": str(rank), "WORLD_SIZE": "2",
                       "TRAINYARD_RENDEZVOUS": f"127.0.0.1:{port}"}
        ranks.append(subprocess.Popen([python, "-c", RANK], env=environment, text=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT))
    try:
        for rank in ranks:
            output = rank.communicate(timeout=60)[0]
            assert rank.returncode == 0, output
            print(output.strip())
    finally:
        for rank in ranks:
            rank.kill()


def main():
    venvs = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="trainyard-wheel-") as name:
        folder = pathlib.Path(name)
        wheel = build(venvs / "wheel")
        check_content(wheel, folder)
        run(sys.executable, "-m", "venv", folder / "venv")
        python = folder / "venv/bin/python"
        run(python, "-m", "pip", "install", "--disable-pip-version-check", "--no-index", wheel)
        check_ranks(python, free_port())


if __name__ == "__main__":
    main()
