"""Memory of objects that speak DLPack."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional

from trainyard._errors import InvalidArgument
from trainyard._layout import contiguous
from trainyard._types import SUPPORTED, Type

_CPU_DEVICES = (1, 3, 11)  # kDLCPU, and memory of the host that CUDA or ROCm has pinned
_TYPES = {(2, 32): Type.FLOAT32, (2, 16): Type.FLOAT16, (4, 16): Type.BFLOAT16, (2, 64): Type.FLOAT64,
          (0, 32): Type.INT32, (0, 64): Type.INT64, (0, 8): Type.INT8, (1, 8): Type.UINT8, (6, 8): Type.BOOL}
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """DLTensor"""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Memory(NamedTuple):
    """Where a tensor lies, for as long as `capsule` is referred to."""

    address: int
    elements: int
    type: Type
    capsule: Any


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_pointer.restype = ctypes.c_void_p


def from_dlpack(source: Any, label: str) -> Memory:
    """Where the tensor of `source` lies.

    The capsule is not renamed, as one who takes the tensor over would do: its owner frees it.

    Raises:
        InvalidArgument: it is on a device, not contiguous, or of a type that does not travel.
    """
    device = int(source.__dlpack_device__()[0])
    if device not in _CPU_DEVICES:
        raise InvalidArgument(f"{label}: it is on a device of DLPack's type {device}: only memory of the CPU travels")
    capsule = source.__dlpack__()
    tensor = _Tensor.from_address(_get_pointer(capsule, _NAME))
    kind: Optional[Type] = _TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if kind is None:
        raise InvalidArgument(
            f"{label}: DLPack's type {tensor.code} of {tensor.bits} bits is not among {SUPPORTED}")
    shape = [tensor.shape[at] for at in range(tensor.ndim)]
    elements = 1
    for length in shape:
        elements *= length
    if tensor.strides:
        _check_strides(shape, [tensor.strides[at] for at in range(tensor.ndim)], kind, label)
    return Memory((tensor.data or 0) + tensor.byte_offset, elements, kind, capsule)


def _check_strides(shape: Any, strides: Any, kind: Type, label: str) -> None:
    if not contiguous(shape, strides, 1):
        raise InvalidArgument(f"{label}: {kind.name.lower()} of shape {shape} is not contiguous: "
                              f"its strides are {strides} elements")
