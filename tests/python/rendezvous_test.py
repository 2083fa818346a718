#!/usr/bin/env python3
"""Who a process is, where the ranks meet, which library is loaded, and memory: what needs no other process."""
import array
import ctypes.util
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TRAINYARD_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(SOURCE / "python"))

from trainyard import (ForkedProcess, InvalidArgument, LibraryError, RankLost, RankSilent, TimedOut,  # noqa: E402
                       TrainyardError)
from trainyard import _library, _memory  # noqa: E402
from trainyard._rendezvous import (Meeting, Place, find_locality, find_meeting, find_place, is_loopback,  # noqa: E402
                                   listen_address, split_address)

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
MASTER = {"MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
SECRET = {"TRAINYARD_SECRET": "s"}


class PlaceTest(unittest.TestCase):
    def test_of_launchers(self):
        for environment, expected in (
                ({}, Place(0, 1, 0, 1, "alone")),
                (TORCHRUN, Place(2, 4, 0, 2, "torchrun")),
                ({"RANK": "0", "WORLD_SIZE": "1"}, Place(0, 1, None, None, "torchrun")),
                ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                  "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, Place(1, 2, 1, 2, "Open MPI")),
                ({"PMI_RANK": "3", "PMI_SIZE": "4"}, Place(3, 4, None, None, "MPI")),
                ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}, Place(5, 8, 1, None, "SLURM")),
                ({**TORCHRUN, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, Place(2, 4, 0, 2, "torchrun"))):
            self.assertEqual(find_place(environment), expected)

    def test_arguments_come_first(self):
        self.assertEqual(find_place(TORCHRUN, rank=0, size=3), Place(0, 3, None, None, "init()"))
        self.assertEqual(find_place(TORCHRUN, local_rank=1), Place(2, 4, 1, 2, "torchrun"))

    def test_refusals(self):
        for environment, arguments, words in (
                ({"RANK": "1"}, {}, "WORLD_SIZE is not set, but RANK is"),
                ({"WORLD_SIZE": "2"}, {}, "RANK is not set, but WORLD_SIZE is"),
                ({"SLURM_PROCID": "1"}, {}, "SLURM_NTASKS is not set"),
                ({"RANK": "one", "WORLD_SIZE": "2"}, {}, "RANK: 'one' is not a number"),
                ({"RANK": "2", "WORLD_SIZE": "2"}, {}, "rank: 2 is not from 0 to 1"),
                ({"RANK": "-1", "WORLD_SIZE": "2"}, {}, "rank: -1"),
                ({"RANK": "0", "WORLD_SIZE": "0"}, {}, "size: 0 is below 1"),
                ({}, {"rank": 1}, "rank and size are given together"),
                ({}, {"rank": 0, "size": 2, "local_rank": 5}, "local_rank: 5")):
            with self.assertRaises(InvalidArgument, msg=words) as caught:
                find_place(environment, **arguments)
            self.assertIn(words, str(caught.exception))


class MeetingTest(unittest.TestCase):
    def test_places(self):
        two, one_machine = Place(0, 2), Place(0, 2, 0, 2)
        for environment, place, arguments, expected in (
                ({}, Place(0, 1), {}, None),
                ({**MASTER, **SECRET}, two, {}, Meeting("node0", 29501, "s")),
                (MASTER, one_machine, {}, Meeting("127.0.0.1", 29501, None)),
                ({"MASTER_ADDR": "localhost", "MASTER_PORT": "1000"}, two, {}, Meeting("localhost", 1001, None)),
                ({**MASTER, **SECRET, "TRAINYARD_RENDEZVOUS": "agent:7"}, one_machine, {}, Meeting("agent", 7, "s")),
                ({**MASTER, **SECRET}, two, {"address": "[fd00::1]:80", "secret": "t"}, Meeting("fd00::1", 80, "t"))):
            self.assertEqual(find_meeting(environment, place, **arguments), expected)

    def test_refusals(self):
        two = Place(1, 2, None, None, "SLURM")
        for environment, words in (
                ({}, "set TRAINYARD_RENDEZVOUS=host:port"),
                ({"MASTER_ADDR": "node0"}, "2 ranks (SLURM), and nobody said where they meet"),
                (MASTER, "set TRAINYARD_SECRET"),
                ({"TRAINYARD_RENDEZVOUS": "10.0.0.1:80"}, "10.0.0.1:80 is not on this machine"),
                ({"TRAINYARD_RENDEZVOUS": "node0"}, "TRAINYARD_RENDEZVOUS: 'node0' is not host:port"),
                ({"TRAINYARD_RENDEZVOUS": "node0:0"}, "is not host:port"),
                ({"MASTER_ADDR": "node0", "MASTER_PORT": "65535"}, "MASTER_PORT: 65535"),
                ({"MASTER_ADDR": "node0", "MASTER_PORT": "x"}, "MASTER_PORT: 'x' is not a number")):
            with self.assertRaises(InvalidArgument, msg=words) as caught:
                find_meeting(environment, two)
            self.assertIn(words, str(caught.exception))

    def test_addresses(self):
        self.assertEqual(split_address("[::1]:5", "x"), ("::1", 5))
        self.assertTrue(all(map(is_loopback, ("localhost", "127.0.0.1", "127.1.2.3", "::1"))))
        self.assertFalse(any(map(is_loopback, ("node0", "128.0.0.1", "127.example.org", "0.0.0.0", "::"))))
        self.assertEqual([listen_address(host) for host in ("localhost", "::1", "node0", "fd00::1")],
                         ["127.0.0.1", "::1", "0.0.0.0", "::"])

    def test_locality(self):
        addresses = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.2:2", "10.0.0.2:3"]
        self.assertEqual([find_locality(addresses, Place(rank, 5)) for rank in range(5)],
                         [(0, 2, 0, 2), (1, 2, 0, 2), (0, 3, 1, 2), (1, 3, 1, 2), (2, 3, 0, 1)])
        self.assertEqual(find_locality(addresses, Place(3, 5, 0, 1)), (0, 1, 1, 2))


class LibraryTest(unittest.TestCase):
    def test_which(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(_library.find_library({}, folder), "libtrainyard.so")
            self.assertEqual(_library.find_library({"TRAINYARD_LIBRARY": "/x.so"}, folder), "/x.so")
            inside = pathlib.Path(folder) / "libtrainyard.so"
            inside.touch()
            self.assertEqual(_library.find_library({"TRAINYARD_LIBRARY": "/x.so"}, folder), str(inside))

    def test_missing(self):
        with self.assertRaisesRegex(LibraryError, "/nonexistent.so.*set TRAINYARD_LIBRARY"):
            _library.open_library("/nonexistent.so")

    def test_other_library(self):
        with self.assertRaisesRegex(LibraryError, "no ty_abi_version"):
            _library.open_library(ctypes.util.find_library("c") or "libc.so.6")

    def test_other_version(self):
        compiler = next((each for each in ("cc", "gcc", "clang")
                         if subprocess.run(["which", each], capture_output=True, check=False).returncode == 0), None)
        if compiler is None:
            self.skipTest("no C compiler")
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/old.so"
            subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", path], check=True,
                           input=b"int ty_abi_version(void) { return 99; }")
            with self.assertRaisesRegex(LibraryError, "ABI version is 99, and this package needs 1"):
                _library.open_library(path)

    def test_import_is_light(self):
        code = ("import sys, trainyard; "
                "assert not {'torch', 'numpy'} & set(sys.modules), 'imports too much'; "
                "assert trainyard._library._loaded is None")
        path = os.pathsep.join([str(SOURCE / "python"), os.environ.get("PYTHONPATH", "")])
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


class ErrorsTest(unittest.TestCase):
    def test_are_what_callers_catch(self):
        self.assertTrue(issubclass(InvalidArgument, ValueError) and issubclass(InvalidArgument, TrainyardError))
        self.assertTrue(issubclass(TrainyardError, RuntimeError) and issubclass(RankSilent, (RankLost, TimedOut)))
        self.assertTrue(issubclass(RankSilent, RankLost) and not issubclass(TimedOut, RankLost))
        self.assertTrue(issubclass(ForkedProcess, TrainyardError))

    def test_travel_between_processes(self):
        error = pickle.loads(pickle.dumps(RankLost(3, "all_reduce: rank 3 died")))
        self.assertEqual((error.rank, error.operation, str(error)), (3,) + ("all_reduce: rank 3 died",) * 2)
        self.assertEqual(pickle.loads(pickle.dumps(InvalidArgument("x", 1))).rank, 1)


class MemoryTest(unittest.TestCase):
    def test_buffers(self):
        for source, elements, kind in (
                (array.array("f", [1, 2]), 2, "FLOAT32"), (array.array("d"), 0, "FLOAT64"),
                (array.array("l", [1]), 1, "INT64"), (array.array("i", [1]), 1, "INT32"),
                (bytearray(3), 3, "UINT8"), (memoryview(bytearray(4)).cast("b"), 4, "INT8"),
                (memoryview(bytearray(4)).cast("?"), 4, "BOOL"),
                (memoryview(bytearray(24)).cast("f", [2, 3]), 6, "FLOAT32")):
            found = _memory.array_of(source)
            self.assertEqual((found.elements, found.type.name), (elements, kind))

    def test_is_the_same_memory(self):
        source = array.array("i", [1, 2, 3])
        found = _memory.array_of(source)
        self.assertEqual(found.address, source.buffer_info()[0])
        with self.assertRaises(BufferError):
            source.append(4)
        del found
        source.append(4)

    def test_refusals(self):
        for source, words in (
                (b"abc", "tensor w: uint8 of shape [3] is read-only"),
                (memoryview(bytearray(8))[::2], "tensor w: uint8 of shape [4] is not contiguous: its strides are [2]"),
                (array.array("h", [1]), "tensor w: format 'h' is not among float32"),
                ([1.0], "tensor w: list has neither a buffer nor __dlpack__"),
                (None, "tensor w: NoneType has neither")):
            with self.assertRaises(InvalidArgument, msg=words) as caught:
                _memory.array_of(source, "w")
            self.assertIn(words, str(caught.exception))
        self.assertEqual(_memory.array_of(b"abc", writable=False).elements, 3)

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no numpy")
        for name in ("float32", "float16", "float64", "int32", "int64", "uint8", "int8", "bool"):
            self.assertEqual(_memory.array_of(numpy.zeros((2, 3), name)).type.name, name.upper())
        with self.assertRaisesRegex(InvalidArgument, r"float64 of shape \[3, 2\] is not contiguous.*\[8, 24\] bytes"):
            _memory.array_of(numpy.zeros((2, 3)).T)

    def test_torch_and_dlpack(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")

        class Foreign:
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self):
                return self.tensor.__dlpack__()

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

        for source in (torch.arange(6.), Foreign(torch.arange(6.))):
            found = _memory.array_of(source)
            tensor = source if isinstance(source, torch.Tensor) else source.tensor
            self.assertEqual((found.address, found.elements, found.type.name), (tensor.data_ptr(), 6, "FLOAT32"))
        for source in (torch.zeros(2, 3).t(), Foreign(torch.zeros(2, 3).t())):
            with self.assertRaisesRegex(InvalidArgument, r"not contiguous: its strides are \[1, 3\] elements"):
                _memory.array_of(source)
        with self.assertRaisesRegex(InvalidArgument, "torch.int16 is not among"):
            _memory.array_of(torch.zeros(2, dtype=torch.int16))
        with self.assertRaisesRegex(InvalidArgument, "is on meta"):
            _memory.array_of(torch.zeros(2, device="meta"))


if __name__ == "__main__":
    unittest.main()
