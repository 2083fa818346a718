"""ServerOptimizer: a torch model whose update the job makes, on its parameter servers or in its ring."""
from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple, Union

import torch

from trainyard._errors import InvalidArgument
from trainyard._job import Job
from trainyard._session import Outcome, Session, Turn, Variable
from trainyard._types import Type
from trainyard.torch._reducer import _hook

_TYPES: Dict[torch.dtype, Type] = {
    torch.float32: Type.FLOAT32, torch.float64: Type.FLOAT64, torch.float16: Type.FLOAT16,
    torch.bfloat16: Type.BFLOAT16, torch.int32: Type.INT32, torch.int64: Type.INT64, torch.uint8: Type.UINT8,
    torch.int8: Type.INT8, torch.bool: Type.BOOL}

# By which the places of samples become seeds that have nothing to do with each other: 2^64 / golden ratio.
_SPREAD = 0x9E3779B97F4A7C15


class ServerOptimizer:
    """In the place of a torch optimizer: the job's `optimizer`, `learningRate`, clipping and schedule make the update.

        job = ty.job()
        optimizer = tyt.ServerOptimizer(net, job)
        for x, y in job.steps(loader):
            optimizer.zero_grad()
            loss = cross_entropy(net(x), y)
            loss.backward()                   # each gradient leaves as it is there
            optimizer.step(loss)

    The loss is the MEAN over the step's batch. For several backward passes a step (gradient accumulation, or to change
    gradients before they leave) all passes but the last, or all of them, go into `no_sync()`.

    Trained are the parameters that require a gradient, as float32 whatever type they have here. Everything else of
    `net.state_dict()` is declared too, and travels with checkpoints only. At the start of each step torch's random
    numbers are seeded by the place of its samples (and torch.initial_seed()), so that a step that is taken again is the
    same step. What the processes of a loader draw has seeds of their own.

    Of one thread, which may have torch's backward threads beside it.
    """

    def __init__(self, net: torch.nn.Module, job: Job, keyed_random: bool = True) -> None:
        """Before job.steps().

        Args:
            keyed_random: whether random numbers are seeded as above.

        Raises:
            InvalidArgument: nothing to train, an empty or sparse parameter, a type that does not travel.
        """
        self._job = job
        self._trained = [(name, each) for name, each in net.named_parameters() if each.requires_grad]
        self._kept = _kept(net, {id(each) for _, each in self._trained})
        for name, tensor in self._trained + self._kept:
            _check(name, tensor)
        if not self._trained:
            raise InvalidArgument("ServerOptimizer: no parameter of the model requires a gradient")
        self._seed = torch.initial_seed() if keyed_random else None
        self._lock = threading.Lock()
        self._left: List[bool] = []  # whose gradients have left in this step; empty: no step is under way
        self._held = False
        self._first = True
        self._session: Session = job.attach(self)
        self._hooks = [_hook(each, self._leave(at)) for at, (_, each) in enumerate(self._trained)]

    # ---- As job.steps() sees it

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
        _copy(self._trained, self._values, into_model=False)
        _copy(self._kept, self._kept_values, into_model=False)

    def arrived(self, turn: Turn) -> None:
        # Copied, because backward may still read the old ones when the new ones come.
        _copy(self._trained, self._values, into_model=True)
        if self._first:
            _copy(self._kept, self._kept_values, into_model=True)  # of the checkpoint, where there is one
        self._first = False
        self._left = [False] * len(self._trained)
        self._key(turn)  # for what a loader without processes of its own does to its samples

    def ready(self, turn: Turn) -> None:
        self._key(turn)  # loaders draw numbers too, one when they begin

    def _key(self, turn: Turn) -> None:
        if self._seed is not None:
            torch.manual_seed((self._seed + _SPREAD * (turn.first_position + 1)) % (1 << 63))

    def stand(self, turn: Turn) -> None:
        for at in range(len(self._trained)):
            self._session.push(at)
        self._session.finish(0.0, 0)

    # ---- As the training loop sees it

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As of torch's optimizers."""
        for _, parameter in self._trained:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = torch.zeros_like(parameter.grad)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it gradients are added up and do not leave."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def step(self, loss: Union[torch.Tensor, float]) -> Outcome:
        """Waits until the update is made; the new weights come with the next batch.

        Args:
            loss: the mean over the step's batch. Parameters that got no gradient count as with zeros.

        Returns:
            Whether the step counts; otherwise the same batch comes again.
        """
        turn = self._job.turn()
        if not self._left:
            raise InvalidArgument(f"step {turn.step}: optimizer.step(loss) a second time, or outside of job.steps()")
        with self._lock:
            for at, left in enumerate(self._left):
                if not left:
                    self._push(at, len(turn.samples))
            self._left = []
        _copy(self._kept, self._kept_values, into_model=False)
        samples = len(turn.samples)
        outcome = self._session.finish(float(loss) * samples, samples)
        self._job.stepped(outcome)
        return outcome

    def _leave(self, at: int) -> Callable[..., None]:
        """A gradient was added to the parameter's."""
        def hook(*_: Any) -> None:
            with self._lock:
                if self._held or not self._left:
                    return
                if self._left[at]:
                    raise InvalidArgument(
                        f"the gradient of {self._trained[at][0]} was computed again after it had left: all backward "
                        "passes of a step but the last go into `with optimizer.no_sync():`")
                self._push(at, len(self._job.turn().samples))
        return hook

    def _push(self, at: int, samples: int) -> None:
        gradient, place = self._trained[at][1].grad, self._gradients[at]
        with torch.no_grad():
            if gradient is None:
                place.zero_()
            else:
                # The job takes sums, torch has the mean.
                place.copy_(gradient.to_dense() if gradient.is_sparse else gradient).mul_(samples)
        self._left[at] = True
        self._session.push(at)


Named = List[Tuple[str, torch.Tensor]]


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
        raise InvalidArgument(f"ServerOptimizer: {name} is {tensor.dtype} {list(tensor.shape)} ({tensor.layout}); what "
                              "travels is dense, not empty, and of a type that the library has")


def _tensor(memory: memoryview, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    """The same memory."""
    flat: torch.Tensor = torch.frombuffer(memory, dtype=dtype)
    return flat.reshape(shape)


def _copy(named: Named, values: List[torch.Tensor], into_model: bool) -> None:
    with torch.no_grad():
        for (_, tensor), value in zip(named, values):
            if into_model:
                tensor.copy_(value)
            else:
                value.copy_(tensor)
