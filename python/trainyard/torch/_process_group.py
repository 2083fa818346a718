"""A process group of torch.distributed over a group of trainyard."""
from __future__ import annotations

import collections
import datetime
import os
from typing import Any, Deque, List, Optional, Sequence

import torch
from torch._C import _distributed_c10d as c10d

from trainyard import Group
from trainyard import Work as TrainyardWork
from trainyard.torch._c10d_collectives import Collectives
from trainyard.torch._c10d_monitored import monitored_barrier
from trainyard.torch._c10d_store import form_group
from trainyard.torch._c10d_tensors import Outputs, moved, packed, single
from trainyard.torch._c10d_work import Work

NAME = "trainyard"


class Members(Collectives):
    """Collectives, messages and what torch asks a process group besides."""

    # Said here, because torch 2.15 asks a backend in Python by the property that asks it.
    supports_coalescing = False
    supports_reconfigure = False
    supports_shrinking = False
    supports_splitting = False
    supports_window = False

    def _begin(self, group: Group, timeout: datetime.timedelta) -> None:
        self._group = group
        self._timeout = timeout
        self._monitored = 0
        self._together: Optional[List[Work]] = None
        self._kept = _Kept() if _FORGETFUL else None

    # ---- Messages -------------------------------------------------------------------------------

    def send(self, tensors: Any, dst_rank: int, tag: int = 0) -> Work:
        """Sends a tensor to a rank; done when it may be changed again."""
        tensor = single(tensors, "send")
        return self._work([self._group.send(moved(packed(tensor)), dst_rank, tag, async_=True)], [tensor])

    def recv(self, tensors: Any, src_rank: int, tag: int = 0) -> Work:
        """Receives a tensor from a rank."""
        return self._receive(tensors, src_rank, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """Receives a tensor from any rank, which source_rank() of the work tells."""
        return self._receive(tensors, None, tag)

    def _receive(self, tensors: Any, source: Optional[int], tag: int) -> Work:
        tensor = single(tensors, "recv")
        outputs = Outputs()
        work = self._group.receive(moved(outputs.of(tensor)), source, tag, async_=True)
        assert isinstance(work, TrainyardWork)
        return self._work([work], [tensor], outputs)

    # ---- Several as one -------------------------------------------------------------------------

    def start_coalescing(self, device: Any = None) -> None:
        """Operations until end_coalescing() are one for the caller. They begin at once."""
        self._together = []

    def end_coalescing(self, device: Any = None) -> Work:
        """A work that is done when all operations since start_coalescing() are."""
        begun, self._together = self._together or [], None
        return _All(begun)

    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing

    # ---- Who is missing -------------------------------------------------------------------------

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Returns when all ranks have come; else raises on rank 0, naming those that did not within `timeout`.

        All ranks call it equally often. torch.distributed.monitored_barrier gets here only where the group has several
        backends, from torch 2.15 on; others call it of the group. `timeout` is a timedelta, or for C++ options with
        one, below 0 for none.
        """
        self._monitored += 1
        given = getattr(timeout, "timeout", timeout)
        chosen = self._timeout if given is None or given < datetime.timedelta(0) else given
        monitored_barrier(self._group, self._monitored, chosen.total_seconds(), wait_all_ranks)

    # ---- About the group ------------------------------------------------------------------------

    def getBackendName(self) -> str:
        return NAME

    def _get_backend_name(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    def _set_sequence_number_for_group(self) -> None:
        self._operations = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._operations

    def shutdown(self) -> None:
        """Leaves the group."""
        self._group.leave()

    def abort(self) -> None:
        """Ends the group: the others raise RankLost."""
        self._group.abort("the process group was aborted")

    def _work(self, works: Sequence[Optional[TrainyardWork]], tensors: List[torch.Tensor],
              outputs: Optional[Outputs] = None) -> Work:
        work = super()._work(works, tensors, outputs)
        if self._together is not None:
            self._together.append(work)
        if self._kept is not None:
            self._kept.add(work)
        return work


class _All(Work):
    """Several works as one."""

    def __init__(self, begun: Sequence[Work]) -> None:
        super().__init__([each for work in begun for each in work._works],
                         [tensor for work in begun for tensor in work._tensors], self._finish_all)
        self._begun = list(begun)

    def _finish_all(self) -> None:
        for work in self._begun:
            work._finish_once()


class _Kept:
    """The newest works, for C++ of torch before 2.7.

    It does not refer to the Python part of a work that it was given, and waits for ever once that is gone. It holds a
    few small ones over a whole step, large ones not for long.
    """

    def __init__(self) -> None:
        self._small: Deque[Work] = collections.deque(maxlen=64)
        self._large: Deque[Work] = collections.deque(maxlen=3)

    def add(self, work: Work) -> None:
        elements = sum(tensor.numel() for tensor in work._tensors)
        (self._small if elements <= 4096 else self._large).append(work)


_FORGETFUL = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 7)


_ProcessGroup: Any = c10d.ProcessGroup


class TrainyardProcessGroup(Members, _ProcessGroup):
    """A process group whose tensors are all of the CPU, for every version of torch from 1.13 on."""

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        """All ranks call it with one store; it joins the group.

        Raises:
            trainyard.TimedOut, RankLost, Refused, Unreachable: the ranks do not come together.
        """
        _ProcessGroup.__init__(self, rank, size)
        self._group_name = self._group_desc = ""
        self._begin(self._form(store, rank, size, timeout), timeout)

    def _form(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Group:
        return form_group(store, rank, size, timeout, os.environ)

    def _get_backend(self, device: Any) -> TrainyardProcessGroup:
        """What torch asks about the backend of a kind of device it may ask this."""
        return self

    # C++ keeps the name with the backends, of which there is none here. It calls the first four, Python the others.

    def setGroupName(self, name: str) -> None:
        self._group_name = name

    def getGroupName(self) -> str:
        return self._group_name

    def setGroupDesc(self, text: str) -> None:
        self._group_desc = text

    def getGroupDesc(self) -> str:
        return self._group_desc

    _set_group_name = setGroupName
    _set_group_desc = setGroupDesc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
