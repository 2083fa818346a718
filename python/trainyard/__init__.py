"""Collective operations between the processes of one program, and training loops that are a job's, on Trainyard's data
plane.

    import trainyard as ty

    group = ty.init()
    group.all_reduce(array)              # in place: numpy, torch, bytearray, ...
    print(ty.rank(), ty.size())

    job = ty.job()                       # a worker of a job with `model: {name: program}`
    for batch in job.steps(loader):
        ...

`trainyard.torch` has the backend of torch.distributed and the functions for training with torch. This module
imports neither torch nor numpy.
"""
from __future__ import annotations

from trainyard._errors import (Cancelled, Corrupt, ForkedProcess, InternalError, InvalidArgument, JobFailed,
                               LibraryError, Mismatch, NoRoom, NotInitialized, RankLost, RankSilent, Refused,
                               TimedOut, TrainyardError, Unreachable)
from trainyard._group import Group, Totals
from trainyard._job import Job, job
from trainyard._model_arrays import Arrays
from trainyard._session import Outcome, TurnKind
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
    "AVERAGE", "Arrays", "BIT_AND", "BIT_OR", "BIT_XOR", "Cancelled", "Corrupt", "ForkedProcess", "Group",
    "InternalError", "InvalidArgument", "Job", "JobFailed", "LibraryError", "MAX", "MIN", "Mismatch", "NoRoom", "NotInitialized",
    "Outcome", "PRODUCT", "RankLost", "RankSilent", "Reduction", "Refused", "SUM", "TimedOut", "Totals",
    "TrainyardError", "TurnKind", "Unreachable", "Work", "cross_rank", "cross_size", "group", "init",
    "is_initialized", "job", "local_rank", "local_size", "rank", "report", "shutdown", "size",
]
