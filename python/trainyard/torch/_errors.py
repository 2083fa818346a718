"""Errors by Horovod's names."""
from __future__ import annotations

from trainyard._errors import HorovodInternalError, Mismatch

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "mismatch"]


class HostsUpdatedInterrupt(RuntimeError):
    """Never raised here: programs are started again together when ranks change."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the ranks of the program have changed")
        self.skip_sync = skip_sync


def mismatch(text: str, rank: int) -> Exception:
    """What `rank` gives does not fit what the others give."""
    return Mismatch(text, rank)
