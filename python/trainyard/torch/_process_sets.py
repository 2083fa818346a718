"""Some of the ranks as a set of their own, with operations among them.

Every function of this package takes `process_set=`. Ranks are those of the whole program everywhere,
also for `root_rank` within a set; results come in the set's ascending order of ranks.
"""
from __future__ import annotations

import itertools
from typing import Dict, Iterable, List, Optional, Sequence, Union

import trainyard
from trainyard._errors import InvalidArgument
from trainyard.torch._sequencer import Sequencer

_numbers = itertools.count(1)
_sets: Dict[int, "ProcessSet"] = {}


class ProcessSet:
    """A set of ranks. Of use after it was given to `init(process_sets=[...])` or `add_process_set`.

    `process_set_id` is None before that and after `remove_process_set`; the numbers are equal on all
    ranks. `ranks` ascend.
    """

    process_set_id: Optional[int] = None
    ranks: Optional[List[int]] = None
    mpi_comm = None

    def __init__(self, ranks: Iterable[int]) -> None:
        """ValueError for anything but whole numbers, or one that comes twice."""
        try:
            numbers = sorted(ranks)
        except TypeError:
            raise InvalidArgument("a ProcessSet is made of a list of ranks; there is no MPI here") from None
        if any(isinstance(rank, bool) or not isinstance(rank, int) for rank in numbers):
            raise InvalidArgument(f"a ProcessSet is made of ranks, which are whole numbers, not {numbers}")
        if len(set(numbers)) != len(numbers):
            raise InvalidArgument(f"a rank comes twice in {numbers}")
        self.ranks = numbers
        self._sequencer: Optional[Sequencer] = None

    def size(self) -> Optional[int]:
        """Number of ranks in the set; None before it is of use."""
        return None if self.process_set_id is None else len(self.ranks or [])

    def rank(self) -> Optional[int]:
        """This process's position in the set; None before it is of use.

        ValueError where this process is not in it.
        """
        if self.process_set_id is None:
            return None
        return self.position_of(trainyard.rank())

    def included(self) -> Optional[bool]:
        """Whether this process is in it; None before `init()`."""
        return None if self.ranks is None else trainyard.rank() in self.ranks

    def position_of(self, rank: int) -> int:
        """Where `rank` of the whole program is in the set; ValueError where it is not."""
        ranks = self.ranks or []
        if rank not in ranks:
            raise InvalidArgument(f"rank {rank} is not in {self}")
        return ranks.index(rank)

    def sequencer(self) -> Sequencer:
        """Where this process gives the set's operations.

        ValueError before the set is of use, and where this process is not in it.
        """
        if self.process_set_id is None:
            raise InvalidArgument(
                f"{self} is of no use yet: give it to init(process_sets=[...]) or add_process_set()")
        if self._sequencer is None:
            raise InvalidArgument(f"rank {trainyard.rank()} is not in {self}")
        return self._sequencer

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__

    def _join(self) -> None:
        """All ranks of the program come here together."""
        ranks = list(self.ranks or [])
        group = global_process_set.sequencer().run_here(lambda world: world.split(ranks))
        self._sequencer = None if group is None else Sequencer(group)
        self.process_set_id = next(_numbers)
        _sets[self.process_set_id] = self

    def _leave(self) -> None:
        """The members come here together."""
        sequencer, number = self._sequencer, self.process_set_id
        self._sequencer = None
        self.process_set_id = None
        _sets.pop(number or 0, None)
        if sequencer is None:
            return
        try:
            # A member that left sooner would be lost to those still in an operation.
            sequencer.run_here(lambda group: group.barrier())
        finally:
            sequencer.group.leave()


class _GlobalProcessSet(ProcessSet):
    """All ranks. Follows what `trainyard.init()` and `shutdown()` do, also by themselves."""

    process_set_id = 0

    def __init__(self) -> None:
        self._sequencer = None

    @property
    def ranks(self) -> Optional[List[int]]:  # type: ignore[override]
        return list(range(trainyard.size())) if trainyard.is_initialized() else None

    def size(self) -> int:
        return trainyard.size()

    def rank(self) -> int:
        return trainyard.rank()

    def sequencer(self) -> Sequencer:
        group = trainyard.group()
        if self._sequencer is None or self._sequencer.group is not group:
            self._sequencer = Sequencer(group)
        return self._sequencer


global_process_set = _GlobalProcessSet()


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Makes a set of use. All ranks call it, those outside of the set too, in the same order.

    ValueError for ranks that there are not, no ranks, or those of another set.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    size = trainyard.size()
    ranks = added.ranks or []
    if not ranks or ranks[0] < 0 or ranks[-1] >= size:
        raise InvalidArgument(f"{added} needs ranks from 0 to {size - 1}")
    for other in [global_process_set, *_sets.values()]:
        if other.ranks == ranks:
            raise InvalidArgument(f"Attempted to add a duplicate process set: {ranks} is {other}")
    added._join()
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Gives a set up; all its members call it. False for the global one and one not of use."""
    if not process_set.process_set_id:
        return False
    process_set._leave()
    return True


def forget_all() -> None:
    """The program's group is gone, and with it all sets."""
    for process_set in list(_sets.values()):
        process_set._sequencer = None
        process_set.process_set_id = None
    _sets.clear()
    global_process_set._sequencer = None
