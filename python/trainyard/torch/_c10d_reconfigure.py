"""A process group whose ranks are told while it runs: torch's experimental regime enable_reconfigure, from 2.15 on."""
from __future__ import annotations

import datetime
import hashlib
import os
import secrets
from typing import Any, List, Mapping, NoReturn, Optional, Sequence, cast

from trainyard import Group, InvalidArgument, NotInitialized
from trainyard._join import Listener, Options, join
from trainyard.torch._c10d_store import own_host
from trainyard.torch._c10d_work import Work
from trainyard.torch._process_group import TrainyardProcessGroup

# What a group's epoch has room for.
_EPOCHS = 1 << 62


class ReconfigurableProcessGroup(TrainyardProcessGroup):
    """Has no ranks until reconfigure() says who they are, and others each time that it says so again.

    A handle says where this rank listens, and has its share of the secret by which the ranks of one call of
    reconfigure() know each other: who sees the handles may join. With TRAINYARD_SECRET it is that one.
    """

    supports_reconfigure = True

    def __init__(self, rank: int, size: int, timeout: datetime.timedelta) -> None:
        """`rank` and `size` are told until the first reconfigure()."""
        super().__init__(None, rank, size, timeout)
        self._rank, self._size = rank, size
        self._listener: Optional[Listener] = None
        self._handle = ""

    def _form(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Group:
        return cast(Group, _NO_RANKS)

    # C++ asks these too: DistributedDataParallel divides by the size.

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return self._size

    rank = getRank
    size = getSize

    def get_reconfigure_handle(self) -> str:
        """This rank's, for the next reconfigure(); another one after each."""
        if self._listener is None:
            host = own_host(os.environ)
            self._listener = Listener(host)
            place = f"[{host}]" if ":" in host else host
            self._handle = f"{place}:{self._listener.port}/{secrets.token_hex(16)}"
        return self._handle

    def reconfigure(self, opts: Any) -> Work:
        """Leaves the ranks so far and joins those of `opts.handles`: ranks are their places in a list, or their order
        by text in a set. It is done when this returns. `opts.uuid` is the same on all.

        Raises:
            trainyard.InvalidArgument: the handles are none, or this rank's newest is not among them.
            trainyard.TimedOut, RankLost, Refused, Unreachable: the ranks do not come together; another reconfigure()
                with new handles may.
        """
        handles = _ordered(opts.handles)
        if self._handle not in handles or self._listener is None:
            raise InvalidArgument(f"reconfigure: this rank's handle is not among the {len(handles)}: each is good for "
                                  "one reconfigure(), and get_reconfigure_handle() tells the next")
        listener, self._listener = self._listener, None
        self._leave_ranks()
        seconds = (self._timeout if opts.timeout is None else opts.timeout).total_seconds()
        options = Options(join_timeout=max(seconds, 0.001), timeout=max(self._timeout.total_seconds(), 0.001),
                          epoch=opts.uuid % _EPOCHS)
        rank, size = handles.index(self._handle), len(handles)
        with listener:
            addresses = [each.partition("/")[0] for each in handles]
            group = join(listener, rank, size, addresses, _secret(handles, os.environ), options)
        self._rank, self._size = rank, size
        self._begin(group, self._timeout)
        return Work([], [])

    def _leave_ranks(self) -> None:
        group, self._group = self._group, _NO_RANKS
        if group is not _NO_RANKS:
            group.leave()

    def shutdown(self) -> None:
        """Leaves the group."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        self._leave_ranks()

    def abort(self) -> None:
        """Ends the group, if there is one: the others raise RankLost."""
        if self._group is not _NO_RANKS:
            super().abort()


class _NoRanks:
    """What is the group where there is none."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotInitialized("the process group has no ranks: with enable_reconfigure=True "
                             "torch.distributed._reconfigure() comes before the first operation")


_NO_RANKS: Any = _NoRanks()


def _ordered(handles: Any) -> List[str]:
    """By rank.

    Raises:
        InvalidArgument: there are none, one is twice, or one is not of this backend.
    """
    given = sorted(handles) if isinstance(handles, (set, frozenset)) else list(handles)
    if not given or len(set(given)) != len(given):
        raise InvalidArgument(f"reconfigure: {len(given)} handles, of which {len(set(given))} differ: one for each rank")
    for each in given:
        address, _, share = each.partition("/")
        if not share or not address.rpartition(":")[2].isdigit():
            raise InvalidArgument(f"reconfigure: {each!r} is not what get_reconfigure_handle() of trainyard tells")
    return given


def _secret(handles: Sequence[str], environment: Mapping[str, str]) -> str:
    named = environment.get("TRAINYARD_SECRET")
    return named or hashlib.sha256("\n".join(handles).encode()).hexdigest()
