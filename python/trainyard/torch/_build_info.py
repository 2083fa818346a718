"""Horovod's questions about how it was built. There is one data plane here, and it is none of those.

So that scripts which choose by the answers take the path that needs nothing of MPI, NCCL or CUDA:
tensors of a GPU travel through host memory.
"""
from __future__ import annotations

from typing import Any, NoReturn, Optional

import trainyard

_homogeneous: Optional[bool] = None


def mpi_built() -> bool:
    """False: there is no MPI."""
    return False


def mpi_enabled() -> bool:
    """False: there is no MPI."""
    return False


def mpi_threads_supported() -> bool:
    """False: there is no MPI."""
    return False


def gloo_built() -> bool:
    """False: there is no Gloo."""
    return False


def gloo_enabled() -> bool:
    """False: there is no Gloo."""
    return False


def nccl_built() -> int:
    """0: there is no NCCL."""
    return 0


def ddl_built() -> bool:
    """False: there is no DDL."""
    return False


def ccl_built() -> bool:
    """False: there is no oneCCL."""
    return False


def cuda_built() -> bool:
    """False: nothing here was built with CUDA."""
    return False


def rocm_built() -> bool:
    """False: nothing here was built with ROCm."""
    return False


def is_homogeneous() -> bool:
    """Whether every machine has the same number of ranks. NotInitialized before `init()`."""
    if _homogeneous is not None:
        return _homogeneous
    return trainyard.local_size() * trainyard.cross_size() == trainyard.size()


def start_timeline(file_path: str, mark_cycles: bool = False) -> NoReturn:
    """Raises NotImplementedError: there is no timeline."""
    raise NotImplementedError(
        "start_timeline() is not supported: use torch.profiler, in whose trace the time in "
        "synchronize() and step() is what is spent waiting for other ranks")


def stop_timeline() -> Any:
    """Raises NotImplementedError: there is no timeline."""
    raise NotImplementedError("stop_timeline() is not supported: use torch.profiler")


def set_homogeneous(answer: Optional[bool]) -> None:
    """What `init` found out by asking all ranks; None: not known."""
    global _homogeneous
    _homogeneous = answer
