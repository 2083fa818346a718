"""Tensors as a group takes them: contiguous, dense, of the CPU, and of its types."""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from trainyard import InvalidArgument
from trainyard._memory import Array, torch_types
from trainyard._types import SUPPORTED, Type


class UnsupportedType(InvalidArgument, TypeError):
    """A tensor's type cannot be reduced."""


_TYPES = torch_types(torch)


def check_dense(tensor: torch.Tensor, what: str) -> None:
    """Raises InvalidArgument for tensors of devices, sparse and quantized ones."""
    if tensor.device.type != "cpu":
        raise InvalidArgument(
            f"{what}: a tensor is on {tensor.device}, and trainyard moves those of the CPU: "
            'init_process_group("cpu:trainyard,cuda:nccl") has a backend for each')
    if tensor.layout != torch.strided:
        raise InvalidArgument(f"{what}: a tensor has layout {tensor.layout}, not torch.strided")
    if tensor.is_quantized:
        raise UnsupportedType(f"{what}: {tensor.dtype} is quantized")


def reduced(tensor: torch.Tensor, what: str, linear: bool) -> Array:
    """A contiguous tensor whose elements are to be reduced; complex ones as pairs, for sums and averages."""
    kind = _TYPES.get(tensor.dtype)
    if kind is not None:
        return Array(tensor.data_ptr(), tensor.numel(), kind, None, tensor)
    if tensor.is_complex() and linear:
        pairs = torch.view_as_real(tensor)
        kind = _TYPES.get(pairs.dtype)
        if kind is not None:
            return Array(pairs.data_ptr(), pairs.numel(), kind, None, tensor)
    raise UnsupportedType(f"{what}: {tensor.dtype} cannot be reduced: {SUPPORTED}; complex ones by sum and average")


def moved(tensor: torch.Tensor) -> Array:
    """A contiguous tensor whose elements only travel: types that a group does not know as bytes."""
    kind = _TYPES.get(tensor.dtype)
    if kind is not None:
        return Array(tensor.data_ptr(), tensor.numel(), kind, None, tensor)
    return Array(tensor.data_ptr(), tensor.numel() * tensor.element_size(), Type.UINT8, None, tensor)


def units(tensor: torch.Tensor) -> int:
    """How many elements of moved() one of this tensor makes."""
    return 1 if tensor.dtype in _TYPES else tensor.element_size()


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where it is contiguous, else a copy that is."""
    plain = tensor.detach()
    if plain.is_complex() and plain.is_conj():
        plain = plain.resolve_conj()
    if plain.is_neg():
        plain = plain.resolve_neg()
    return plain.contiguous()


class Outputs:
    """Contiguous tensors for results, and the copies back to those that are not."""

    def __init__(self) -> None:
        self._copies: List[Tuple[torch.Tensor, torch.Tensor]] = []

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Where the result for `tensor` goes; has its values already."""
        plain = packed(tensor)
        if plain.data_ptr() != tensor.data_ptr() or plain.stride() != tensor.stride():
            self._copies.append((tensor, plain))
        return plain

    def joined(self, tensors: Sequence[torch.Tensor], filled: bool) -> torch.Tensor:
        """One flat tensor for results, one after the other; with their values if `filled`."""
        flat = consecutive(tensors)
        if flat is not None:
            return flat
        flat = joined(tensors) if filled else tensors[0].new_empty(sum(each.numel() for each in tensors))
        parts = torch.split(flat, [each.numel() for each in tensors])
        self._copies += [(each, part.view(each.shape)) for each, part in zip(tensors, parts)]
        return flat

    def finish(self) -> Optional[Callable[[], None]]:
        """What is to be done when the results are there; None: nothing."""
        copies = self._copies
        if not copies:
            return None

        def copy_back() -> None:
            for target, source in copies:
                target.copy_(source)

        return copy_back


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """One flat tensor of all elements: the memory itself where they lie one after the other."""
    flat = consecutive(tensors)
    return flat if flat is not None else torch.cat([packed(each).reshape(-1) for each in tensors])


def consecutive(tensors: Sequence[torch.Tensor]) -> Optional[torch.Tensor]:
    """One flat view of tensors that lie one after the other in one storage, as those of chunk() do."""
    first = tensors[0]
    at = first.storage_offset()
    for each in tensors:
        if (not each.is_contiguous() or each.storage_offset() != at or each.dtype != first.dtype
                or _storage(each) != _storage(first) or (each.is_complex() and each.is_conj()) or each.is_neg()):
            return None
        at += each.numel()
    return torch.as_strided(first.detach(), (at - first.storage_offset(),), (1,), first.storage_offset())


def _storage(tensor: torch.Tensor) -> int:
    given: Any = tensor
    return int((given.untyped_storage() if hasattr(given, "untyped_storage") else given.storage()).data_ptr())


def check_same(tensors: Sequence[torch.Tensor], like: torch.Tensor, what: str) -> None:
    """Raises InvalidArgument where tensors are of another type than `like`."""
    for each in tensors:
        check_dense(each, what)
        if each.dtype != like.dtype:
            raise InvalidArgument(f"{what}: invalid tensor type: one is {each.dtype}, another {like.dtype}")


def single(tensors: Any, what: str) -> torch.Tensor:
    """The only one of a list as torch gives it, dense."""
    tensor = tensors if isinstance(tensors, torch.Tensor) else tensors[0] if len(tensors) == 1 else None
    if tensor is None:
        raise InvalidArgument(f"{what}: one tensor, not {len(tensors)}")
    check_dense(tensor, what)
    return tensor
