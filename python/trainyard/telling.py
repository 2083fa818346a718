"""Telling how training gets on: ``trainyard get``, ``trainyard top``, metrics and alerts show it.

The agent of a task hands its programs a Unix datagram socket in ``TRAINYARD_REPORT``, which takes one
JSON object a datagram. Nothing here imports more than the standard library, so this file may be copied
beside a program that has no package of ours.
"""

import json
import math
import os
import socket
import threading
from typing import Any, Optional, SupportsFloat

__all__ = ["report"]

_VARIABLE = "TRAINYARD_REPORT"
_MOST_BYTES = 4096  # the agent takes no more in one datagram

_lock = threading.Lock()
_socket: Optional[socket.socket] = None
_connected = ""  # the path that _socket is connected to


def report(*, step: Optional[SupportsFloat] = None, loss: Optional[SupportsFloat] = None,
           examples: Optional[SupportsFloat] = None, **more: Optional[SupportsFloat]) -> None:
    """Tells the job how this process gets on; call it once a step, or as rarely as you like.

    step: number of the newest complete step.
    loss: of that step; a torch scalar will do (one on a GPU is waited for, by ``float()``).
    examples: how many examples this process has seen **since it began**, not since the last call: a
        telling that is lost is made up for by the next. The rate is computed from it.
    more: ``steps`` (how many there will be), ``accuracy`` (of an evaluation, 0 to 1), ``epoch`` (pass
        over the data). The agent passes over names that it does not know.

    Takes some 10 us, never waits, and never raises for want of a listener: outside of a job it does
    nothing, and what the agent has no room for is dropped. None and values that are not finite are left
    out. Any thread may call it, also in a child after fork. TypeError or ValueError: a value is no
    number.
    """
    path = os.environ.get(_VARIABLE)
    if not path:
        return
    said = {}
    for name, value in (("step", step), ("loss", loss), ("examples", examples), *more.items()):
        number = _number(value)
        if number is not None:
            said[name] = number
    datagram = json.dumps(said, separators=(",", ":")).encode()
    if said and len(datagram) <= _MOST_BYTES:
        _send(path, datagram)


def _number(value: Any) -> Any:
    """An int or a finite float; None for what is left out. Large whole numbers stay exact."""
    if value is None or type(value) is int:
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def _send(path: str, datagram: bytes) -> None:
    global _socket, _connected
    with _lock:
        # The second try is for an agent that has opened its socket anew.
        for _ in range(2):
            try:
                if _socket is None or _connected != path:
                    _close()
                    _socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                    _socket.setblocking(False)
                    _socket.connect(path)
                    _connected = path
                _socket.send(datagram)
                return
            except BlockingIOError:
                return  # full: what comes next says more
            except OSError:
                _close()


def _close() -> None:
    global _socket, _connected
    if _socket is not None:
        _socket.close()
    _socket, _connected = None, ""


def _after_fork() -> None:
    """The child begins with a lock that nobody holds, and a socket of its own."""
    global _lock
    _lock = threading.Lock()
    _close()


os.register_at_fork(after_in_child=_after_fork)
