"""Numbers of the C ABI: element types, reductions, codes. They are those of trainyard.h and stay."""
from __future__ import annotations

import enum
from typing import Dict


class Type(enum.IntEnum):
    """Of one element."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    FLOAT64 = 3
    INT32 = 4
    INT64 = 5
    UINT8 = 6
    INT8 = 7
    BOOL = 8


class Reduction(enum.IntEnum):
    """How the ranks' values become one.

    Integers wrap around. Booleans: SUM and MAX are "any", PRODUCT and MIN "all". BIT_*: integers and booleans
    only. AVERAGE divides the sum by the number of ranks, integers towards zero.
    """

    SUM = 0
    MIN = 1
    MAX = 2
    PRODUCT = 3
    BIT_AND = 4
    BIT_OR = 5
    BIT_XOR = 6
    AVERAGE = 7


class Code(enum.IntEnum):
    """How a call went."""

    OK = 0
    PENDING = 1
    INVALID = 2
    MISMATCH = 3
    RANK_LOST = 4
    TIMEOUT = 5
    CORRUPT = 6
    REFUSED = 7
    UNREACHABLE = 8
    CANCELLED = 9
    DEAD = 10
    NO_ROOM = 11
    INTERNAL = 12
    JOB_FAILED = 13


NO_TYPE = -1

ITEM_BYTES: Dict[Type, int] = {
    Type.FLOAT32: 4,
    Type.FLOAT16: 2,
    Type.BFLOAT16: 2,
    Type.FLOAT64: 8,
    Type.INT32: 4,
    Type.INT64: 8,
    Type.UINT8: 1,
    Type.INT8: 1,
    Type.BOOL: 1,
}

# By name, as numpy, torch and others spell them.
TYPES: Dict[str, Type] = {kind.name.lower(): kind for kind in Type}
SUPPORTED = ", ".join(TYPES)
