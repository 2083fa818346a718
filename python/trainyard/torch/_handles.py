"""Numbers for operations under way: what the `_async` functions return.

A handle is an int that `poll` and `synchronize` take. It is given back by `synchronize`; so is the
operation's name, which at most one operation may have at a time. A name stays taken until then,
whether or not the operation is done: were it free as soon as it is done, the same program would
fail on a slow rank and pass on a fast one.
"""
from __future__ import annotations

import itertools
import threading
from typing import Any, Callable, Dict, NamedTuple, Optional, Set, Tuple, Union

from trainyard._errors import InvalidArgument, NotInitialized
from trainyard.torch._sequencer import Pending

# What an operation's start returns: how to wait for it, and what makes the result of what that gave.
Started = Tuple[Pending, Callable[[Any], Any]]


class _Entry(NamedTuple):
    pending: Pending
    finish: Callable[[Any], Any]
    name: Optional[str]


_lock = threading.Lock()
_entries: Dict[int, _Entry] = {}
_names: Set[str] = set()
_numbers = itertools.count()


def begin(kind: str, name: Optional[str], start: Callable[[], Started]) -> int:
    """Starts an operation and returns its handle.

    Raises ValueError where an operation of this kind and name is not synchronized yet, and whatever
    `start` raises.
    """
    taken = None if name is None else f"{kind}.{name}"
    _take(taken, kind, name)
    try:
        pending, finish = start()
    except BaseException:
        _free(taken)
        raise
    with _lock:
        handle = next(_numbers)
        _entries[handle] = _Entry(pending, finish, taken)
    return handle


def poll(handle: int) -> bool:
    """Whether the operation is done, so that `synchronize` returns, or raises, without waiting.

    ValueError for a handle that is none, or was synchronized already.
    """
    entry = _entries.get(handle)
    if entry is None:
        raise InvalidArgument(f"{handle!r} is no handle of an operation under way")
    return entry.pending.done()


def synchronize(handle: Union[int, Callable[[], Any]]) -> Any:
    """Waits for the operation and returns its tensor, or tuple of tensors.

    None for a handle that was synchronized already. Raises what went wrong: a subclass of
    HorovodInternalError where a rank is lost.
    """
    if callable(handle):  # Of sparse_allreduce_async.
        return handle()
    with _lock:
        entry = _entries.pop(handle, None)
    if entry is None:
        return None
    try:
        return entry.finish(entry.pending.wait())
    finally:
        _free(entry.name)


class _Dropped(Pending):
    """Was not synchronized when the groups were left."""

    def __init__(self, name: Optional[str]) -> None:
        self._name = name

    def done(self) -> bool:
        return True

    def wait(self) -> Any:
        raise NotInitialized(f"{self._name or 'the operation'} was not synchronized before shutdown()")


def drop_all() -> None:
    """The groups are gone, and with them what was under way: who asks for it is told."""
    with _lock:
        for handle, entry in _entries.items():
            _entries[handle] = _Entry(_Dropped(entry.name), entry.finish, None)
        _names.clear()


def _take(taken: Optional[str], kind: str, name: Optional[str]) -> None:
    if taken is None:
        return
    with _lock:
        if taken in _names:
            raise InvalidArgument(
                f"{kind} of {name!r} was asked for twice: call synchronize() on the handle of the "
                "first, or give the second another name")
        _names.add(taken)


def _free(taken: Optional[str]) -> None:
    if taken is not None:
        with _lock:
            _names.discard(taken)
