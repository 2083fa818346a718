"""Tensors as the flat host arrays that a group takes.

A group moves contiguous elements in host memory, and computes with nine types. Everything else is
brought into that form here: other types travel as bytes where nothing is computed, tensors of other
devices through a copy, integers are scaled before and after the sum rather than in it.
"""
from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from trainyard._errors import InvalidArgument
from trainyard._memory import array_of

COMPUTED = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64,
    torch.uint8, torch.int8, torch.bool)


def labels(kind: str, name: Optional[str], count: int) -> List[str]:
    """What errors call each of so many tensors of an operation, before it is given to a group."""
    return [f"{kind} of {each!r}" for each in _names(name, count)] if name is not None else [kind] * count


def require_contiguous(tensor: torch.Tensor, what: str) -> None:
    """ValueError for a tensor whose elements do not lie one after the other; `what`: of labels()."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument(f"{what} takes a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise InvalidArgument(f"{what} takes a dense tensor; for sparse ones: sparse_allreduce_async")
    if not tensor.is_contiguous():
        raise InvalidArgument(
            f"Tensor is required to be contiguous: {what} got shape {tuple(tensor.shape)} with "
            f"strides {tuple(tensor.stride())}; call .contiguous() first")


def require_computed(tensor: torch.Tensor, what: str) -> None:
    """ValueError for a type that no sum is formed of; `what`: of labels()."""
    if tensor.dtype not in COMPUTED:
        raise InvalidArgument(f"Tensor type {tensor.dtype} is not supported by {what}")


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a contiguous tensor in one dimension: the same memory, no autograd."""
    return tensor.detach().reshape(-1)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory where it is the host's, else a copy."""
    return tensor if tensor.device.type == "cpu" else tensor.cpu()


def as_moved(array: torch.Tensor) -> torch.Tensor:
    """A flat host array in a type that a group moves: the same memory, bytes for other types."""
    return array if array.dtype in COMPUTED else array.view(torch.uint8)


def moved_elements(dtype: torch.dtype) -> int:
    """How many elements of `as_moved` one element of this type makes."""
    if dtype in COMPUTED:
        return 1
    return int(torch.empty(0, dtype=dtype).element_size())


class Reduced:
    """One tensor on its way through a reduction that happens in place.

    `array` is what the group works on; `take()` says where the result is, once it is done. The tensor
    itself is touched only with `in_place`.
    """

    def __init__(self, tensor: torch.Tensor, in_place: bool) -> None:
        self._tensor = tensor
        self._in_place = in_place
        source = flat(tensor)
        if source.device.type != "cpu":
            self.array = source.cpu()
        else:
            self.array = source if in_place else source.clone()

    def scale(self, factor: float) -> None:
        """Multiplies in double precision; integers lose what is behind the point."""
        self.array.copy_(self.array.to(torch.float64) * factor)

    def take(self) -> torch.Tensor:
        """The result in the tensor's shape, on its device."""
        if not self._in_place:
            return self.array.view(self._tensor.shape).to(self._tensor.device)
        if self._tensor.device.type != "cpu":
            self._tensor.detach().copy_(self.array.view(self._tensor.shape))
        return self._tensor


def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """As `Reduced.scale`, into a tensor of the same type; the same one for 1."""
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_floating_point:
        return tensor * factor
    return (tensor.to(torch.float64) * factor).to(tensor.dtype)


def named_arrays(arrays: Sequence[torch.Tensor], name: Optional[str]) -> Any:
    """As a group takes several, with names for its errors: `name`, or `name[0]`, `name[1]`, ..."""
    if name is None:
        return list(arrays)
    return [array_of(array, label) for array, label in zip(arrays, _names(name, len(arrays)))]


def _names(name: str, count: int) -> List[str]:
    return [name] if count == 1 else [f"{name}[{at}]" for at in range(count)]
