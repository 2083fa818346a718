"""Memory of other packages' arrays, without a copy and without importing those packages.

Understood are objects with Python's buffer protocol (numpy, array, bytearray, memoryview), torch tensors and,
for all others, DLPack.
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, Dict, NamedTuple, Optional, Sequence

from trainyard._dlpack import from_dlpack
from trainyard._errors import InvalidArgument
from trainyard._layout import contiguous
from trainyard._library import CArray
from trainyard._types import SUPPORTED, TYPES, Type


class Array(NamedTuple):
    """Contiguous elements in memory, valid for as long as `keep` is referred to."""

    address: int
    elements: int
    type: Type
    name: Optional[str]
    keep: Any

    def struct(self) -> CArray:
        """As the library takes it."""
        # A name is for people: one that is no text, or no UTF-8, is no reason to fail.
        name = str(self.name).encode("utf-8", "replace") if self.name else None
        return CArray(self.address, self.elements, int(self.type), name)


def array_of(source: Any, name: Optional[str] = None, writable: bool = True) -> Array:
    """The memory of `source`.

    Args:
        source: a numpy array, torch tensor, array.array, bytearray, memoryview, or an object with __dlpack__.
        name: told in errors.
        writable: whether the library will write to it.

    Raises:
        InvalidArgument: it is none of these, not contiguous, read-only, on a device, or of another type than
            float32, float16, bfloat16, float64, int32, int64, uint8, int8, bool.
    """
    if isinstance(source, Array):
        return source
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.Tensor):
        return _of_tensor(torch, source, name)
    exotic = _numpy_bfloat16(source, name, writable)
    if exotic is not None:
        return exotic
    try:
        view = _Buffer(source)
    except (TypeError, BufferError, ValueError):
        if hasattr(source, "__dlpack__"):
            memory = from_dlpack(source, _label(name))
            return Array(memory.address, memory.elements, memory.type, name, (source, memory.capsule))
        raise InvalidArgument(f"{_label(name)}: {type(source).__name__} has neither a buffer nor __dlpack__") from None
    return view.array(name, writable)


def structs(arrays: Sequence[Array]) -> Any:
    """A C array of them."""
    return (CArray * max(len(arrays), 1))(*[array.struct() for array in arrays])


def _label(name: Optional[str]) -> str:
    return f"tensor {name}" if name else "tensor"


# ---- The buffer protocol ------------------------------------------------------------------------

_STRIDED_WITH_FORMAT = 0x18 | 0x4  # PyBUF_STRIDES | PyBUF_FORMAT

_INTEGERS = {(4, True): Type.INT32, (8, True): Type.INT64, (1, True): Type.INT8, (1, False): Type.UINT8}
_FLOATS = {2: Type.FLOAT16, 4: Type.FLOAT32, 8: Type.FLOAT64}


class _CBuffer(ctypes.Structure):
    """Py_buffer: the same in every CPython since 3.3, and stable from 3.11 on."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
                ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
                ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)), ("internal", ctypes.c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_CBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_CBuffer)]
_release_buffer.restype = None


class _Buffer:
    """A buffer that is held: its owner can neither free nor resize it meanwhile."""

    def __init__(self, source: Any) -> None:
        self._view = _CBuffer()
        self._held = False
        _get_buffer(source, ctypes.byref(self._view), _STRIDED_WITH_FORMAT)
        self._held = True

    def __del__(self) -> None:
        if self._held:
            self._held = False
            _release_buffer(ctypes.byref(self._view))

    def array(self, name: Optional[str], writable: bool) -> Array:
        view = self._view
        form = (view.format or b"B").decode()
        shape = [view.shape[at] for at in range(view.ndim)]
        strides = [view.strides[at] for at in range(view.ndim)]
        kind = _type_of_format(form, view.itemsize)
        if kind is None:
            raise InvalidArgument(f"{_label(name)}: format {form!r} is not among {SUPPORTED}")
        if not contiguous(shape, strides, view.itemsize):
            raise InvalidArgument(f"{_label(name)}: {kind.name.lower()} of shape {shape} is not contiguous: "
                                  f"its strides are {strides} bytes")
        if writable and view.readonly:
            raise InvalidArgument(f"{_label(name)}: {kind.name.lower()} of shape {shape} is read-only")
        return Array(view.buf or 0, view.len // view.itemsize, kind, name, self)


def _type_of_format(form: str, item_bytes: int) -> Optional[Type]:
    letter = form.lstrip("@=<" if sys.byteorder == "little" else "@=>!")
    if letter == "?":
        return Type.BOOL
    if letter in ("e", "f", "d"):
        return _FLOATS.get(item_bytes)
    if letter == "c":
        return Type.UINT8
    if len(letter) == 1 and letter in "bhilqnBHILQN":
        return _INTEGERS.get((item_bytes, letter.islower()))
    return None


def _numpy_bfloat16(source: Any, name: Optional[str], writable: bool) -> Optional[Array]:
    """numpy with ml_dtypes: numpy has no buffer for its bfloat16."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(source, numpy.ndarray) or source.dtype.name != "bfloat16":
        return None
    held = _Buffer(source.view(numpy.int16))._view
    shape, strides = list(source.shape), list(source.strides)
    if not contiguous(shape, strides, 2):
        raise InvalidArgument(
            f"{_label(name)}: bfloat16 of shape {shape} is not contiguous: its strides are {strides} bytes")
    if writable and held.readonly:
        raise InvalidArgument(f"{_label(name)}: bfloat16 of shape {shape} is read-only")
    return Array(held.buf or 0, source.size, Type.BFLOAT16, name, source)


# ---- torch --------------------------------------------------------------------------------------

_torch_types: Dict[Any, Type] = {}


def torch_types(torch: Any) -> Dict[Any, Type]:
    """From torch's dtypes to ours."""
    if not _torch_types:
        _torch_types.update({getattr(torch, name): kind for name, kind in TYPES.items()})
    return _torch_types


def _of_tensor(torch: Any, tensor: Any, name: Optional[str]) -> Array:
    kind = torch_types(torch).get(tensor.dtype)
    if kind is None:
        raise InvalidArgument(f"{_label(name)}: {tensor.dtype} is not among {SUPPORTED}")
    if tensor.device.type != "cpu":
        raise InvalidArgument(f"{_label(name)}: {tensor.dtype} is on {tensor.device}: only memory of the CPU travels")
    if tensor.layout != torch.strided:
        raise InvalidArgument(f"{_label(name)}: {tensor.dtype} has layout {tensor.layout}, not torch.strided")
    if not tensor.is_contiguous():
        raise InvalidArgument(f"{_label(name)}: {tensor.dtype} of shape {list(tensor.shape)} is not contiguous: "
                              f"its strides are {list(tensor.stride())} elements")
    return Array(tensor.data_ptr(), tensor.numel(), kind, name, tensor)
