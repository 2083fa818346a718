"""Weights of a torch model in files that a job reads and writes: safetensors, which plain torch does not know.

    python3 -m trainyard.torch step-400.safetensors model.pt    # what `trainyard checkpoint export` gave, for torch.load()
    python3 -m trainyard.torch model.pt model.safetensors       # for a job's training.initFrom
"""
from __future__ import annotations

import ctypes
import io
import json
import math
import os
import pathlib
import struct
from typing import Any, Dict, List, Mapping, Tuple, Union

import torch

from trainyard._errors import InvalidArgument

Path = Union[str, "os.PathLike[str]"]

_TYPES: Dict[str, torch.dtype] = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_MOST_HEADER = 100_000_000  # the format's own bound
# The counter of a job, which is no part of a model.
_STEP = "global_step"


def load_weights(path: Path) -> Dict[str, torch.Tensor]:
    """What net.load_state_dict() takes: weights and buffers of a job's model.

    Two names of one tensor (tied weights) count once in a job: where a model has such, load with strict=False.

    Args:
        path: of what `trainyard checkpoint export` has written; slots of the job's optimizer, and rows of its tables, are
            left out.

    Raises:
        InvalidArgument: it is no safetensors file, and why. OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        begin, entries = _header(path, file)
        arrays = {name: _array(path, file, begin, entry) for name, entry in entries.items()
                  if name != _STEP and not _is_of_table(name, entries)}
    return {name: array for name, array in arrays.items() if not _is_slot(name, arrays)}


def save_weights(state: Mapping[str, Any], path: Path) -> None:
    """Writes a safetensors file that a job can begin with (training.initFrom).

    Args:
        state: net.state_dict(). Of several names of one tensor the first one is written.

    Raises:
        InvalidArgument: an entry is no dense tensor of a type that travels. OSError: it cannot be written.
    """
    tensors = _unique(state)
    header: Dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    unfinished = pathlib.Path(f"{os.fspath(path)}.tmp")
    try:
        with open(unfinished, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in tensors.values():
                if tensor.numel():
                    file.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def convert(source: str, target: str) -> None:
    """From safetensors to what torch.load() reads, or back: whichever `source` is."""
    if source.endswith(".safetensors") == target.endswith(".safetensors"):
        raise InvalidArgument("one of the two files is called *.safetensors: the job's, and the other is torch's")
    if source.endswith(".safetensors"):
        torch.save(load_weights(source), target)
        return
    # Nothing but tensors: a file from elsewhere must not run code.
    state = torch.load(source, map_location="cpu", weights_only=True)
    save_weights(state, target)


def _header(path: Path, file: io.BufferedReader) -> Tuple[int, Dict[str, Dict[str, Any]]]:
    """Where arrays begin, and what the file says of each."""
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else _MOST_HEADER + 1
    if length > _MOST_HEADER:
        raise InvalidArgument(f"{os.fspath(path)}: is no safetensors file")
    try:
        entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        for name, entry in entries.items():
            offsets, shape = entry["data_offsets"], entry["shape"]
            if len(offsets) != 2 or not all(type(size) is int and size >= 0 for size in [*offsets, *shape]):
                raise ValueError(f"array {name} at {offsets} of shape {shape}")
            if entry["dtype"] not in _TYPES:
                raise ValueError(f"array {name} of type {entry['dtype']}")
    except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise InvalidArgument(f"{os.fspath(path)}: is no safetensors file: its header: {error}") from None
    return 8 + length, entries


def _array(path: Path, file: io.BufferedReader, start: int, entry: Mapping[str, Any]) -> torch.Tensor:
    dtype, shape, (begin, end) = _TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    # Before it takes memory: what a header says may be anything.
    whole = end - begin == size and start + end <= os.fstat(file.fileno()).st_size
    array = torch.empty(shape if whole else 0, dtype=dtype)
    file.seek(start + begin)
    if not whole or (size and file.readinto(_memory(array, size)) != size):
        raise InvalidArgument(f"{os.fspath(path)}: is damaged: an array is not as long as its shape {shape} says")
    return array


def _memory(array: torch.Tensor, size: int) -> Any:
    return (ctypes.c_char * size).from_address(array.data_ptr())


def _is_slot(name: str, arrays: Mapping[str, torch.Tensor]) -> bool:
    """"weight/momentum" beside "weight": a name of torch's has no slash."""
    return "/" in name and name.rsplit("/", 1)[0] in arrays


def _is_of_table(name: str, entries: Mapping[str, Any]) -> bool:
    """"words/rows/momentum" of a table "words", whose rows are on the job's servers: no layer of the model has them."""
    parts = name.split("/")
    tables = ("/".join(parts[:end]) for end in range(1, len(parts)))
    return any(f"{table}/ids" in entries and f"{table}/rows" in entries and table not in entries for table in tables)


def _unique(state: Mapping[str, Any]) -> Dict[str, torch.Tensor]:
    if not isinstance(state, Mapping):
        raise InvalidArgument(f"a state_dict() is needed, not a {type(state).__name__}")
    tensors: Dict[str, torch.Tensor] = {}
    seen: List[Tuple[int, torch.Size, Tuple[int, ...]]] = []
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.dtype not in _NAMES:
            raise InvalidArgument(f"{name} is a {type(tensor).__name__}; dense tensors are needed, as state_dict() has them")
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() == 0 or place not in seen:
            tensors[name] = tensor.detach().cpu().contiguous()
            seen.append(place)
    return tensors
