"""The one order in which this process gives its operations to a group.

Ranks must give a group the same operations in the same order. Most operations are one call that
returns at once. Some need an answer before they can go on: an all-gather of parts of different
length asks for the lengths first. Were its second half given when the answer comes, it would land
among whatever this rank has given meanwhile, elsewhere on each rank. So while such an operation is
under way, those behind it wait in a queue of the sequencer, and a thread gives them in their order.
"""
from __future__ import annotations

import collections
import os
import threading
from typing import Any, Callable, Deque, Optional


class Pending:
    """An operation that was asked for. Lives until its result was taken."""

    def done(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        raise NotImplementedError

    def wait(self) -> Any:
        """Blocks until it is done; raises what went wrong."""
        raise NotImplementedError


class _Given(Pending):
    """In the group's own queue."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def done(self) -> bool:
        return bool(self._work.done())

    def wait(self) -> Any:
        self._work.wait()


class _Queued(Pending):
    """Behind an operation of several halves, or one itself."""

    def __init__(self, function: Callable[[Any], Any], blocks: bool) -> None:
        self._function = function
        self._blocks = blocks
        self._left_queue = threading.Event()
        self._work: Any = None
        self._result: Any = None
        self._error: Optional[BaseException] = None

    def carry_out(self, group: Any) -> None:
        """Called once, in the sequencer's order."""
        try:
            result = self._function(group)
            if self._blocks:
                self._result = result
            else:
                self._work = result
        except BaseException as error:  # Belongs to whoever waits, not to the sequencer's thread.
            self._error = error
        self._left_queue.set()

    def done(self) -> bool:
        if not self._left_queue.is_set():
            return False
        return self._work is None or bool(self._work.done())

    def wait(self) -> Any:
        self._left_queue.wait()
        if self._error is not None:
            raise self._error
        if self._work is not None:
            self._work.wait()
        return self._result


class Sequencer:
    """Gives operations to `group` in the order of the calls, from any thread.

    Errors of an operation are raised where its result is waited for, except those that the group
    raises at once (a wrong argument) when nothing is queued: these come from `give` itself.
    """

    def __init__(self, group: Any) -> None:
        self.group = group
        self._lock = threading.Lock()
        self._queue: Deque[_Queued] = collections.deque()
        self._busy = False
        self._process = os.getpid()

    def give(self, start: Callable[[Any], Any]) -> Pending:
        """`start(group)` returns a Work without blocking."""
        if self._process != os.getpid():  # The lock may be held for ever; the group says it is dead.
            return _Given(start(self.group))
        with self._lock:
            if not self._busy:
                return _Given(start(self.group))
            return self._enqueue(_Queued(start, blocks=False))

    def run(self, function: Callable[[Any], Any], now: bool = False) -> Pending:
        """`function(group)` blocks and returns the result. It runs on a thread of its own.

        `now`: for who waits at once. Where the sequencer is empty it runs on the caller's thread, which
        spares the way to another one and back.
        """
        queued = _Queued(function, blocks=True)
        with self._lock:
            if self._busy or not now:
                self._enqueue(queued)
                if not self._busy:
                    self._start_thread()
                return queued
            self._busy = True
        queued.carry_out(self.group)
        self._hand_over()
        return queued

    def run_here(self, function: Callable[[Any], Any]) -> Any:
        """`run` and `wait`."""
        return self.run(function, now=True).wait()

    def _enqueue(self, queued: _Queued) -> _Queued:
        self._queue.append(queued)
        return queued

    def _start_thread(self) -> None:
        self._busy = True
        threading.Thread(target=self._drain, name="trainyard-sequencer", daemon=True).start()

    def _hand_over(self) -> None:
        """The caller's own operation is over; what came meanwhile is a thread's."""
        with self._lock:
            if self._queue:
                self._start_thread()
            else:
                self._busy = False

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._busy = False
                    return
                queued = self._queue.popleft()
            queued.carry_out(self.group)
