"""Operations under way as torch.distributed knows them."""
from __future__ import annotations

import concurrent.futures
import datetime
import os
import threading
from typing import Any, Callable, List, Optional, Sequence

import torch
from torch._C import _distributed_c10d as c10d

from trainyard import InvalidArgument
from trainyard import Work as TrainyardWork

_NO_TIMEOUT = datetime.timedelta(0)

# Futures are completed here and not on the library's thread: what is chained to one may wait for another. Threads are
# started as they are needed, so that those who wait do not hold up those they wait for.
_completing = concurrent.futures.ThreadPoolExecutor(64, thread_name_prefix="trainyard-future")


def _after_fork() -> None:
    """A child has none of its parent's threads."""
    global _completing
    _completing = concurrent.futures.ThreadPoolExecutor(64, thread_name_prefix="trainyard-future")


os.register_at_fork(after_in_child=_after_fork)


_Work: Any = c10d.Work


class Work(_Work):
    """One operation, of one or several works of the library and what is to be done in Python afterwards.

    Thread-safe. wait() raises trainyard.RankLost and the other errors of trainyard; the future, which torch reads in
    C++ too, a RuntimeError with their text.
    """

    def __init__(self, works: Sequence[TrainyardWork], tensors: List[torch.Tensor],
                 finish: Optional[Callable[[], None]] = None) -> None:
        """`finish` is called once when all `works` have gone well; `tensors` are the result."""
        super().__init__()
        self._works = list(works)
        self._tensors = tensors
        self._finish = finish
        self._lock = threading.RLock()
        self._future: Optional[Any] = None

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        """Waits until the operation is done; at most `timeout` where it is above 0.

        Raises:
            trainyard.RankLost, trainyard.Mismatch and others of trainyard.Work.wait.
        """
        seconds = timeout.total_seconds() if timeout is not None and timeout > _NO_TIMEOUT else None
        for work in self._works:
            work.wait(seconds)
        self._finish_once()
        return True

    def _finish_once(self) -> None:
        if self._finish is None:
            return
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                # The results may be views of parameters.
                with torch.no_grad():
                    finish()

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is done, one way or the other."""
        if not all(work.done() for work in self._works):
            return False
        if self.exception() is None:
            self._finish_once()
        return True

    def is_success(self) -> bool:
        """Whether it is done and went well."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[Exception]:
        """What wait() raises; None where it went well, or is under way."""
        return next((error for error in (work.exception() for work in self._works) if error is not None), None)

    def result(self) -> List[torch.Tensor]:
        """The tensors that it was for."""
        return self._tensors

    def source_rank(self) -> int:
        """Of a receive that is done: the rank that the message came from."""
        if len(self._works) != 1:
            raise InvalidArgument("source_rank: not a receive")
        return self._works[0].source

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> Any:
        """A torch.futures.Future of the list of tensors."""
        with self._lock:
            if self._future is None:
                self._future = self._start_future()
            return self._future

    def _start_future(self) -> Any:
        begun: Any = torch.futures.Future()
        # An exception that is set on a future is a value for C++, which would take it for tensors; one that is raised
        # in a callback is an error there too.
        future = begun.then(self._value)
        left = [len(self._works)]
        lock = threading.Lock()

        def count(_: TrainyardWork) -> None:
            with lock:
                left[0] -= 1
                last = left[0] == 0
            if last:
                _complete(begun)

        if not self._works:
            begun.set_result(None)
        for work in self._works:
            work.add_done_callback(count)
        return future

    def _value(self, _: Any) -> List[torch.Tensor]:
        self.wait()
        return self._tensors


def _complete(future: Any) -> None:
    try:
        _completing.submit(future.set_result, None)
    except RuntimeError:  # the interpreter ends
        future.set_result(None)
