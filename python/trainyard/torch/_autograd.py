"""The operations that wait, with gradients.

The gradients are Horovod's, so that a script's own scaling stays right: that of an average is the
average of the gradients, that of a sum their sum; of an all-gather and a broadcast the average over
the ranks, of which each takes its part (the root: all of it).
Backward passes are operations too: all ranks must run them, in the same order.
"""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import torch

import trainyard
from trainyard.torch import _operations as operations
from trainyard.torch._compression import Compression
from trainyard.torch._handles import synchronize
from trainyard.torch._operations import Average, Splits, Sum
from trainyard.torch._process_sets import ProcessSet, global_process_set
from trainyard.torch._reduce import chosen

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "grouped_allgather",
           "grouped_allreduce", "grouped_reducescatter", "reducescatter"]

Tensors = Sequence[torch.Tensor]


def _dense(gradients: Tensors) -> List[torch.Tensor]:
    """Autograd hands out expanded gradients, whose elements share memory."""
    return [gradient.contiguous() for gradient in gradients]


class _Allreduce(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """(kind, op, factors, set, name, tensors) -> tensors."""

    @staticmethod
    def forward(ctx: Any, kind: str, op: int, factors: Tuple[float, float],
                process_set: ProcessSet, name: Optional[str],
                *tensors: torch.Tensor) -> Any:
        ctx.how = (op, factors, process_set)
        return synchronize(operations.reduce_all(
            kind, tensors, False, op, name, factors[0], factors[1], process_set, tuple))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        op, factors, process_set = ctx.how
        reduced = synchronize(operations.grouped_allreduce_async(
            _dense(gradients), None, None, op, factors[0], factors[1], process_set))
        return (None, None, None, None, None, *reduced)


def allreduce(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
              compression: Any = Compression.none, op: Optional[int] = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """postscale * op(prescale * tensor) over all ranks, a new tensor of the same shape and type."""
    return _reduced("allreduce", [tensor], chosen(op, average), name, compression,
                    (prescale_factor, postscale_factor), process_set)[0]


def grouped_allreduce(tensors: Tensors, average: Optional[bool] = None, name: Optional[str] = None,
                      compression: Any = Compression.none, op: Optional[int] = None,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """As `allreduce` of several tensors, which travel together."""
    return _reduced("grouped_allreduce", tensors, chosen(op, average), name, compression,
                    (prescale_factor, postscale_factor), process_set)


def _reduced(kind: str, tensors: Tensors, op: int, name: Optional[str], compression: Any,
             factors: Tuple[float, float], process_set: ProcessSet) -> List[torch.Tensor]:
    sent, contexts = _compressed(tensors, compression)
    results = _Allreduce.apply(kind, op, factors, process_set, name, *sent)
    return [compression.decompress(*pair) for pair in zip(results, contexts)]


def _compressed(tensors: Tensors, compression: Any) -> Tuple[List[torch.Tensor], List[Any]]:
    pairs = [compression.compress(tensor) for tensor in tensors]
    return [sent for sent, _ in pairs], [context for _, context in pairs]


class _Allgather(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """(kind, set, name, tensors) -> tensors, longer."""

    @staticmethod
    def forward(ctx: Any, kind: str, process_set: ProcessSet, name: Optional[str],
                *tensors: torch.Tensor) -> Any:
        ctx.process_set = process_set
        ctx.lengths = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        return synchronize(operations.gather_all(
            kind, tensors, name, process_set, tuple, now=True))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        process_set = ctx.process_set
        averaged = synchronize(operations.grouped_allreduce_async(
            _dense(gradients), op=Average, process_set=process_set))
        mine = torch.tensor([ctx.lengths], dtype=torch.int64)
        table = allgather(mine, process_set=process_set)
        before = table[:process_set.rank()].sum(dim=0).tolist()
        parts = [whole.narrow(0, begin, length)
                 for whole, begin, length in zip(averaged, before, ctx.lengths)]
        return (None, None, None, *parts)


def allgather(tensor: torch.Tensor, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """All ranks' tensors, one after the other along the first dimension, which may differ."""
    gathered: torch.Tensor = _Allgather.apply("allgather", process_set, name, tensor)[0]
    return gathered


def grouped_allgather(tensors: Tensors, name: Optional[str] = None,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """As `allgather` of several tensors, which travel together."""
    return list(_Allgather.apply("grouped_allgather", process_set, name, *tensors))


class _Broadcast(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """(tensor, root, name, set) -> tensor."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: Optional[str],
                process_set: ProcessSet) -> Any:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(operations.broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        averaged = synchronize(operations.allreduce_async(
            gradient.contiguous(), op=Average, process_set=ctx.process_set))
        is_root = trainyard.rank() == ctx.root_rank
        return (averaged if is_root else torch.zeros_like(averaged)), None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The tensor of `root_rank` (of the whole program), of the same shape and type everywhere."""
    result: torch.Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)
    return result


class _Alltoall(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """(tensor, splits, name, set) -> tensor, received splits."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Splits, name: Optional[str],
                process_set: ProcessSet) -> Any:
        output, received = synchronize(operations.exchange_all(
            tensor, splits, name, process_set, now=True))
        ctx.process_set, ctx.received, ctx.shape = process_set, received, tensor.shape
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Tuple[Optional[torch.Tensor], ...]:
        returned, _ = synchronize(operations.exchange_all(
            gradient.contiguous(), ctx.received, None, ctx.process_set, now=True))
        if returned.shape[0] < ctx.shape[0]:  # What no split covered went nowhere.
            rest = returned.new_zeros((ctx.shape[0] - returned.shape[0], *ctx.shape[1:]))
            returned = torch.cat([returned, rest])
        return returned, None, None, None


def alltoall(tensor: torch.Tensor, splits: Splits = None, name: Optional[str] = None,
             process_set: ProcessSet = global_process_set
             ) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Every rank's share of every rank's tensor, along the first dimension.

    With `splits`: (tensor, how much of it is of which rank). Without: the tensor, of equal shares.
    """
    output, received = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


class _Reducescatter(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """(kind, op, factors, set, name, tensors) -> this rank's shares."""

    @staticmethod
    def forward(ctx: Any, kind: str, op: int, factors: Tuple[float, float],
                process_set: ProcessSet, name: Optional[str],
                *tensors: torch.Tensor) -> Any:
        ctx.how = (op, factors, process_set)
        return synchronize(operations.scatter_all(
            kind, tensors, op, name, factors[0], factors[1], process_set, tuple))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tuple[Optional[torch.Tensor], ...]:
        op, factors, process_set = ctx.how
        factor = factors[0] * factors[1]
        if op == Sum:
            factor *= process_set.size()
        given = _dense(gradients)
        if factor != 1.0:
            given = [gradient * factor for gradient in given]
        whole = grouped_allgather(given, process_set=process_set)
        return (None, None, None, None, None, *whole)


def reducescatter(tensor: torch.Tensor, name: Optional[str] = None,
                  compression: Any = Compression.none, op: int = Average,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> torch.Tensor:
    """This rank's share, along the first dimension, of the tensors' reduction.

    Where the length cannot be divided equally, the first ranks get one more.
    """
    return _scattered("reducescatter", [tensor], name, compression, op, process_set,
                      (prescale_factor, postscale_factor))[0]


def grouped_reducescatter(tensors: Tensors, name: Optional[str] = None,
                          compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set,
                          prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> List[torch.Tensor]:
    """As `reducescatter` of several tensors."""
    return _scattered("grouped_reducescatter", tensors, name, compression, op, process_set,
                      (prescale_factor, postscale_factor))


def _scattered(kind: str, tensors: Tensors, name: Optional[str], compression: Any, op: int,
               process_set: ProcessSet, factors: Tuple[float, float]) -> List[torch.Tensor]:
    sent, contexts = _compressed(tensors, compression)
    results = _Reducescatter.apply(kind, op, factors, process_set, name, *sent)
    return [compression.decompress(*pair) for pair in zip(results, contexts)]
