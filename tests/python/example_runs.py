"""The scripts of examples/pytorch as two ranks by hand, and the weights that a script leaves.

Importing this ends the process as a skipped test where torch or the data are missing.
"""
import os
import pathlib
import shutil
import subprocess
import sys

try:
    import torch
except ImportError:
    print("torch is not installed (Debian: python3-torch)")
    sys.exit(77)

from ranks import free_port

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
EXAMPLES = SOURCE / "examples/pytorch"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
LIMIT = 180  # seconds; against hangs only

if not DATA.exists():
    print(f"{DATA} is missing (Debian: dataset-fashion-mnist)")
    sys.exit(77)


def library():
    return (BIN.parent / "lib/libtrainyard.so").resolve()


def environment(folder, steps):
    """Variables by which scripts find the package. It is put into the folder as the wheel has it: with the library."""
    site = folder / "site"
    shutil.copytree(SOURCE / "python/trainyard", site / "trainyard", ignore=shutil.ignore_patterns("*.pyc"))
    (site / "trainyard/libtrainyard.so").symlink_to(library())
    return {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "STEPS": str(steps),
            "PYTHONDONTWRITEBYTECODE": "1"}


def by_hand(script, folder, variables):
    """Two ranks of a script in a new folder. Returns the checkpoint's path; AssertionError: they did not end well."""
    folder.mkdir()
    port = free_port()
    ranks = []
    try:
        for rank in range(2):
            told = {**variables, "CHECKPOINT": str(folder / "fashion.pt"), "RANK": str(rank), "WORLD_SIZE": "2",
                    "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port)}
            ranks.append(subprocess.Popen([sys.executable, script], cwd=EXAMPLES, env=told, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        for rank in ranks:
            output = rank.communicate(timeout=LIMIT)[0]
            if rank.returncode != 0:
                raise AssertionError(f"{script} ended with {rank.returncode}: {output}")
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return folder / "fashion.pt"


def saved(checkpoint):
    """What a script has written: net, optimizer, step."""
    return torch.load(checkpoint)


def largest_difference(weights, others):
    """Of any weight; 0.0 where all bits are the same."""
    assert weights.keys() == others.keys(), (weights.keys(), others.keys())
    return torch.stack([(weights[name] - others[name]).abs().max() for name in weights]).max().item()
