#!/usr/bin/env python3
"""The preset gpu configures, compiles and links without an installed toolkit and without a GPU; also
trainyard-runtime-torch, with the system's LibTorch.

build_with_wheels.py VENV BUILD: makes the virtual environment VENV with the wheels pinned in
deploy/wheels_cuda.txt (kept for the next time), builds the programs against them in BUILD, and runs the
tests: on a machine with a GPU they test, elsewhere they must say that there is none. Exits 77 when there
are no wheels because the package index cannot be reached.
"""
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(SOURCE / "deploy"))
from venv_of import make_venv  # noqa: E402

SKIPPED = 77
NO_GPU = "skipped: no GPU: "
TESTS = ("nccl_test", "nccl_training_test")
RUNTIME = "bin/trainyard-runtime-torch"


def run(command, seconds):
    """What `command` printed; ends the test where it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=seconds, cwd=SOURCE)
    if done.returncode != 0:
        print(done.stdout[-8000:])
        sys.exit(f"failed: {command[0]} ended with {done.returncode}")
    return done.stdout


def check_test(program):
    """Whether it tested on a GPU; without any it must have skipped."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    hidden = subprocess.run([str(program)], env=environment, timeout=120, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert hidden.returncode == 0 and NO_GPU in hidden.stdout, hidden.stdout[-4000:]
    output = run([program], 300)
    told = [line.strip() for line in output.splitlines() if NO_GPU in line]
    if not told:
        assert "[  PASSED  ]" in output and "[  SKIPPED ]" not in output, output[-4000:]
    print(f"{program.name}: {told[0] if told else 'passed on a GPU'}")


def main():
    venv, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    if make_venv(venv, SOURCE / "deploy/wheels_cuda.txt") is None:
        print("skipped: the Python package index cannot be reached, so there is no CUDA to compile with")
        return SKIPPED
    roots = list(venv.glob("lib/python3*/site-packages/nvidia"))
    assert len(roots) == 1, roots
    run(["cmake", "--log-level=WARNING", "--preset", "gpu", "-B", build,
         f"-DTRAINYARD_CUDA_ROOT={roots[0]}", "-DTRAINYARD_WITH_TORCH=ON"], 300)
    run(["cmake", "--build", build, "--target", "trainyard-runtime-torch", *TESTS], 1800)
    assert "libnccl.so" in run(["ldd", build / RUNTIME], 60), "trainyard-runtime-torch does without NCCL"
    print(run([build / RUNTIME, "version"], 60).strip())
    for test in TESTS:
        check_test(build / "tests" / test)
    print("compiled and linked with NCCL from wheels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
