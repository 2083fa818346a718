"""Horovod's names for PyTorch over trainyard, and its backend for torch.distributed.

    import trainyard.torch as hvd

    hvd.init()
    optimizer = torch.optim.SGD(model.parameters(), 0.01 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

What differs from Horovod: nothing is negotiated between ranks, so all must call the same operations
in the same order; what differs is an error that names the rank. Importing this module makes
`torch.distributed.init_process_group("trainyard")` work too.
"""
from __future__ import annotations

import importlib.util as _util

try:
    import torch.distributed as _distributed
except ImportError as _error:
    raise type(_error)(
        "trainyard.torch needs torch, from 1.13 on: pip install torch, or with Debian's Python apt-get install "
        f"python3-torch ({_error})", name="torch") from _error

from trainyard import (
    cross_rank, cross_size, is_initialized, local_rank, local_size, rank, size)
from trainyard.torch import elastic
from trainyard.torch._autograd import (
    allgather, allreduce, alltoall, broadcast, grouped_allgather, grouped_allreduce,
    grouped_reducescatter, reducescatter)
from trainyard.torch._build_info import (
    ccl_built, cuda_built, ddl_built, gloo_built, gloo_enabled, is_homogeneous, mpi_built,
    mpi_enabled, mpi_threads_supported, nccl_built, rocm_built, start_timeline, stop_timeline)
from trainyard.torch._compression import Compression
from trainyard.torch._embedding import Embedding, EmbeddingBag
from trainyard.torch._errors import HorovodInternalError, HostsUpdatedInterrupt
from trainyard.torch._functions import (
    allgather_object, broadcast_object, broadcast_object_fn, broadcast_optimizer_state,
    broadcast_parameters)
from trainyard.torch._handles import poll, synchronize
from trainyard.torch._operations import (
    Adasum, Average, Max, Min, Product, Sum, allgather_async, allreduce_, allreduce_async,
    allreduce_async_, alltoall_async, barrier, broadcast_, broadcast_async, broadcast_async_,
    grouped_allgather_async, grouped_allreduce_, grouped_allreduce_async,
    grouped_allreduce_async_, grouped_reducescatter_async, join, reducescatter_async,
    sparse_allreduce_async)
from trainyard.torch._optimizer import DistributedOptimizer
from trainyard.torch._process_sets import (
    ProcessSet, add_process_set, global_process_set, remove_process_set)
from trainyard.torch._server_optimizer import ServerOptimizer
from trainyard.torch._start import init, shutdown
from trainyard.torch._state import State
from trainyard.torch._sync_batch_norm import SyncBatchNorm
from trainyard.torch._weight_files import load_weights, save_weights

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "Embedding", "EmbeddingBag", "HorovodInternalError",
    "HostsUpdatedInterrupt", "Max", "Min", "ProcessSet", "Product", "ServerOptimizer", "State", "Sum", "SyncBatchNorm",
    "add_process_set", "allgather", "allgather_async", "allgather_object", "allreduce",
    "allreduce_", "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "barrier",
    "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object",
    "broadcast_object_fn", "broadcast_optimizer_state", "broadcast_parameters", "ccl_built",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set",
    "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allgather_async",
    "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "init",
    "is_homogeneous", "is_initialized", "join", "load_weights", "local_rank", "local_size", "mpi_built",
    "mpi_enabled", "mpi_threads_supported", "nccl_built", "poll", "rank", "reducescatter",
    "reducescatter_async", "remove_process_set", "rocm_built", "save_weights", "shutdown", "size",
    "sparse_allreduce_async", "start_timeline", "stop_timeline", "synchronize"]


def _register_backend() -> None:
    if not _distributed.is_available() or _util.find_spec("trainyard.torch._backend") is None:
        return
    from trainyard.torch import _backend
    _backend.register()


_register_backend()
