"""Operations whose results depend on the sizes of all ranks' tensors: all-gather and all-to-all.

Each begins with an exchange of what every rank gives: a few whole numbers. What does not fit is
therefore an error on all ranks at once, which names two of them, and the group lives on.
"""
from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch

from trainyard._errors import InvalidArgument
from trainyard.torch._arrays import as_moved, flat, moved_elements, on_host
from trainyard.torch._errors import mismatch

_TYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64,
    torch.uint8, torch.int8, torch.bool, torch.int16, torch.complex64, torch.complex128)

# Length, type, number of dimensions, and the dimensions behind the first; of more than that many
# the last stands for the product of the rest.
_MORE_DIMENSIONS = 7
_NUMBERS = 3 + _MORE_DIMENSIONS


def require_length(tensor: torch.Tensor, what: str) -> None:
    """ValueError for a tensor without a first dimension, or of a type that has no number here; `what`: of labels()."""
    if tensor.dim() == 0:
        raise InvalidArgument(f"{what} takes a tensor of at least one dimension, not a scalar")
    if tensor.dtype not in _TYPES:
        raise InvalidArgument(f"Tensor type {tensor.dtype} is not supported by {what}")


class Part:
    """What this rank gives: taken out of the tensor on the thread that asked."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype
        self.device = tensor.device
        self.array = on_host(flat(tensor))

    @property
    def row(self) -> int:
        """Elements of one step along the first dimension."""
        return int(torch.Size(self.shape[1:]).numel())

    def describe(self) -> List[int]:
        more = list(self.shape[1:])
        if len(more) > _MORE_DIMENSIONS:
            product = int(torch.Size(more[_MORE_DIMENSIONS - 1:]).numel())
            more = more[:_MORE_DIMENSIONS - 1] + [product]
        more += [0] * (_MORE_DIMENSIONS - len(more))
        return [self.shape[0], _TYPES.index(self.dtype), len(self.shape), *more]

    def empty(self, length: int) -> torch.Tensor:
        """On the host, `length` long, otherwise as this one."""
        return torch.empty((length, *self.shape[1:]), dtype=self.dtype)


def gather(group: Any, kind: str, name: Optional[str],
           parts: Sequence[Part]) -> List[torch.Tensor]:
    """All ranks' parts, one after the other along the first dimension, on the host. Blocks."""
    table = _tell_all(group, [number for part in parts for number in part.describe()])
    lengths = []
    for at in range(len(parts)):
        rows = [numbers[at * _NUMBERS:(at + 1) * _NUMBERS] for numbers in table]
        _require_same(kind, name, rows)
        lengths.append([row[0] for row in rows])
    outputs, works = [], []
    for part, counts in zip(parts, lengths):
        output = part.empty(sum(counts))
        outputs.append(output)
        unit = part.row * moved_elements(part.dtype)
        works.append(group.all_gather(
            as_moved(part.array), as_moved(flat(output)), counts=[count * unit for count in counts],
            name=name, async_=True))
    for work in works:
        work.wait()
    return outputs


def all_to_all(group: Any, name: Optional[str], part: Part,
               splits: Sequence[int]) -> Tuple[torch.Tensor, List[int]]:
    """What all ranks have for this one, on the host, and how much of it is whose. Blocks."""
    # The lengths may differ; the splits say what there is to know of them.
    table = _tell_all(group, [0, *part.describe()[1:], *splits])
    _require_same("alltoall", name, [numbers[:_NUMBERS] for numbers in table])
    received = [numbers[_NUMBERS + group.rank] for numbers in table]
    output = part.empty(sum(received))
    unit = part.row * moved_elements(part.dtype)
    sent = part.array[:sum(splits) * part.row]
    group.all_to_all(
        as_moved(sent), as_moved(flat(output)), send_counts=[count * unit for count in splits],
        receive_counts=[count * unit for count in received], name=name)
    return output, received


def _tell_all(group: Any, numbers: Sequence[int]) -> List[List[int]]:
    """Every rank's numbers, by rank."""
    mine = torch.tensor(numbers, dtype=torch.int64)
    table = torch.empty(group.size * len(numbers), dtype=torch.int64)
    group.all_gather(mine, table)
    rows: List[List[int]] = table.view(group.size, len(numbers)).tolist()
    return rows


def _require_same(kind: str, name: Optional[str], rows: Sequence[Sequence[int]]) -> None:
    """Mismatch naming the first rank whose tensor does not fit rank 0's."""
    for rank, row in enumerate(rows):
        if row[1:] != rows[0][1:]:
            what = f"{kind} of {name}" if name else kind
            raise mismatch(
                f"{what}: rank {rank} gives {_text(row)}, rank 0 gives {_text(rows[0])}; all but the "
                "first dimension must be equal", rank)


def _text(row: Sequence[int]) -> str:
    shape = [str(number) for number in row[3:3 + max(0, row[2] - 1)]]
    return f"{_TYPES[row[1]]}[{', '.join(['*', *shape])}]".replace("torch.", "")
