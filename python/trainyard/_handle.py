"""The library's group, as long as it is there."""
from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any, Optional, Sequence

from trainyard._errors import ForkedProcess, NotInitialized
from trainyard._library import generation, library
from trainyard._work import in_callback

LOG = logging.getLogger("trainyard")
# How long leaving waits for calls of other threads: before it ends the group under them, and afterwards.
GRACE_SECONDS = 1.0
LIMIT_SECONDS = 10.0


class Handle:
    """Counts the calls that are inside of the library, because one that leaves takes the group away from them."""

    def __init__(self, pointer: int) -> None:
        self._pointer: Optional[int] = pointer
        self._generation = generation()
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._memories = 0

    def enter(self, what: str) -> int:
        """The pointer, for one call: exit() must follow.

        Raises:
            NotInitialized: the group was left. ForkedProcess: it is the parent's.
        """
        if self._generation != generation():
            raise ForkedProcess(f"{what}: this process is a forked child; the group is its parent's")
        with self._changed:
            if self._pointer is None:
                raise NotInitialized(f"{what}: the group was left")
            self._inside += 1
            return self._pointer

    def exit(self) -> None:
        with self._changed:
            self._inside -= 1
            if self._pointer is None:
                self._changed.notify_all()

    @property
    def shared(self) -> bool:
        """Whether other threads are inside too."""
        return self._inside > 1

    def leave(self, memories: Sequence[Any] = ()) -> None:
        """Leaves the group: the library does when the last of `memories`, which are its, is gone. Once more does
        nothing."""
        if self._generation != generation():
            return
        with self._changed:
            pointer, self._pointer = self._pointer, None
            if pointer is None:
                return
            self._memories = len(memories)
        if not memories:
            self._leave(pointer)
        for memory in memories:
            weakref.finalize(memory, self._memory_gone, pointer)

    def _memory_gone(self, pointer: int) -> None:
        with self._changed:
            self._memories -= 1
            last = self._memories == 0
        if last and self._generation == generation():
            self._leave(pointer)

    def _leave(self, pointer: int) -> None:
        if in_callback():
            # Leaving waits for the library's threads, of which this may be one.
            threading.Thread(target=self._leave_now, args=(pointer,), name="trainyard-leave").start()
        else:
            self._leave_now(pointer)

    def _leave_now(self, pointer: int) -> None:
        if not self._emptied(GRACE_SECONDS):
            library().ty_abort(pointer, b"it left")
            if not self._emptied(LIMIT_SECONDS):
                LOG.error("a thread is still in an operation of a group that was left")
                return
        library().ty_leave(pointer)

    def _emptied(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        with self._changed:
            while self._inside > 0 and time.monotonic() < end:
                self._changed.wait(end - time.monotonic())
            return self._inside == 0
