"""Bringing all ranks to the state of one: parameters, optimizer state, objects."""
from __future__ import annotations

import ctypes
import io
import pickle
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

import trainyard
from trainyard._errors import InvalidArgument
from trainyard.torch._autograd import allgather
from trainyard.torch._compare import compare
from trainyard.torch._handles import synchronize
from trainyard.torch._operations import broadcast_, broadcast_async_
from trainyard.torch._process_sets import ProcessSet, global_process_set

try:  # Also functions and classes of a script itself.
    import cloudpickle as _writer
except ImportError:
    _writer = pickle  # type: ignore[misc, unused-ignore]

Parameters = Union[Dict[str, Any], Sequence[Any]]


def broadcast_parameters(params: Parameters, root_rank: int,
                         process_set: ProcessSet = global_process_set) -> None:
    """Gives all ranks the tensors of `root_rank`, in place.

    params: `model.state_dict()`, or a list of parameters or of (name, parameter).
    Mismatch, on all ranks, where names, types or sizes differ between ranks: names of a dict may come
    in any order. ValueError for what is none of these.
    """
    named = _named(params)
    if not named:
        return
    compare(named, process_set)
    # A copy stands for those whose elements are not one after the other.
    dense = [tensor.detach().contiguous() for _, tensor in named]
    handles = [broadcast_async_(tensor, root_rank, None, process_set) for tensor in dense]
    for handle, (_, tensor), sent in zip(handles, named, dense):
        synchronize(handle)
        if not tensor.is_contiguous():
            tensor.detach().copy_(sent)


def _named(params: Parameters) -> List[Tuple[str, torch.Tensor]]:
    if isinstance(params, dict):
        pairs = sorted(params.items())
    elif isinstance(params, torch.Tensor) or not hasattr(params, "__iter__"):
        raise InvalidArgument(f"broadcast_parameters takes a dict or a list, not {type(params).__name__}")
    else:
        pairs = [one if isinstance(one, tuple) else (str(at), one) for at, one in enumerate(params)]
    for name, tensor in pairs:
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(f"{name} is a {type(tensor).__name__}, not a tensor: give it to "
                             "broadcast_object")
    return pairs


class _Place(NamedTuple):
    """Where a tensor was in an object, and what it is like."""

    shape: Tuple[int, ...]
    dtype: torch.dtype


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int,
                              model: Optional[torch.nn.Module] = None,
                              process_set: ProcessSet = global_process_set) -> None:
    """Gives all ranks the optimizer of `root_rank`: options, and the state of each parameter.

    The others may have no state yet (the first step has not been taken, or was taken only at
    `root_rank`, from a checkpoint), and keep none where the root has none; then parameters without
    gradient get one of zeros, as with Horovod, except the sparse embeddings of `model`.
    ValueError for LBFGS, whose state no other rank can continue.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidArgument("cannot broadcast torch.optim.LBFGS state")
    is_root = trainyard.rank() == root_rank
    tensors: List[torch.Tensor] = []
    state = _taken_out(optimizer.state_dict(), tensors) if is_root else None
    state = broadcast_object(state, root_rank, process_set=process_set)
    if not is_root:
        tensors = []
        state = _put_in(state, tensors)
    for handle in [broadcast_async_(one, root_rank, None, process_set) for one in tensors]:
        synchronize(handle)
    if not is_root:
        optimizer.load_state_dict(state)
    if not state["state"] and not isinstance(optimizer, torch.optim.SparseAdam):
        _fill_gradients(optimizer, model)


def _fill_gradients(optimizer: torch.optim.Optimizer, model: Optional[torch.nn.Module]) -> None:
    sparse = {id(module.weight) for module in (model.modules() if model is not None else ())
              if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse}
    for parameter in (one for group in optimizer.param_groups for one in group["params"]):
        if parameter.requires_grad and parameter.grad is None and id(parameter) not in sparse:
            parameter.grad = torch.zeros_like(parameter)


def _taken_out(value: Any, tensors: List[torch.Tensor]) -> Any:
    """The same structure with places instead of tensors, which are appended to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach().cpu().contiguous())
        return _Place(tuple(value.shape), value.dtype)
    if isinstance(value, dict):
        return {key: _taken_out(one, tensors) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_taken_out(one, tensors) for one in value)
    return value


def _put_in(value: Any, tensors: List[torch.Tensor]) -> Any:
    """The structure with new tensors at their places, which are appended to `tensors`."""
    if isinstance(value, _Place):
        tensors.append(torch.empty(value.shape, dtype=value.dtype))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _put_in(one, tensors) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_put_in(one, tensors) for one in value)
    return value


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The object of `root_rank`, on all ranks: anything that can be pickled.

    What other ranks give is ignored. The root gets its own object back.
    """
    is_root = trainyard.rank() == root_rank
    packed = _pack(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    length = torch.tensor([packed.numel()], dtype=torch.int64)
    broadcast_(length, root_rank, None if name is None else f"{name}.length", process_set)
    if not is_root:
        packed = torch.empty(int(length.item()), dtype=torch.uint8)
    broadcast_(packed, root_rank, name, process_set)
    return obj if is_root else _unpack(packed)


def broadcast_object_fn(root_rank: int = 0, name: Optional[str] = None,
                        process_set: ProcessSet = global_process_set) -> Callable[[Any], Any]:
    """A function of one object that is `broadcast_object` with these arguments."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj: Any, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> List[Any]:
    """All ranks' objects, by rank: anything that can be pickled."""
    packed = _pack(obj)
    length = torch.tensor([packed.numel()], dtype=torch.int64)
    lengths = allgather(
        length, None if name is None else f"{name}.length", process_set).tolist()
    gathered = allgather(packed, name, process_set)
    return [_unpack(part) for part in torch.split(gathered, lengths)]


def _pack(obj: Any) -> torch.Tensor:
    buffer = io.BytesIO()
    _writer.dump(obj, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _unpack(packed: torch.Tensor) -> Any:
    return pickle.loads(ctypes.string_at(packed.data_ptr(), packed.numel()))
