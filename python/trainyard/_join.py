"""How a group comes about: listen, meet, join."""
from __future__ import annotations

import ctypes
import sys
from typing import List, NamedTuple, Optional, Sequence

from trainyard._arguments import seconds, whole
from trainyard._errors import InvalidArgument, Refused
from trainyard._group import Group
from trainyard._library import CGroupOptions, CMeeting, check, library
from trainyard._types import NO_TYPE, TYPES


class Options(NamedTuple):
    """How a group works. The same on all ranks.

    Attributes:
        join_timeout: seconds to wait for the other ranks.
        timeout: seconds of one operation, before the silent rank is blamed.
        share_memory: ranks of one machine share memory.
        deterministic: reductions in the order of ranks, whatever the sizes.
        wire: "float16" or "bfloat16": how float32 travels in all_reduce; None: as it is.
        arena_bytes: what Group.allocate() may give out.
        epoch: a rank that is still in an older one is waited for.
    """

    join_timeout: float = 300.0
    timeout: float = 1800.0
    share_memory: bool = True
    deterministic: bool = False
    wire: Optional[str] = None
    arena_bytes: int = 0
    epoch: int = 0

    def checked(self) -> Options:
        """The same, with numbers of Python.

        Raises:
            InvalidArgument: one is wrong. Asked before the ranks meet, because afterwards the others would wait.
        """
        if self.wire is not None and self.wire not in ("float16", "bfloat16"):
            raise InvalidArgument(f"wire: {self.wire!r} is neither float16 nor bfloat16")
        return self._replace(join_timeout=seconds(self.join_timeout, "join_timeout"),
                             timeout=seconds(self.timeout, "timeout"),
                             arena_bytes=whole(self.arena_bytes, "arena_bytes", 0, sys.maxsize))


class Listener:
    """A port to which the other ranks will connect."""

    def __init__(self, address: str, port: int = 0) -> None:
        """`address` is numeric; port 0 takes a free one.

        Raises:
            Unreachable: the address is taken, or not of this machine.
        """
        self._handle: Optional[int] = None
        handle = ctypes.c_void_p()
        check(library().ty_listen(address.encode(), port, ctypes.byref(handle)))
        self._handle = handle.value

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def port(self) -> int:
        return int(library().ty_listener_port(self._handle))

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            library().ty_listener_free(handle)


def meet(listener: Listener, rank: int, size: int, host: str, port: int, secret: str, seconds: float) -> List[str]:
    """All ranks' addresses ("host:port", numeric, by rank), found by meeting at rank 0's host and port.

    Raises:
        TimedOut: ranks have not come; the text names them.
        Refused: a rank has another secret or number of ranks.
        Unreachable: the port is taken, or the host unknown.
    """
    meeting = CMeeting(ctypes.sizeof(CMeeting), rank, size, host.encode(), port, secret.encode(), seconds)
    texts = ctypes.POINTER(ctypes.c_char_p)()
    try:
        check(library().ty_meet(meeting, listener._handle, ctypes.byref(texts)))
    except Refused as error:
        # All but rank 0 talk to nobody else.
        blamed = 0 if error.rank < 0 < rank else error.rank
        raise Refused(f"rank {rank} of {size}, meeting at {host}:{port}: {error}. All need one secret "
                      "(TRAINYARD_SECRET), one number of ranks, and a rank of their own", blamed) from None
    try:
        return [(texts[at] or b"").decode() for at in range(size)]
    finally:
        library().ty_addresses_free(texts, size)


def join(listener: Optional[Listener], rank: int, size: int, addresses: Sequence[str], secret: str,
         options: Options = Options()) -> Group:
    """Connects to all other ranks. One rank alone needs neither listener nor addresses.

    Raises:
        TimedOut, Refused, Unreachable, RankLost: the ranks do not come together; the text names who is missing.
        InvalidArgument: an option is wrong.
    """
    options = options.checked()
    texts = (ctypes.c_char_p * max(size, 1))(*[address.encode() for address in addresses])
    given = CGroupOptions(
        ctypes.sizeof(CGroupOptions), rank, size, ctypes.cast(texts, ctypes.POINTER(ctypes.c_char_p)),
        secret.encode(), options.epoch, options.join_timeout, options.timeout, int(options.share_memory),
        int(options.deterministic), NO_TYPE if options.wire is None else int(TYPES[options.wire]),
        options.arena_bytes)
    pointer = ctypes.c_void_p()
    check(library().ty_join(None if listener is None else listener._handle, given, ctypes.byref(pointer)))
    assert pointer.value is not None
    return Group(pointer.value, rank, size)
