"""Collective operations between the processes of one program, on Trainyard's data plane.

    import trainyard as ty

    group = ty.init()
    group.all_reduce(array)              # in place: numpy, torch, bytearray, ...
    print(ty.rank(), ty.size())

`trainyard.torch` has the backend of torch.distributed and the functions for training with torch. This module
imports neither torch nor numpy.
"""
from __future__ import annotations

from trainyard._errors import (Cancelled, Corrupt, ForkedProcess, InternalError, InvalidArgument, LibraryError,
                               Mismatch, NoRoom, NotInitialized, RankLost, RankSilent, Refused, TimedOut,
                               TrainyardError, Unreachable)
from trainyard._group import Group, Totals
from trainyard._types import Reduction
from trainyard._work import Work
from trainyard._world import (cross_rank, cross_size, group, init, is_initialized, local_rank, local_size, rank,
                              shutdown, size)
from trainyard.telling import report

__version__ = "0.1.0"

SUM = Reduction.SUM
AVERAGE = Reduction.AVERAGE
MIN = Reduction.MIN
MAX = Reduction.MAX
PRODUCT = Reduction.PRODUCT
BIT_AND = Reduction.BIT_AND
BIT_OR = Reduction.BIT_OR
BIT_XOR = Reduction.BIT_XOR

__all__ = [
    "AVERAGE", "BIT_AND", "BIT_OR", "BIT_XOR", "Cancelled", "Corrupt", "ForkedProcess", "Group", "InternalError",
    "InvalidArgument", "LibraryError", "MAX", "MIN", "Mismatch", "NoRoom", "NotInitialized", "PRODUCT", "RankLost",
    "RankSilent", "Reduction", "Refused", "SUM", "TimedOut", "Totals", "TrainyardError", "Unreachable", "Work",
    "cross_rank", "cross_size", "group", "init", "is_initialized", "local_rank", "local_size", "rank", "report",
    "shutdown", "size",
]
