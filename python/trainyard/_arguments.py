"""Numbers as the library takes them: what is none, or out of range, is told by its name and not cut off by ctypes."""
from __future__ import annotations

import operator
from typing import Any, List, Sequence

from trainyard._errors import InvalidArgument
from trainyard._types import Reduction


def whole(value: Any, what: str, least: int = -(1 << 31), most: int = (1 << 31) - 1) -> int:
    """A whole number from `least` to `most`; also numpy's, torch's and others with __index__.

    Raises:
        InvalidArgument: it is none.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{what}: {value!r} is not a whole number") from None
    if not least <= number <= most:
        raise InvalidArgument(f"{what}: {number} is not from {least} to {most}")
    return number


def wholes(values: Sequence[Any], what: str) -> List[int]:
    """Numbers of elements, or ranks."""
    return [whole(value, what, -(1 << 63), (1 << 63) - 1) for value in values]


def factor(value: Any, what: str) -> float:
    """A number, also one that float() understands.

    Raises:
        InvalidArgument: it is none.
    """
    if type(value) is float:
        return value
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{what}: {value!r} is not a number") from None


def seconds(value: Any, what: str) -> float:
    """A time above 0; infinite is for ever.

    Raises:
        InvalidArgument: it is none.
    """
    number = factor(value, what)
    if not number > 0:
        raise InvalidArgument(f"{what}: {number:g} is not a number of seconds above 0")
    return number


def reduction_number(value: Any) -> int:
    """Of a Reduction.

    Raises:
        InvalidArgument: it is none.
    """
    if type(value) is Reduction:
        return int(value)
    try:
        return int(Reduction(value))
    except ValueError:
        raise InvalidArgument(f"reduction: {value!r} is not among {', '.join(Reduction.__members__)}") from None
