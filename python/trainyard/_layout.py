"""How arrays lie in memory."""
from __future__ import annotations

from typing import Sequence


def contiguous(shape: Sequence[int], strides: Sequence[int], item: int) -> bool:
    """Whether elements lie one after the other, the last dimension first; `strides` in the unit of `item`."""
    if 0 in shape:
        return True
    expected = item
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True
