"""A torch model as a job's session sees it: its variables, gradients that leave as they are there, its state.

What makes the update is over it: `_server_optimizer` (the job) and `_state` (an optimizer of the program's own).
"""
from __future__ import annotations

import contextlib
import io
import threading
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import torch

from trainyard._errors import InvalidArgument
from trainyard._job import Job
from trainyard._session import Session, Turn, Variable
from trainyard._types import Type
from trainyard.torch._embedding import TableLookup
from trainyard.torch._reducer import _hook

Named = List[Tuple[str, torch.Tensor]]

_TYPES: Dict[torch.dtype, Type] = {
    torch.float32: Type.FLOAT32, torch.float64: Type.FLOAT64, torch.float16: Type.FLOAT16,
    torch.bfloat16: Type.BFLOAT16, torch.int32: Type.INT32, torch.int64: Type.INT64, torch.uint8: Type.UINT8,
    torch.int8: Type.INT8, torch.bool: Type.BOOL}

# By which the places of samples become seeds that have nothing to do with each other: 2^64 / golden ratio.
_SPREAD = 0x9E3779B97F4A7C15


class ProgramModel:
    """Of one thread, which may have torch's backward threads beside it."""

    own_update = False

    def __init__(self, net: torch.nn.Module, job: Job, keyed_random: bool) -> None:
        """Before job.steps().

        Raises:
            InvalidArgument: nothing to train, an empty or sparse parameter, a type that does not travel.
        """
        self._job = job
        self._trained: Named = [(name, each) for name, each in net.named_parameters() if each.requires_grad]
        self._kept = _kept(net, {id(each) for _, each in self._trained})
        for name, tensor in self._trained + self._kept:
            _check(name, tensor)
        if not self._trained:
            raise InvalidArgument("no parameter of the model requires a gradient: there is nothing to train")
        self._lookups = [each for each in net.modules() if isinstance(each, TableLookup)]
        for lookup in self._lookups:
            lookup.belong(job)
        self._seed = torch.initial_seed() if keyed_random else None
        self._lock = threading.Lock()
        self._left: List[bool] = []  # whose gradients have left in this step; empty: no step is under way
        self._held = False
        self._session: Session = job.attach(self)
        self._hooks = [_hook(each, self._leave(at)) for at, (_, each) in enumerate(self._trained)]

    # ---- As job.steps() sees it

    @property
    def has_state(self) -> bool:
        return bool(self._kept)

    def variables(self) -> List[Variable]:
        return ([Variable(name, tuple(each.shape)) for name, each in self._trained]
                + [Variable(name, tuple(each.shape), _TYPES[each.dtype], trained=False) for name, each in self._kept])

    def begin(self, session: Session) -> None:
        self._values = [_tensor(session.value(at), torch.float32, each.shape)
                        for at, (_, each) in enumerate(self._trained)]
        self._gradients = [_tensor(session.gradient(at), torch.float32, each.shape)
                           for at, (_, each) in enumerate(self._trained)]
        self._kept_values = [_tensor(session.value(at + len(self._trained)), each.dtype, each.shape)
                             for at, (_, each) in enumerate(self._kept)]
        copy_into(self._values, self._trained)
        copy_into(self._kept_values, self._kept)

    def arrived(self, turn: Turn) -> None:
        copy_from(self._trained, self._values)
        if turn.step == 0:
            copy_from(self._kept, self._kept_values)  # which the job's initFrom may have given
        self._left = [False] * len(self._trained)
        for lookup in self._lookups:
            lookup.begin_turn()
        self._key(turn.first_position)  # for what a loader without processes of its own does to its samples

    def ready(self, turn: Turn) -> None:
        self._key(turn.first_position)  # loaders draw numbers too, one when they begin

    def reading(self, first: int) -> None:
        self._key(first)

    def stand(self, turn: Turn) -> bool:
        raise NotImplementedError

    def save(self) -> bytes:
        file = io.BytesIO()
        torch.save(self.state(), file)
        return file.getvalue()

    def load(self, saved: bytes) -> None:
        # Bytes that this program, or another one of the job, has saved.
        self.set_state(torch.load(io.BytesIO(saved), map_location="cpu", weights_only=False))

    # ---- What save() and load() are about

    def state(self) -> Dict[str, Any]:
        return {"kept": {name: tensor.detach() for name, tensor in self._kept}}

    def set_state(self, state: Dict[str, Any]) -> None:
        with torch.no_grad():
            for name, tensor in self._kept:
                tensor.copy_(state["kept"][name])

    # ---- Gradients

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it gradients are added up and do not leave."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def leave_all(self) -> int:
        """Hands over what has not left; returns how many samples the step has here."""
        turn = self._job.turn()
        if not self._left:
            raise InvalidArgument(f"step {turn.step}: its update a second time, or outside of job.steps()")
        with self._lock:
            for at, left in enumerate(self._left):
                if not left:
                    self._push(at, len(turn.samples))
            self._left = []
        for lookup in self._lookups:
            lookup.leave(len(turn.samples))
        return len(turn.samples)

    def _key(self, first: int) -> None:
        if self._seed is not None:
            torch.manual_seed((self._seed + _SPREAD * (first + 1)) % (1 << 63))

    def _leave(self, at: int) -> Callable[..., None]:
        """A gradient was added to the parameter's."""
        def hook(*_: Any) -> None:
            with self._lock:
                if self._held or not self._left:
                    return
                if self._left[at]:
                    raise InvalidArgument(
                        f"the gradient of {self._trained[at][0]} was computed again after it had left: all backward "
                        "passes of a step but the last go into `no_sync()`")
                self._push(at, len(self._job.turn().samples))
        return hook

    def _push(self, at: int, samples: int) -> None:
        gradient, place = self._trained[at][1].grad, self._gradients[at]
        self._left[at] = True
        if samples == 0:
            return  # what was computed does not count
        with torch.no_grad():
            # The job takes sums, torch has the mean.
            if gradient is None:
                place.zero_()
            elif gradient.layout == torch.strided and gradient.dtype == place.dtype and gradient.device == place.device:
                torch.mul(gradient, samples, out=place)  # in one pass
            else:
                place.copy_(gradient.to_dense() if gradient.is_sparse else gradient).mul_(samples)
        self._session.push(at)


def copy_into(values: List[torch.Tensor], named: Named) -> None:
    """The session's from the model's."""
    with torch.no_grad():
        for value, (_, tensor) in zip(values, named):
            if value.data_ptr() != tensor.data_ptr():
                value.copy_(tensor)


def copy_from(named: Named, values: List[torch.Tensor]) -> None:
    """The model's from the session's."""
    with torch.no_grad():
        for (_, tensor), value in zip(named, values):
            if value.data_ptr() != tensor.data_ptr():
                tensor.copy_(value)


def _kept(net: torch.nn.Module, trained: Set[int]) -> Named:
    """What the state has besides: buffers, and parameters that are not trained. One under two names counts once."""
    kept: Named = []
    seen = set(trained)
    for name, tensor in net.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            kept.append((name, tensor))
    return kept


def _check(name: str, tensor: torch.Tensor) -> None:
    if tensor.layout != torch.strided or tensor.numel() == 0 or tensor.dtype not in _TYPES:
        raise InvalidArgument(f"{name} is {tensor.dtype} {list(tensor.shape)} ({tensor.layout}); what travels is dense, "
                              "not empty, and of a type that the library has")


def _tensor(memory: memoryview, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    """The same memory."""
    flat: torch.Tensor = torch.frombuffer(memory, dtype=dtype)
    return flat.reshape(shape)
