"""The operations by Horovod's names, without gradients of their own (see _autograd for those).

All ranks of `process_set` call the same operations in the same order: nothing is negotiated, and a
name only serves error messages. A function whose name ends in an underscore works in place; one with
`_async` returns a handle for `poll` and `synchronize`, and the tensor must stay untouched until then.

Raised by all of them: trainyard.InvalidArgument, which is a ValueError (not contiguous, a type that is
not supported, a name under way, a process set of no use), trainyard.Mismatch (ranks differ in type or
size), trainyard.RankLost, which is a HorovodInternalError, and trainyard.NotInitialized.
"""
from __future__ import annotations

from typing import Any, Callable, List, NoReturn, Optional, Sequence, Tuple, Union

import torch

from trainyard._errors import InvalidArgument
from trainyard.torch._arrays import as_moved, flat, labels, require_contiguous
from trainyard.torch._exchange import Part, all_to_all, gather, require_length
from trainyard.torch._handles import Started, begin, poll, synchronize
from trainyard.torch._process_sets import ProcessSet, global_process_set
from trainyard.torch._reduce import (
    Pack, ReduceOp, chosen, no_pack, start_allreduce, start_reducescatter)

Average = ReduceOp.Average
Sum = ReduceOp.Sum
Adasum = ReduceOp.Adasum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product

Splits = Union[None, Sequence[int], torch.Tensor]

__all__ = [
    "Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather_async", "allreduce_",
    "allreduce_async", "allreduce_async_", "alltoall_async", "barrier", "broadcast_",
    "broadcast_async", "broadcast_async_", "grouped_allgather_async", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter_async", "join",
    "poll", "reducescatter_async", "sparse_allreduce_async", "synchronize"]


def allreduce_async(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
                    op: Optional[int] = None, prescale_factor: float = 1.0,
                    postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> int:
    """Asks for postscale * op(prescale * tensor) over all ranks, in a new tensor of the same shape.

    The average of integers is rounded towards zero. Autograd does not see it: use `allreduce`.
    """
    return reduce_all("allreduce", [tensor], False, chosen(op, average), name, prescale_factor,
                      postscale_factor, process_set, no_pack)


def allreduce_async_(tensor: torch.Tensor, average: Optional[bool] = None,
                     name: Optional[str] = None, op: Optional[int] = None,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> int:
    """As `allreduce_async`, in place."""
    return reduce_all("allreduce", [tensor], True, chosen(op, average), name, prescale_factor,
                      postscale_factor, process_set, no_pack)


def allreduce_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
               op: Optional[int] = None, prescale_factor: float = 1.0,
               postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """As `allreduce_async_`, and waits. Returns `tensor`."""
    synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor,
                                 process_set))
    return tensor


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                            name: Optional[str] = None, op: Optional[int] = None,
                            prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                            process_set: ProcessSet = global_process_set) -> int:
    """As `allreduce_async` of several tensors, which travel together. The result is a tuple."""
    return reduce_all("grouped_allreduce", tensors, False, chosen(op, average), name,
                      prescale_factor, postscale_factor, process_set, tuple)


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                             name: Optional[str] = None, op: Optional[int] = None,
                             prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                             process_set: ProcessSet = global_process_set) -> int:
    """As `grouped_allreduce_async`, in place."""
    return reduce_all("grouped_allreduce", tensors, True, chosen(op, average), name,
                      prescale_factor, postscale_factor, process_set, tuple)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                       name: Optional[str] = None, op: Optional[int] = None,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> Tuple[torch.Tensor, ...]:
    """As `grouped_allreduce_async_`, and waits."""
    given = tuple(tensors)
    synchronize(grouped_allreduce_async_(given, average, name, op, prescale_factor,
                                         postscale_factor, process_set))
    return given


def sparse_allreduce_async(tensor: torch.Tensor, name: Optional[str], op: int,
                           process_set: ProcessSet = global_process_set
                           ) -> Callable[[], torch.Tensor]:
    """Asks for the sum or average of sparse (COO) tensors of one shape.

    Ranks may have different numbers of values. Returns a function that waits and gives the sparse
    result, in which an index may come more than once. ValueError for other reductions.
    """
    if op not in (Average, Sum):
        raise InvalidArgument("sparse tensors are summed or averaged only")
    parts = (tensor._indices().t().contiguous(), tensor._values().contiguous())
    handle = gather_all("sparse_allreduce", parts, name, process_set, tuple)
    shape, size = tensor.shape, process_set.sequencer().group.size

    def take() -> torch.Tensor:
        indices, values = synchronize(handle)
        values = values / size if op == Average else values
        return torch.sparse_coo_tensor(indices.t(), values, shape)

    return take


def allgather_async(tensor: torch.Tensor, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """Asks for all ranks' tensors, one after the other along the first dimension.

    The first dimension may differ between ranks, the others and the type may not. Any type travels.
    """
    return gather_all("allgather", [tensor], name, process_set, no_pack)


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                            process_set: ProcessSet = global_process_set) -> int:
    """As `allgather_async` of several tensors, which travel together. The result is a tuple."""
    return gather_all("grouped_allgather", tensors, name, process_set, tuple)


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """Asks for the tensor of `root_rank` (of the whole program) in a new one. Any type travels."""
    require_contiguous(tensor, *labels("broadcast", name, 1))
    return _broadcast(tensor.detach().clone(), root_rank, name, process_set)


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> int:
    """As `broadcast_async`, in place."""
    require_contiguous(tensor, *labels("broadcast", name, 1))
    return _broadcast(tensor, root_rank, name, process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """As `broadcast_async_`, and waits. Returns `tensor`."""
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor


def alltoall_async(tensor: torch.Tensor, splits: Splits = None, name: Optional[str] = None,
                   process_set: ProcessSet = global_process_set) -> int:
    """Asks for every rank's share of every rank's tensor, along the first dimension.

    `splits[r]` (32-bit integers where it is a tensor) go to the set's r-th rank; without it, equal
    shares. The result is (tensor, received splits). ValueError where the splits are not one for each
    rank, negative, or add up to more than there is.
    """
    return exchange_all(tensor, splits, name, process_set)


def exchange_all(tensor: torch.Tensor, splits: Splits, name: Optional[str],
                 process_set: ProcessSet, now: bool = False) -> int:
    """As `alltoall_async`; `now` as for Sequencer.run."""
    what, = labels("alltoall", name, 1)
    require_contiguous(tensor, what)
    require_length(tensor, what)
    sequencer = process_set.sequencer()
    shares = _splits(tensor, splits, sequencer.group.size)
    device = splits.device if isinstance(splits, torch.Tensor) else torch.device("cpu")

    def start() -> Started:
        part = Part(tensor)
        pending = sequencer.run(lambda group: all_to_all(group, name, part, shares), now)
        return pending, lambda result: (
            result[0].to(part.device), torch.tensor(result[1], dtype=torch.int32, device=device))

    return begin("alltoall", name, start)


def reducescatter_async(tensor: torch.Tensor, name: Optional[str] = None, op: int = Average,
                        process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                        postscale_factor: float = 1.0) -> int:
    """Asks for this rank's share, along the first dimension, of the tensors' reduction.

    Where the length cannot be divided equally, the first ranks get one more.
    """
    return scatter_all("reducescatter", [tensor], op, name, prescale_factor, postscale_factor,
                       process_set, no_pack)


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                                op: int = Average, process_set: ProcessSet = global_process_set,
                                prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> int:
    """As `reducescatter_async` of several tensors. The result is a tuple."""
    return scatter_all("grouped_reducescatter", tensors, op, name, prescale_factor,
                       postscale_factor, process_set, tuple)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of the set have come."""
    process_set.sequencer().give(lambda group: group.barrier(async_=True)).wait()


def join(device: int = -1) -> NoReturn:
    """Raises NotImplementedError: ranks that have no more data cannot leave the others to it."""
    raise NotImplementedError(
        "join() is not supported: give all ranks the same number of batches, e.g. with "
        "torch.utils.data.DistributedSampler, which pads or, with drop_last=True, cuts")


def reduce_all(kind: str, tensors: Sequence[torch.Tensor], in_place: bool, op: int,
               name: Optional[str], prescale: float, postscale: float, process_set: ProcessSet,
               pack: Pack) -> int:
    """Any of the all-reduces: `kind` is what errors call it, `pack` makes the result."""
    given = _several(tensors)
    return begin(kind, name, lambda: start_allreduce(
        kind, given, in_place, op, name, prescale, postscale, process_set, pack))


def scatter_all(kind: str, tensors: Sequence[torch.Tensor], op: int, name: Optional[str],
                prescale: float, postscale: float, process_set: ProcessSet, pack: Pack) -> int:
    """Any of the reduce-scatters, as `reduce_all`."""
    given = _several(tensors)
    return begin(kind, name, lambda: start_reducescatter(
        kind, given, op, name, prescale, postscale, process_set, pack))


def gather_all(kind: str, tensors: Sequence[torch.Tensor], name: Optional[str],
               process_set: ProcessSet, pack: Pack, now: bool = False) -> int:
    """Any of the all-gathers, as `reduce_all`; `now` as for Sequencer.run."""
    given = _several(tensors)
    for tensor, what in zip(given, labels(kind, name, len(given))):
        require_contiguous(tensor, what)
        require_length(tensor, what)

    def start() -> Started:
        sequencer = process_set.sequencer()
        parts = [Part(tensor) for tensor in given]
        pending = sequencer.run(lambda group: gather(group, kind, name, parts), now)
        return pending, lambda results: pack(
            [result.to(part.device) for result, part in zip(results, parts)])

    return begin(kind, name, start)


def _broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str],
               process_set: ProcessSet) -> int:
    """Into `tensor` itself."""

    def start() -> Started:
        sequencer = process_set.sequencer()
        root = process_set.position_of(root_rank)
        array = flat(tensor)
        array = array if array.device.type == "cpu" else array.cpu()
        moved = as_moved(array)
        pending = sequencer.give(lambda group: group.broadcast(
            moved, root, name=name, async_=True))

        def finish(_: Any) -> torch.Tensor:
            if tensor.device.type != "cpu":
                tensor.detach().copy_(array.view(tensor.shape))
            return tensor

        return pending, finish

    return begin("broadcast", name, start)


def _several(tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    given = list(tensors)
    if not given:
        raise InvalidArgument("a grouped operation takes at least one tensor")
    return given


def _splits(tensor: torch.Tensor, splits: Splits, size: int) -> List[int]:
    """How much goes to each rank."""
    length = tensor.shape[0]
    if splits is None:
        if length % size:
            raise InvalidArgument(f"alltoall without splits: {length} cannot be divided among {size} ranks")
        return [length // size] * size
    if isinstance(splits, torch.Tensor):
        if splits.dtype not in (torch.int32, torch.int64):
            raise InvalidArgument(f"alltoall takes splits of 32-bit integers, not {splits.dtype}")
        splits = splits.tolist()
    given = [int(split) for split in splits]
    if len(given) != size or min(given) < 0:
        raise InvalidArgument(f"alltoall takes one split for each of {size} ranks, from 0 on, not {given}")
    if sum(given) > length:
        raise InvalidArgument(f"alltoall's splits {given} add up to more than the {length} that there are")
    return given
