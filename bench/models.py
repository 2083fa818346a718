"""A step of the built-in models beside LibTorch's, in turns in one process: trainyard-bench-models."""

import json
import os
import statistics
import subprocess

PROGRAM = "trainyard-bench-models"
LIMIT = 1800  # seconds
# Flags and the number of steps of a round.
CASES = {
    "mnist_cnn, batch 128": (["--model", "mnist_cnn", "--batch", "128"], 10),
    "mnist_cnn, batch 32": (["--model", "mnist_cnn", "--batch", "32"], 20),
    "vgg19, 64x64, batch 8": (["--model", "vgg19", "--side", "64", "--channels", "3", "--batch", "8"], 3),
}
# OpenBLAS, which LibTorch multiplies with, takes a processor that it does not know for a very old one: told
# which one it is, it is as fast as it can be.
AVX512 = {"OPENBLAS_CORETYPE": "SkylakeX"}
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}
BAR = 1.0
BAR_AVX2 = 1.05


def has_avx512():
    with open("/proc/cpuinfo", encoding="ascii") as info:
        return " avx512f " in info.read()


def measure(bin_dir, rounds):
    """By case and instruction set, the runs' results."""
    sets = {"as it is": {}, "AVX2": AVX2}
    if has_avx512():
        sets["AVX-512"] = AVX512
    result = {name: {case: [] for case in CASES} for name in sets}
    for _ in range(rounds):
        for name, environment in sets.items():
            for case, (flags, steps) in CASES.items():
                ran = subprocess.run([bin_dir / PROGRAM, *flags, "--steps", str(steps)], check=True, timeout=LIMIT,
                                     capture_output=True, text=True, env={**os.environ, **environment})
                result[name][case].append(json.loads(ran.stdout))
    return result


def rows(result):
    lines = []
    for name, cases in result.items():
        bar = BAR_AVX2 if name == "AVX2" else BAR
        for case, runs in cases.items():
            ours, theirs, ratio = (statistics.median(run[key] for run in runs)
                                   for key in ("milliseconds", "libtorch", "ratio"))
            lines.append((f"a step of {case}, {name}", f"{ours:.1f} ms, {ratio:.2f} of LibTorch's",
                          f"LibTorch {theirs:.1f} ms; <= {bar}", "reached" if ratio <= bar else "missed"))
    return lines
