"""Rows of bad_input_test.py about what is not installed, or another version. One process does them all."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import trainyard as ty
from bad_input import Batch, kept
from trainyard import _library


def load(make):
    """init() with the library that make(folder) gives."""
    def misuse(_):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TRAINYARD_LIBRARY"] = make(folder)
            ty.init(rank=0, size=1)

    return misuse


def garbage(folder):
    path = pathlib.Path(folder) / "libtrainyard.so"
    path.write_bytes(b"\x7fELF and no more")
    return str(path)


def compiled(text):
    """A library of this C."""
    def make(folder):
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
        if compiler is None:
            raise unittest.SkipTest("no C compiler")
        path = f"{folder}/libtrainyard.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", path], check=True, input=text.encode())
        return path

    return make


def without_torch(function):
    """As where torch is not installed."""
    def misuse(_):
        hidden = {name: module for name, module in sys.modules.items()
                  if name.split(".")[0] == "torch" or name.startswith("trainyard.torch")}
        for name in hidden:
            del sys.modules[name]
        sys.modules["torch"] = None
        try:
            function()
        finally:
            del sys.modules["torch"]
            sys.modules.update(hidden)

    return misuse


def import_torch_part():
    import trainyard.torch  # noqa: F401


def install_horovod_names():
    import trainyard.compat
    trainyard.compat.install()


ROWS = [
    kept("no library", load(lambda folder: f"{folder}/libtrainyard.so"),
         ty.LibraryError, "libtrainyard.so", "No such file", "set TRAINYARD_LIBRARY"),
    kept("a library that is none", load(garbage), ty.LibraryError, "libtrainyard.so", "set TRAINYARD_LIBRARY"),
    kept("a folder as library", load(lambda folder: folder), ty.LibraryError, "set TRAINYARD_LIBRARY"),
    kept("another library", load(compiled("int other(void) { return 1; }")),
         ty.LibraryError, "not trainyard's library", "ty_abi_version"),
    kept("a library of another version", load(compiled("int ty_abi_version(void) { return 999; }")),
         ty.LibraryError, "ABI version is 999", f"needs {_library.ABI_VERSION}"),
    kept("a library without a function",
         load(compiled(f"int ty_abi_version(void) {{ return {_library.ABI_VERSION}; }}")),
         ty.LibraryError, "no function ty_"),
    kept("no library and no exception to catch", lambda _: ty.shutdown()),
    kept("no torch", without_torch(import_torch_part), ImportError, "trainyard.torch needs torch", "pip install torch"),
    kept("no torch for Horovod's names", without_torch(install_horovod_names), ImportError,
         "trainyard.torch needs torch"),
]

BATCH = Batch("not installed", 1, ROWS, lambda: (None, lambda: None))
