"""Reductions: what is done to tensors before and after the group's own.

The group scales floats on their way; integers are scaled here, in double precision, losing what is
behind the point, as Horovod does.
"""
from __future__ import annotations

import enum
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

import trainyard
from trainyard._errors import InvalidArgument
from trainyard.torch._arrays import (
    Reduced, flat, labels, named_arrays, on_host, require_computed, require_contiguous, scaled)
from trainyard.torch._handles import Started
from trainyard.torch._process_sets import ProcessSet

# Makes an operation's result of those of its tensors.
Pack = Callable[[List[torch.Tensor]], Any]


class ReduceOp(enum.IntEnum):
    """What becomes of the ranks' values. The numbers are Horovod's."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


_REDUCTIONS = {
    ReduceOp.Average: trainyard.Reduction.AVERAGE,
    ReduceOp.Sum: trainyard.Reduction.SUM,
    ReduceOp.Min: trainyard.Reduction.MIN,
    ReduceOp.Max: trainyard.Reduction.MAX,
    ReduceOp.Product: trainyard.Reduction.PRODUCT,
}


def reduction_of(op: int) -> Any:
    """The group's name for it. NotImplementedError for Adasum, ValueError for what is none."""
    if op == ReduceOp.Adasum:
        raise NotImplementedError("Adasum is not supported: use op=Average, or Sum with a learning "
                                  "rate of your own")
    try:
        return _REDUCTIONS[ReduceOp(op)]
    except ValueError:
        raise InvalidArgument(f"{op!r} is no reduction: Average, Sum, Min, Max or Product") from None


class Scaling:
    """How factors are applied: by the group for floats, here for integers."""

    def __init__(self, tensors: Sequence[torch.Tensor], op: int, prescale: float, postscale: float,
                 size: int) -> None:
        plain = prescale == 1.0 and postscale == 1.0
        floats = [tensor.dtype.is_floating_point for tensor in tensors]
        if not plain and any(floats) and not all(floats):
            raise InvalidArgument("factors need tensors that are all floats or all integers")
        self.here = not plain and not all(floats)
        self.reduction = reduction_of(op)
        self.before, self.after = float(prescale), float(postscale)
        if self.here and op == ReduceOp.Average:
            # Dividing twice would lose what is behind the point twice.
            self.reduction = trainyard.Reduction.SUM
            self.after /= size

    def of_group(self) -> Dict[str, Any]:
        """Arguments for the group's function."""
        if self.here:
            return {"reduction": self.reduction}
        return {"reduction": self.reduction, "prescale": self.before, "postscale": self.after}


def start_allreduce(kind: str, tensors: Sequence[torch.Tensor], in_place: bool, op: int,
                    name: Optional[str], prescale: float, postscale: float,
                    process_set: ProcessSet, pack: Pack) -> Started:
    """Gives an all-reduce of all tensors together; `pack` makes the result of theirs."""
    for tensor, what in zip(tensors, labels(kind, name, len(tensors))):
        require_contiguous(tensor, what)
        require_computed(tensor, what)
    sequencer = process_set.sequencer()
    scaling = Scaling(tensors, op, prescale, postscale, sequencer.group.size)
    reduced = [Reduced(tensor, in_place) for tensor in tensors]
    if scaling.here and scaling.before != 1.0:
        for one in reduced:
            one.scale(scaling.before)
    arrays = named_arrays([one.array for one in reduced], name)
    pending = sequencer.give(lambda group: group.all_reduce(arrays, async_=True, **scaling.of_group()))

    def finish(_: Any) -> Any:
        if scaling.here and scaling.after != 1.0:
            for one in reduced:
                one.scale(scaling.after)
        return pack([one.take() for one in reduced])

    return pending, finish


def shares(length: int, size: int) -> List[int]:
    """How much of a first dimension each rank gets: equal, the first ranks one more."""
    least, more = divmod(length, size)
    return [least + (1 if rank < more else 0) for rank in range(size)]


def start_reducescatter(kind: str, tensors: Sequence[torch.Tensor], op: int, name: Optional[str],
                        prescale: float, postscale: float, process_set: ProcessSet,
                        pack: Pack) -> Started:
    """Gives one reduce-scatter after the other; the last one's end is that of all."""
    for tensor, what in zip(tensors, labels(kind, name, len(tensors))):
        require_contiguous(tensor, what)
        require_computed(tensor, what)
        if tensor.dim() == 0:
            raise InvalidArgument(f"{what} takes a tensor of at least one dimension, not a scalar")
    sequencer = process_set.sequencer()
    scaling = Scaling(tensors, op, prescale, postscale, sequencer.group.size)
    given = [_Scatter(tensor, name, sequencer.group, scaling) for tensor in tensors]
    pending = [sequencer.give(one.give) for one in given]

    def finish(_: Any) -> Any:
        for one in pending[:-1]:
            one.wait()
        return pack([one.take() for one in given])

    return pending[-1], finish


class _Scatter:
    """One tensor of a reduce-scatter."""

    def __init__(self, tensor: torch.Tensor, name: Optional[str], group: Any,
                 scaling: Scaling) -> None:
        lengths = shares(tensor.shape[0], group.size)
        row = int(torch.Size(tensor.shape[1:]).numel())
        self._scaling = scaling
        self._name = name
        self._device = tensor.device
        self._counts = [length * row for length in lengths]
        source = on_host(flat(tensor))
        self._input = scaled(source, scaling.before) if scaling.here else source
        self._output = torch.empty((lengths[group.rank], *tensor.shape[1:]), dtype=tensor.dtype)

    def give(self, group: Any) -> Any:
        return group.reduce_scatter(self._input, flat(self._output), counts=self._counts,
                                    name=self._name, async_=True, **self._scaling.of_group())

    def take(self) -> torch.Tensor:
        scaling = self._scaling
        output = scaled(self._output, scaling.after) if scaling.here else self._output
        return output.to(self._device)


def no_pack(results: List[torch.Tensor]) -> torch.Tensor:
    """The result of a single tensor."""
    return results[0]


def chosen(op: Optional[int], average: Optional[bool]) -> int:
    """The older `average=` and the newer `op=` in one. ValueError where both are given."""
    if op is not None and average is not None:
        raise InvalidArgument("op takes the place of average: give one of them")
    if op is not None:
        return op
    if average is not None:
        warnings.warn("`average` has given way to `op`", DeprecationWarning, stacklevel=3)
    return ReduceOp.Sum if average is False else ReduceOp.Average
