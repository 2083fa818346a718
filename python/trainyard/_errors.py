"""What can go wrong, as exceptions. All are TrainyardError, which is a RuntimeError."""
from __future__ import annotations

from typing import Tuple, Type


class TrainyardError(RuntimeError):
    """Base of all errors of this package.

    Attributes:
        rank: the rank to blame, -1 where none is known.
    """

    rank: int = -1

    def __init__(self, text: str = "", rank: int = -1) -> None:
        super().__init__(text)
        self.text = text
        self.rank = rank

    def __str__(self) -> str:
        return self.text

    def tell(self, what: str) -> None:
        """Puts `what` it is about before the text."""
        self.text = f"{what}: {self.text}"
        self.args = (self.text,)

    def __reduce__(self) -> Tuple[Type[TrainyardError], Tuple[str, int]]:
        return type(self), (self.text, self.rank)


class InvalidArgument(TrainyardError, ValueError):
    """An argument is wrong. Nothing was sent, and the group lives on."""


class Mismatch(TrainyardError):
    """The ranks are in different operations, or with other types or sizes."""


class HorovodInternalError(RuntimeError):
    """What Horovod raises when ranks are lost: scripts written for it catch that."""


class RankLost(TrainyardError, HorovodInternalError):
    """A rank died, left or failed. The group is of no more use; a new one may be joined.

    Attributes:
        rank: which one.
        operation: what was under way and what became of it, in words.
    """

    def __init__(self, rank: int, operation: str) -> None:
        super().__init__(operation, rank)

    @property
    def operation(self) -> str:
        return self.text

    def __reduce__(self) -> Tuple[Type[TrainyardError], Tuple[int, str]]:  # type: ignore[override]
        return type(self), (self.rank, self.operation)


class TimedOut(TrainyardError):
    """Time is over."""


class RankSilent(RankLost, TimedOut):
    """A rank was silent for as long as the group allows: stopped, hung, or cut off."""


class Corrupt(TrainyardError):
    """What came is not of this protocol, or damaged."""


class Refused(TrainyardError):
    """Another rank has another secret, version or number of ranks."""


class Unreachable(TrainyardError):
    """Nobody is there, or an address is taken."""


class Cancelled(TrainyardError):
    """The group was aborted on this rank."""


class JobFailed(TrainyardError):
    """The job has failed, and with what."""


class NotInitialized(TrainyardError):
    """init() was not called, or the group was left."""


class ForkedProcess(NotInitialized):
    """A group of the parent was used in a forked child, where it does not exist."""


class NoRoom(TrainyardError, MemoryError):
    """No memory of the kind asked for."""


class InternalError(TrainyardError):
    """A defect of trainyard."""


class LibraryError(TrainyardError, ImportError):
    """libtrainyard.so was not found, cannot be loaded, or is of another version."""
