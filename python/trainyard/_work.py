"""An operation under way."""
from __future__ import annotations

import collections
import itertools
import logging
import threading
from typing import Any, Callable, Deque, Dict, List, Optional

from trainyard._errors import ForkedProcess, TimedOut, TrainyardError
from trainyard._library import NotifyFunction, check, error_of, generation, library
from trainyard._types import Code

LOG = logging.getLogger("trainyard")
# A wait without a limit, in which the library asks for signals and may carry the operation out on this thread.
FOR_EVER = -1.0


class Work:
    """An operation that was given to a group: wait for it, ask for it, or be called when it is done.

    The arrays of the operation stay referred to until it is done, whether or not anybody keeps this object. All
    methods may be called from any thread.
    """

    def __init__(self, handle: int, keep: Any, what: str, tensor: Optional[str] = None) -> None:
        """Takes over `handle`; `keep` is referred to until the operation is done. `tensor` is for errors of messages,
        of which the library keeps no name."""
        self._handle: Optional[int] = handle
        self._generation = generation()
        self._keep = keep
        self._what = what if tensor is None else f"{what} of '{tensor}'"
        self._tensor = tensor
        self._lock = threading.Lock()
        self._over = False
        self._error: Optional[Exception] = None
        self._callbacks: Optional[List[Callable[[Work], None]]] = None
        self._event: Optional[threading.Event] = None
        _spent.clear()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None and self._generation == generation():
            library().ty_work_free(handle)

    def __repr__(self) -> str:
        return f"<trainyard.Work {self._what}: {'done' if self.done() else 'under way'}>"

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the operation is done.

        Args:
            timeout: in seconds; None: as long as the group allows.

        Raises:
            RankLost: a rank died, left or failed; RankSilent: it hangs.
            Mismatch: a rank was in another operation, or with other types or sizes.
            TimedOut: `timeout` is over; the operation goes on, and may be waited for again.
            ForkedProcess: this is a forked child.
        """
        if not self._over:
            if self._is_dead():
                raise ForkedProcess(f"{self._what}: this process is a forked child of the one that began it")
            if timeout is not None:
                self._wait_idly(timeout)
            self._wait()
        if self._error is not None:
            raise self._error

    def _wait(self) -> None:
        """Carries the operation out on this thread where nobody does already: that is faster."""
        code = library().ty_wait(self._handle, FOR_EVER)
        if code != Code.OK:
            error = error_of(code)
            assert isinstance(error, Exception)
            if self._tensor is not None and isinstance(error, TrainyardError):
                error.tell(f"tensor '{self._tensor}'")
            self._error = error
        self._over = True
        self._keep = None
        check(Code.OK)

    def _wait_idly(self, seconds: float) -> None:
        """Leaves the operation to the library's threads, because who carries it out cannot stop halfway."""
        with self._lock:
            added, self._event = self._event, self._event or threading.Event()
        event = self._event
        if added is None:
            self.add_done_callback(lambda _: event.set())
        if not event.wait(max(seconds, 0.0)):
            raise TimedOut(f"{self._what}: not done within {seconds:g} s")

    def done(self) -> bool:
        """Whether it is done, one way or the other."""
        return self._over or (not self._is_dead() and bool(library().ty_done(self._handle)))

    def _is_dead(self) -> bool:
        return self._generation != generation()

    def exception(self) -> Optional[Exception]:
        """What wait() raises; None while the operation is under way, or when it went well."""
        if self.done():
            try:
                self.wait()
            except Exception as error:
                return error
        return None

    @property
    def source(self) -> int:
        """Of a receive(): waits for it, and is the rank from which the message came."""
        self.wait()
        return int(library().ty_receive_source(self._handle))

    def add_done_callback(self, function: Callable[[Work], None]) -> None:
        """Calls `function(work)` when the operation is done, at once if it is done already.

        It is called on any thread, mostly one of the library, where the next operations wait for it: it should
        be short, and cannot leave the group. What it raises is logged.
        """
        with self._lock:
            first = self._callbacks is None
            later = first or not self.done()
            if later:
                self._callbacks = [*(self._callbacks or []), function]
        if first:
            self._notify()
        elif not later:
            _call(function, self)

    def _notify(self) -> None:
        key = next(_keys)
        _notified[key] = self
        library().ty_notify(self._handle, _notify_function, key)

    def _run_callbacks(self) -> None:
        while True:
            with self._lock:
                if not self._callbacks:
                    return
                function, self._callbacks = self._callbacks[0], self._callbacks[1:]
            _call(function, self)


def in_callback() -> bool:
    """Whether this thread may be one of the library that tells what is done."""
    return getattr(_thread, "telling", False)


def _call(function: Callable[[Work], None], work: Work) -> None:
    try:
        function(work)
    except BaseException:  # it must not reach the library's thread
        LOG.exception("a callback of %s failed", work._what)


# The library carries a number, and this the object: so nothing of Python is freed while it is there.
_notified: Dict[int, Work] = {}
_keys = itertools.count(1)
# Works whose callbacks have run. The library does not allow to free one from its own callback.
_spent: Deque[Work] = collections.deque()
_thread = threading.local()


def _done(key: Optional[int]) -> None:
    work = _notified.pop(key or 0, None)
    if work is None:
        return
    _thread.telling = True
    work._run_callbacks()
    _thread.telling = False
    _spent.append(work)


_notify_function = NotifyFunction(_done)


class Flight:
    """Works that are not done: they, and by them their arrays, are referred to until they are."""

    def __init__(self) -> None:
        self._works: List[Work] = []
        self._lock = threading.Lock()
        self._limit = 16

    def add(self, work: Work) -> None:
        with self._lock:
            if len(self._works) >= self._limit:
                self._works = [each for each in self._works if not each.done()]
                # Where many are under way, each of them is asked a bounded number of times.
                self._limit = max(16, 2 * len(self._works))
            self._works.append(work)

    def over(self) -> bool:
        """Whether all of them are done."""
        if not self._works:
            return True
        with self._lock:
            self._works = [each for each in self._works if not each.done()]
            return not self._works
