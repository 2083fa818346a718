"""The group of all processes of a program: init() to shutdown()."""
from __future__ import annotations

import atexit
import os
import threading
from typing import List, NamedTuple, Optional

from trainyard._errors import ForkedProcess, InvalidArgument, NotInitialized
from trainyard._group import Group
from trainyard._join import Listener, Options, join, meet
from trainyard._library import derive, generation, quiet, set_log_level
from trainyard._rendezvous import (Locality, Meeting, Place, find_locality, find_meeting, find_place,
                                   listen_address)


class _World(NamedTuple):
    group: Group
    locality: Locality
    generation: int


_world: Optional[_World] = None
_lock = threading.RLock()


def init(rank: Optional[int] = None, size: Optional[int] = None, *, local_rank: Optional[int] = None,
         local_size: Optional[int] = None, address: Optional[str] = None, secret: Optional[str] = None,
         join_timeout: float = 300.0, timeout: float = 1800.0, share_memory: bool = True,
         deterministic: bool = False, wire: Optional[str] = None, arena_bytes: int = 0) -> Group:
    """Joins the group of all processes of this program, and returns it.

    Without arguments its launcher tells where this process is: `trainyard run`, torchrun, mpirun or srun; without
    one it is alone, and everything works with one rank. All processes meet at TRAINYARD_RENDEZVOUS ("host:port" of
    rank 0) or at MASTER_ADDR and the port after MASTER_PORT. Between machines they need one secret,
    TRAINYARD_SECRET, which is not sent.

    Once more without rank and size it returns the same group.

    Args:
        rank, size: of this process, and how many there are; both or none.
        local_rank, local_size: among the processes of this machine.
        address: "host:port" of rank 0.
        secret: the same on all ranks.
        join_timeout: seconds to wait for the others.
        timeout: seconds of one operation before a silent rank is blamed.
        share_memory, deterministic, wire, arena_bytes: see Options.

    Raises:
        InvalidArgument: something is missing or contradicts; the text says what to set.
        TimedOut, Refused, Unreachable, RankLost: the ranks do not come together.
        LibraryError: libtrainyard.so is missing, or of another version.
    """
    global _world
    with _lock:
        if _world is not None and _world.generation == generation():
            return _again(_world.group, rank, size)
        set_log_level()
        place = find_place(os.environ, rank, size, local_rank, local_size)
        options = Options(join_timeout, timeout, share_memory, deterministic, wire, arena_bytes).checked()
        meeting = find_meeting(os.environ, place, address, secret)
        _world = _form(place, meeting, options)
        return _world.group


def _again(group: Group, rank: Optional[int], size: Optional[int]) -> Group:
    for name, given, there in (("rank", rank, group.rank), ("size", size, group.size)):
        if given is not None and given != there:
            raise InvalidArgument(f"init: this process is rank {group.rank} of {group.size} already, not {name} "
                                  f"{given}; shutdown() comes first")
    return group


def _form(place: Place, meeting: Optional[Meeting], options: Options) -> _World:
    if meeting is None:
        return _World(join(None, 0, 1, [], "", options), Locality(0, 1, 0, 1), generation())
    # Whoever reaches a port of the loopback device is on this machine: this only keeps programs apart.
    secret = meeting.secret or derive("trainyard loopback", f"{meeting.host}:{meeting.port}")
    with Listener(listen_address(meeting.host)) as listener:
        addresses: List[str] = meet(listener, place.rank, place.size, meeting.host, meeting.port, secret,
                                    options.join_timeout)
        group = join(listener, place.rank, place.size, addresses, secret, options)
    return _World(group, find_locality(addresses, place), generation())


def shutdown() -> None:
    """Leaves the group of init(). Without one it does nothing. init() may be called again."""
    global _world
    with _lock:
        if _world is not None and _world.generation == generation():
            _world.group.leave()
        _world = None


def is_initialized() -> bool:
    """Whether init() was called in this process, and shutdown() was not."""
    return _world is not None and _world.generation == generation()


def group() -> Group:
    """The group of init().

    Raises:
        NotInitialized: there is none. ForkedProcess: it is the parent's.
    """
    return _known().group


def _known() -> _World:
    if _world is None:
        raise NotInitialized("trainyard.init() was not called, or shutdown() was")
    if _world.generation != generation():
        raise ForkedProcess("this process is a forked child; the group of trainyard.init() is its parent's")
    return _world


def rank() -> int:
    """Of this process among all, from 0."""
    return _known().group.rank


def size() -> int:
    """How many processes there are."""
    return _known().group.size


def local_rank() -> int:
    """Of this process among those of its machine, from 0."""
    return _known().locality.local_rank


def local_size() -> int:
    """How many processes of this program are on this machine."""
    return _known().locality.local_size


def cross_rank() -> int:
    """Of this machine among those that have a process of this local rank, from 0."""
    return _known().locality.cross_rank


def cross_size() -> int:
    """How many machines have a process of this local rank."""
    return _known().locality.cross_size


def _at_exit() -> None:
    """Before the interpreter ends: afterwards no thread of the library may call into it."""
    global _world
    world, _world = _world, None
    if world is not None and world.generation == generation():
        world.group._handle.leave()
    quiet()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
