#!/usr/bin/env python3
"""Horovod's names over trainyard, on 1, 2 and 3 processes, against plain torch.

horovod_operations.py and horovod_training.py hold what every rank does. A run of N ranks goes through all
cases; where one fails, another run goes on behind it, since the ranks may then be out of step.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
import unittest

import ranks

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_SECONDS = 180
MARK = "case: "


def environment(rank, size, port):
    ours = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1,
            "PYTHONPATH": f"{HERE}{os.pathsep}{ranks.python_path()}",
            "TRAINYARD_LIBRARY": ranks.find_library()}
    return {**os.environ, **{name: str(value) for name, value in ours.items()}}


def launch(size, *arguments, limit=LIMIT_SECONDS, more=None):
    """Runs Python with the arguments as every rank, with `more` variables for some; returns [(exit code,
    output)] by rank, the code None for one that was killed when the limit was over."""
    port = ranks.free_port()
    started = []
    try:
        for rank in range(size):
            output = tempfile.TemporaryFile("w+")
            variables = {**environment(rank, size, port),
                         **{key: str(value) for key, value in (more or {}).get(rank, {}).items()}}
            started.append((subprocess.Popen(
                [sys.executable, *arguments], env=variables, stdout=output, stderr=subprocess.STDOUT,
                text=True), output))
        end = time.monotonic() + limit
        for process, output in started:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                output.write(f"\ntimed out after {limit} s\n")
        return [(process.poll(), read(output)) for process, output in started]
    finally:
        for process, output in started:
            if process.poll() is None:
                process.kill()
                process.wait()
            output.close()


def read(output):
    output.seek(0)
    return output.read()


def run_script(size, text):
    """As `launch` of a Python script."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "script.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return launch(size, str(path))


def outcomes(size, cases):
    """Case: why it failed, None where it passed."""
    found = {}
    left = list(cases)
    while left:
        texts = [text for _, text in launch(size, str(HERE / "horovod_test.py"), "--cases", *left)]
        passed = [{line[len(MARK):] for line in text.splitlines() if line.startswith(MARK)}
                  for text in texts]
        done = 0
        while done < len(left) and all(left[done] in names for names in passed):
            found[left[done]] = None
            done += 1
        if done < len(left):
            found[left[done]] = "\n".join(f"rank {rank}:\n{text[-3000:]}"
                                          for rank, text in enumerate(texts))
        left = left[done + 1:]
    return found


def all_cases():
    import horovod_operations
    import horovod_training
    return {**horovod_operations.CASES,
            **{f"train_{name}": case for name, case in horovod_training.CASES.items()}}


def run_cases(names):
    """One rank. Prints a line for each case that passed, and ends at the first that did not."""
    import trainyard.torch as hvd
    hvd.init()
    for name in names:
        try:
            all_cases()[name]()
            hvd.barrier()
        except BaseException:
            print(f"{name} failed:\n{traceback.format_exc()}", flush=True)
            os._exit(1)
        print(MARK + name, flush=True)
    hvd.shutdown()


class _Ranks:
    """One test for each case, added below; the ranks run once for all of them."""

    size = 0
    found = None

    def check(self, name):
        cls = type(self)
        if cls.found is None:
            cls.found = outcomes(cls.size, list(all_cases()))
        if cls.found[name] is not None:
            self.fail(cls.found[name])


class OneRank(_Ranks, unittest.TestCase):
    size = 1


class TwoRanks(_Ranks, unittest.TestCase):
    size = 2


class ThreeRanks(_Ranks, unittest.TestCase):
    size = 3


class Failures(unittest.TestCase):
    """What ends the group."""

    def test_sizes_that_differ(self):
        results = run_script(3, """
            import torch, trainyard, trainyard.torch as hvd
            hvd.init()
            try:
                hvd.allreduce(torch.ones(5 if hvd.rank() == 1 else 4), name="weights")
            except (trainyard.Mismatch, trainyard.RankLost) as error:
                print("error:", type(error).__name__, error)
            """)
        for code, text in results:
            self.assertEqual(code, 0, text)
            self.assertIn("error:", text)
        self.assertTrue(any("Mismatch" in text for _, text in results), results)

    def test_a_rank_that_dies(self):
        results = run_script(3, """
            import os, signal, torch, trainyard, trainyard.torch as hvd
            hvd.init()
            hvd.allreduce(torch.ones(3))
            if hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                for _ in range(100):
                    hvd.allreduce(torch.ones(1000))
            except hvd.HorovodInternalError as error:
                assert isinstance(error, trainyard.RankLost), error
                print("lost", error.rank)
            """)
        for rank in (0, 2):
            self.assertEqual(results[rank][0], 0, results[rank][1])
            self.assertIn("lost 1", results[rank][1])

    def test_a_rank_that_dies_in_training(self):
        results = run_script(2, """
            import os, signal, torch, trainyard.torch as hvd
            hvd.init()
            model = torch.nn.Linear(100, 100)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
            for step in range(50):
                if hvd.rank() == 1 and step == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                try:
                    optimizer.zero_grad()
                    model(torch.ones(1, 100)).sum().backward()
                    optimizer.step()
                except hvd.HorovodInternalError as error:
                    print("step", step, "lost", error.rank)
                    break
            """)
        self.assertEqual(results[0][0], 0, results[0][1])
        self.assertIn("step 3 lost 1", results[0][1])


class Compat(unittest.TestCase):
    """Scripts that import horovod, unedited."""

    SCRIPT = """
        import sys
        import horovod
        import horovod.torch as hvd
        from horovod.common.exceptions import HorovodInternalError
        from horovod.common.process_sets import ProcessSet
        from horovod.common.util import gloo_built, split_list
        from horovod.torch.compression import Compression
        from horovod.torch.functions import broadcast_object
        from horovod.torch.mpi_ops import Average, allreduce, rank, size, synchronize
        from horovod.torch.optimizer import DistributedOptimizer
        import horovod.torch.elastic
        import torch
        hvd.init()
        assert __name__ == "__main__" and sys.argv[1:] == ["--epochs", "3"], sys.argv
        assert horovod.torch is hvd and HorovodInternalError is hvd.HorovodInternalError
        assert allreduce(torch.tensor([rank() + 0.0]), op=hvd.Sum) == sum(range(size()))
        assert not gloo_built() and split_list([1, 2, 3], 2) == [[1, 2], [3]]
        assert horovod.__version__ == "0.28.1"
        try:
            import horovod.tensorflow
        except ImportError as error:
            assert "trainyard.compat" in str(error), error
        else:
            raise AssertionError("horovod.tensorflow")
        print("through", hvd.size())
        """

    def test_an_unedited_script(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "train.py"
            path.write_text(textwrap.dedent(self.SCRIPT), encoding="utf-8")
            for code, text in launch(2, "-m", "trainyard.compat", str(path), "--epochs", "3"):
                self.assertEqual(code, 0, text)
                self.assertIn("through 2", text)

    def test_after_horovod_itself(self):
        code, text = run_script(1, """
            import sys, types
            sys.modules["horovod"] = types.ModuleType("horovod")
            import trainyard.compat
            trainyard.compat.install()
            """)[0]
        self.assertEqual(code, 1)
        self.assertIn("horovod is imported already", text)

    def test_usage(self):
        code, text = launch(1, "-m", "trainyard.compat")[0]
        self.assertEqual(code, 2)
        self.assertIn("usage:", text)


def add_tests():
    for name in all_cases():
        for cls in (OneRank, TwoRanks, ThreeRanks):
            setattr(cls, f"test_{name}", lambda self, name=name: self.check(name))


def main():
    try:
        import torch  # noqa: F401
    except ImportError as error:
        print(f"skipped: no torch for {sys.executable}: {error}")
        return ranks.SKIPPED
    library = ranks.find_library()
    if not library or not os.path.exists(library):
        print("skipped: libtrainyard.so is not built: TRAINYARD_LIBRARY or TRAINYARD_BIN says where")
        return ranks.SKIPPED
    if sys.argv[1:2] == ["--cases"]:
        return run_cases(sys.argv[2:])
    add_tests()
    return unittest.main()


if __name__ == "__main__":
    sys.exit(main())
