"""libtrainyard.so by ctypes: found, loaded, declared, and its errors as exceptions.

Nothing is loaded before library() is called for the first time, so that the package can be imported where the
library is missing.
"""
from __future__ import annotations

import ctypes
import logging
import os
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Callable, Dict, Generator, List, Mapping, Optional, Tuple, Type

from trainyard import _errors
from trainyard._types import Code

ABI_VERSION = 1
NAME = "libtrainyard.so"
LOG = logging.getLogger("trainyard")

_LOG_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)

LogFunction = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
InterruptFunction = ctypes.CFUNCTYPE(c_int, c_void_p)
NotifyFunction = ctypes.CFUNCTYPE(None, c_void_p)


class CArray(ctypes.Structure):
    """ty_array"""

    _fields_ = [("data", c_void_p), ("elements", c_int64), ("type", c_int), ("name", c_char_p)]


class CMeeting(ctypes.Structure):
    """ty_meeting"""

    _fields_ = [("bytes", c_size_t), ("rank", c_int), ("size", c_int), ("host", c_char_p),
                ("port", c_int), ("secret", c_char_p), ("seconds", c_double)]


class CGroupOptions(ctypes.Structure):
    """ty_group_options"""

    _fields_ = [("bytes", c_size_t), ("rank", c_int), ("size", c_int),
                ("addresses", POINTER(c_char_p)), ("secret", c_char_p), ("epoch", c_uint64),
                ("join_seconds", c_double), ("seconds", c_double), ("share_memory", c_int),
                ("deterministic", c_int), ("wire", c_int), ("arena_bytes", c_size_t)]


class CTotals(ctypes.Structure):
    """ty_totals"""

    _fields_ = [("bytes", c_size_t), ("operations", c_uint64), ("bytes_sent", c_uint64),
                ("bytes_received", c_uint64), ("seconds", c_double)]


class CVariable(ctypes.Structure):
    """ty_variable"""

    _fields_ = [("name", c_char_p), ("shape", POINTER(c_int64)), ("dimensions", c_size_t), ("type", c_int),
                ("trained", c_int)]


class CModel(ctypes.Structure):
    """ty_model"""

    _fields_ = [("bytes", c_size_t), ("samples", c_int64), ("eval_samples", c_int64),
                ("variables", POINTER(CVariable)), ("count", c_size_t), ("own_update", c_int),
                ("has_state", c_int)]


class CTurn(ctypes.Structure):
    """ty_turn"""

    _fields_ = [("bytes", c_size_t), ("kind", c_int), ("rank", c_int), ("ranks", c_int), ("step", c_int64),
                ("epoch", c_int64), ("first_position", c_int64), ("samples", c_int64), ("step_samples", c_int64),
                ("sample_numbers", POINTER(c_int64))]


class COutcome(ctypes.Structure):
    """ty_outcome"""

    _fields_ = [("bytes", c_size_t), ("complete", c_int), ("too_late", c_int), ("step", c_int64),
                ("loss", c_double), ("gradient_norm", c_double)]


class CTable(ctypes.Structure):
    """ty_table"""

    _fields_ = [("bytes", c_size_t), ("name", c_char_p), ("dim", c_int64), ("combiner", c_int)]


_counts = POINTER(c_int64)
_arrays = POINTER(CArray)
_work = POINTER(c_void_p)

# name: result, arguments
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "ty_abi_version": (c_int, []),
    "ty_version": (c_char_p, []),
    "ty_error": (c_char_p, []),
    "ty_error_rank": (c_int, []),
    "ty_set_log": (None, [LogFunction, c_void_p, c_int]),
    "ty_set_interrupt": (None, [InterruptFunction, c_void_p]),
    "ty_listen": (c_int, [c_char_p, c_int, POINTER(c_void_p)]),
    "ty_listener_port": (c_int, [c_void_p]),
    "ty_listener_free": (None, [c_void_p]),
    "ty_meet": (c_int, [POINTER(CMeeting), c_void_p, POINTER(POINTER(c_char_p))]),
    "ty_addresses_free": (None, [POINTER(c_char_p), c_int]),
    "ty_join": (c_int, [c_void_p, POINTER(CGroupOptions), POINTER(c_void_p)]),
    "ty_leave": (None, [c_void_p]),
    "ty_rank": (c_int, [c_void_p]),
    "ty_size": (c_int, [c_void_p]),
    "ty_split": (c_int, [c_void_p, POINTER(c_int), c_int, POINTER(c_void_p)]),
    "ty_abort": (None, [c_void_p, c_char_p]),
    "ty_allocate": (c_int, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "ty_group_totals": (c_int, [c_void_p, POINTER(CTotals)]),
    "ty_wait": (c_int, [c_void_p, c_double]),
    "ty_done": (c_int, [c_void_p]),
    "ty_notify": (None, [c_void_p, NotifyFunction, c_void_p]),
    "ty_receive_source": (c_int, [c_void_p]),
    "ty_work_free": (None, [c_void_p]),
    "ty_all_reduce": (c_int, [c_void_p, _arrays, c_size_t, c_int, c_double, c_double, _work]),
    "ty_reduce_scatter": (c_int, [c_void_p, _arrays, _counts, _arrays, c_int, c_double, c_double,
                                  _work]),
    "ty_all_gather": (c_int, [c_void_p, _arrays, _arrays, _counts, _work]),
    "ty_broadcast": (c_int, [c_void_p, _arrays, c_int, _work]),
    "ty_all_to_all": (c_int, [c_void_p, _arrays, _counts, _arrays, _counts, _work]),
    "ty_barrier": (c_int, [c_void_p, _work]),
    "ty_send": (c_int, [c_void_p, _arrays, c_int, c_uint64, _work]),
    "ty_receive": (c_int, [c_void_p, _arrays, c_int, c_uint64, _work]),
    "ty_compare": (c_int, [c_void_p, _arrays, c_size_t]),
    "ty_derive": (c_int, [c_char_p, c_char_p, c_char_p]),
    "ty_session_open": (c_int, [c_char_p, c_char_p, POINTER(c_void_p)]),
    "ty_session_free": (None, [c_void_p]),
    "ty_session_job": (c_char_p, [c_void_p]),
    "ty_session_index": (c_int, [c_void_p]),
    "ty_session_declare": (c_int, [c_void_p, POINTER(CModel)]),
    "ty_session_value": (c_void_p, [c_void_p, c_size_t]),
    "ty_session_gradient": (c_void_p, [c_void_p, c_size_t]),
    "ty_session_sample_numbers": (c_int, [c_void_p, c_int64, c_int64, POINTER(c_int64)]),
    "ty_session_next": (c_int, [c_void_p, POINTER(CTurn)]),
    "ty_session_push": (c_int, [c_void_p, c_size_t]),
    "ty_session_tables": (c_size_t, [c_void_p]),
    "ty_session_table": (c_int, [c_void_p, c_size_t, POINTER(CTable)]),
    "ty_session_rows": (c_int, [c_void_p, c_size_t, c_void_p, c_size_t, c_void_p]),
    "ty_session_push_rows": (c_int, [c_void_p, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p]),
    "ty_session_look_ahead": (c_int, [c_void_p, c_int64, c_int64, POINTER(c_void_p), POINTER(c_size_t)]),
    "ty_session_count_hits": (c_int, [c_void_p, c_int64]),
    "ty_session_finish": (c_int, [c_void_p, c_double, c_int64, POINTER(COutcome)]),
    "ty_session_sum": (c_int, [c_void_p, c_double, c_int64, POINTER(COutcome)]),
    "ty_session_commit": (c_int, [c_void_p, POINTER(COutcome)]),
    "ty_session_evaluated": (c_int, [c_void_p, c_int64, c_int64, c_double]),
    "ty_session_score_clicks": (c_int, [c_void_p, c_void_p, c_void_p, c_int64, POINTER(c_int64), POINTER(c_double)]),
    "ty_session_save": (c_int, [c_void_p, c_void_p, c_size_t]),
    "ty_session_state": (c_int, [c_void_p, POINTER(c_void_p), POINTER(c_size_t)]),
    "ty_session_interrupted": (c_int, [c_void_p]),
    "ty_session_abort": (c_int, [c_void_p, c_char_p]),
}

_ERRORS: Dict[int, Type[_errors.TrainyardError]] = {
    Code.INVALID: _errors.InvalidArgument,
    Code.MISMATCH: _errors.Mismatch,
    Code.TIMEOUT: _errors.TimedOut,
    Code.CORRUPT: _errors.Corrupt,
    Code.REFUSED: _errors.Refused,
    Code.UNREACHABLE: _errors.Unreachable,
    Code.CANCELLED: _errors.Cancelled,
    Code.NO_ROOM: _errors.NoRoom,
    Code.JOB_FAILED: _errors.JobFailed,
}

_lock = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None
# How often this process was forked off: what an older one made is dead here.
_generation = 0
_loaded_in = 0
# Raised by a signal's handler while the library waited; raised again when its call has returned.
_interruption: Optional[BaseException] = None


def find_library(environment: Mapping[str, str], folder: str) -> str:
    """Which library to load: that in the package's `folder`, else TRAINYARD_LIBRARY, else the loader's."""
    inside = os.path.join(folder, NAME)
    return inside if os.path.exists(inside) else environment.get("TRAINYARD_LIBRARY") or NAME


def open_library(path: str) -> ctypes.CDLL:
    """The library at `path` with all its functions declared.

    Raises:
        LibraryError: it cannot be loaded, or is of another ABI version than this package.
    """
    try:
        loaded = ctypes.CDLL(path, mode=getattr(os, "RTLD_LOCAL", 0) | getattr(os, "RTLD_NOW", 0))
    except OSError as error:
        raise _errors.LibraryError(
            f"{path}: {error}; set TRAINYARD_LIBRARY to {NAME}, or install the wheel") from None
    try:
        version = int(loaded.ty_abi_version())
    except AttributeError:
        raise _errors.LibraryError(f"{path}: not trainyard's library: no ty_abi_version") from None
    if version != ABI_VERSION:
        raise _errors.LibraryError(f"{path}: its ABI version is {version}, and this package needs {ABI_VERSION}")
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise _errors.LibraryError(f"{path}: no function {name}") from None
        function.restype, function.argtypes = result, arguments
    return loaded


def library() -> ctypes.CDLL:
    """The library, loaded at the first call.

    Raises:
        LibraryError: see open_library.
    """
    global _loaded, _loaded_in
    if _loaded is not None:
        return _loaded
    with _lock:
        if _loaded is None:
            loaded = open_library(find_library(os.environ, os.path.dirname(os.path.abspath(__file__))))
            loaded.ty_set_interrupt(_interrupt_function, None)
            _loaded, _loaded_in = loaded, _generation
            set_log_level()
    return _loaded


def set_log_level() -> None:
    """Tells the library which lines the logger "trainyard" wants, so that others cost nothing."""
    wanted = LOG.getEffectiveLevel()
    least = next((at for at, level in enumerate(_LOG_LEVELS) if level >= wanted), len(_LOG_LEVELS) - 1)
    library().ty_set_log(_log_function, None, least)


def generation() -> int:
    """Another number in each forked child."""
    return _generation


def _after_fork() -> None:
    global _generation, _lock, _interruption
    _generation += 1
    # The thread that held it is not in the child.
    _lock = threading.Lock()
    _interruption = None


os.register_at_fork(after_in_child=_after_fork)


def quiet() -> None:
    """Takes the callbacks back: for the end of the interpreter. Not in a forked child, where the library's locks may
    be held by threads that are not there, and nobody calls."""
    if _loaded is not None and _loaded_in == _generation:
        _loaded.ty_set_log(LogFunction(), None, 0)
        _loaded.ty_set_interrupt(InterruptFunction(), None)


def check(code: int) -> None:
    """Raises what a call of this thread that returned `code` has to tell, or what a signal's handler raised in it."""
    if code != Code.OK:
        raise error_of(code)
    if _interruption is not None:
        raise_interruption()


def error_of(code: int) -> BaseException:
    """The exception for the last failed call of this thread."""
    loaded = library()
    text = (loaded.ty_error() or b"").decode("utf-8", "replace")
    rank = int(loaded.ty_error_rank())
    if _interruption is not None:
        raise_interruption()
    if code == Code.DEAD:
        return _errors.NotInitialized(text or "the group was left")
    if code == Code.RANK_LOST:
        return _errors.RankLost(rank, text)
    if code == Code.TIMEOUT and rank >= 0:
        return _errors.RankSilent(rank, text)
    return _ERRORS.get(code, _errors.InternalError)(text or f"code {code}", rank)


def raise_interruption() -> None:
    """Raises again what a signal's handler raised while this thread was in the library."""
    global _interruption
    if threading.current_thread() is threading.main_thread():
        taken, _interruption = _interruption, None
        if taken is not None:
            raise taken


def _signals() -> Generator[int, Any, None]:
    """Yields 1 after a signal's handler has raised, else 0.

    A generator and not a function: Python runs handlers when a frame is entered, so in a function the exception
    would be raised before its first `try` and be lost in ctypes. A generator is entered inside of it.
    """
    global _interruption
    answer = 0
    while True:
        try:
            yield answer
            answer = 0
            ctypes.pythonapi.PyErr_CheckSignals()
        except GeneratorExit:
            raise
        except BaseException as raised:  # a handler may raise anything, mostly KeyboardInterrupt
            _interruption = raised
            answer = 1


def _started_signals() -> Callable[[Any], int]:
    generator = _signals()
    next(generator)
    return generator.send


def _log(level: int, line: Optional[bytes], _data: Any) -> None:
    try:
        LOG.log(_LOG_LEVELS[min(max(level, 0), 3)], "%s", (line or b"").decode("utf-8", "replace"))
    except Exception:  # ctypes would print it to standard error: a log line is not worth that
        pass


# ctypes frees what nobody refers to, and the library keeps these for good.
_log_function = LogFunction(_log)
_interrupt_function = InterruptFunction(_started_signals())


def derive(secret: str, purpose: str) -> str:
    """A secret for `purpose` made of another: 64 hexadecimal digits.

    Raises:
        InvalidArgument: the library refuses one of them.
    """
    text = ctypes.create_string_buffer(65)
    check(library().ty_derive(secret.encode(), purpose.encode(), text))
    return text.value.decode()


__all__ = ["ABI_VERSION", "CArray", "CGroupOptions", "CMeeting", "CModel", "COutcome", "CTable", "CTotals", "CTurn",
           "CVariable",
           "NotifyFunction", "byref", "check", "derive", "error_of", "find_library", "generation", "library",
           "open_library", "quiet", "raise_interruption", "set_log_level"]
