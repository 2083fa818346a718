"""Ids, rows and scores as they are handed to the library: by their address."""
from __future__ import annotations

import array
import ctypes
from typing import Any, NamedTuple

from trainyard._errors import InvalidArgument

_IDS = "qQlL"


class Addressed(NamedTuple):
    """Elements in a row.

    Attributes:
        owner: whose memory it is; there until the call is over.
    """

    address: int
    length: int
    owner: Any


def ids_of(given: Any, what: str) -> Addressed:
    """Whole numbers of 64 bits: of the buffer protocol (int64, uint64), a torch tensor, or int64 one by one. A negative
    one is the id 2^64 above it, as in files of TFRecord.

    Raises:
        InvalidArgument: they are something else.
    """
    if hasattr(given, "data_ptr"):  # torch's, on the processor or not
        tensor = given.detach().reshape(-1).to("cpu", copy=False).long().contiguous()
        return Addressed(tensor.data_ptr(), tensor.numel(), tensor)
    try:
        view = memoryview(given)
    except TypeError:
        return _listed(given, what)
    if view.format not in _IDS or view.itemsize != 8 or not view.c_contiguous:
        raise InvalidArgument(f"{what}: ids are int64 in one piece, not format {view.format!r}")
    return _addressed(view, 8)


def floats_of(given: Any, what: str) -> Addressed:
    """float32 of the buffer protocol, or a torch tensor of any floats.

    Raises:
        InvalidArgument: they are something else.
    """
    if hasattr(given, "data_ptr"):
        tensor = given.detach().reshape(-1).to("cpu", copy=False).float().contiguous()
        return Addressed(tensor.data_ptr(), tensor.numel(), tensor)
    try:
        view = memoryview(given)
    except TypeError:
        raise InvalidArgument(f"{what}: {type(given).__name__} has not the buffer protocol") from None
    if view.format != "f" or not view.c_contiguous:
        raise InvalidArgument(f"{what}: float32 in one piece is needed, not format {view.format!r}")
    return _addressed(view, 4)


def labels_of(given: Any, what: str) -> Addressed:
    """0 and 1: bytes or bool of the buffer protocol, a torch tensor, or numbers one by one.

    Raises:
        InvalidArgument: they are something else.
    """
    if hasattr(given, "data_ptr"):
        tensor = given.detach().reshape(-1).to("cpu", copy=False)
        if not bool(((tensor == 0) | (tensor == 1)).all()):
            raise InvalidArgument(f"{what}: expected 0 and 1")
        tensor = tensor.byte().contiguous()
        return Addressed(tensor.data_ptr(), tensor.numel(), tensor)
    try:
        view = memoryview(given)
        if view.format in ("B", "?", "b") and view.c_contiguous:
            return _addressed(view, 1)
        given = view.tolist()
    except TypeError:
        pass
    try:
        labels = [float(one) for one in given]
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{what}: expected 0 and 1 ({error})") from None
    if any(one not in (0, 1) for one in labels):
        raise InvalidArgument(f"{what}: expected 0 and 1")
    return _addressed(memoryview(bytes(map(int, labels))), 1)


def _listed(given: Any, what: str) -> Addressed:
    try:
        ids = array.array("q", given)
    except (TypeError, OverflowError) as error:
        raise InvalidArgument(f"{what}: ids are whole numbers of 64 bits ({error})") from None
    return Addressed(ids.buffer_info()[0], len(ids), ids)


def _addressed(view: memoryview, size: int) -> Addressed:
    length = view.nbytes // size
    if length == 0:
        return Addressed(0, 0, view)
    flat = view.cast("B")
    memory: Any = bytes(flat) if view.readonly else (ctypes.c_char * view.nbytes).from_buffer(flat)
    return Addressed(ctypes.cast(memory, ctypes.c_void_p).value or 0, length, memory)
