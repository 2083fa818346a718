"""Gradients of one model on their way between the ranks, while the backward pass still runs.

A step goes through these states, for each bucket of `_buckets.plan_buckets`:

1. waiting: a hook on each parameter counts the backward passes that have reached it;
2. ready: all its gradients are there, but an earlier bucket is not sent yet;
3. sent: its reduction was given to the group;
4. taken: `finish` has waited for it, and the parameters' `.grad` hold the result.

Buckets are sent in the order of the plan and in no other, so that all ranks do the same. What is not
ready when `finish` comes is sent then; a parameter without gradient counts as zeros, since others may
have one for it. Whether all have none is not known without asking, so its `.grad` becomes zeros too.
"""
from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from trainyard._memory import array_of
from trainyard.torch._arrays import flat, on_host, require_computed
from trainyard.torch._buckets import Entry, plan_buckets
from trainyard.torch._compare import compare
from trainyard.torch._sequencer import Sequencer
from trainyard.torch._operations import sparse_allreduce_async
from trainyard.torch._process_sets import ProcessSet
from trainyard.torch._reduce import ReduceOp, reduction_of

Named = Sequence[Tuple[str, torch.Tensor]]


class Options(NamedTuple):
    """How gradients are reduced; the same on all ranks. `groups` hold positions of parameters."""

    compression: Any
    op: int
    predivide: float
    groups: Optional[Sequence[Sequence[int]]]
    sparse_as_dense: bool
    process_set: ProcessSet

    def text(self) -> str:
        """What `Group.compare` compares."""
        wire = getattr(self.compression, "__name__", type(self.compression).__name__)
        return (f"DistributedOptimizer(op={int(self.op)}, compression={wire}, groups={self.groups}, "
                f"gradient_predivide_factor={self.predivide}, "
                f"sparse_as_dense={self.sparse_as_dense})")


class Reducer:
    """Reduces the gradients of `named`. All ranks of the process set make it, and call `finish`.

    Lives as long as the optimizer that owns it; afterwards the hooks do nothing.
    Hooks may be called from several threads, everything else from one.
    """

    def __init__(self, named: Named, options: Options, passes: int) -> None:
        """Mismatch, on all ranks, where names, types, sizes or options differ between ranks."""
        for name, parameter in named:
            require_computed(parameter, f"DistributedOptimizer (parameter {name})")
        self._named = list(named)
        self._options = options
        self._lock = threading.Lock()
        # Dimensions of the index of those with sparse gradients; None before that is known.
        self._sparse: Optional[Dict[int, int]] = {} if options.sparse_as_dense else None
        self._buckets: List[List[int]] = []
        self._bucket_of: Dict[int, int] = {}
        self.passes = passes
        compare(self._named, options.process_set, options.text())
        if self._sparse is not None:
            self._plan()
        self.reset()
        self._hooks = [_hook(parameter, self._make_hook(at))
                       for at, (_, parameter) in enumerate(self._named)]

    @property
    def under_way(self) -> bool:
        """Whether a gradient has come since the last `finish`."""
        return self._touched

    def set_passes(self, passes: int) -> None:
        """How often backward runs before each `finish`."""
        self.passes = passes
        self.reset()

    def reset(self) -> None:
        """Every parameter waits for its gradient again; what was sent is not waited for."""
        self._left = [self.passes] * len(self._named)
        self._waiting = [len(bucket) for bucket in self._buckets]
        self._sent: List[Any] = []
        self._touched = False

    def close(self) -> None:
        """Gradients are no longer reduced."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def finish(self) -> None:
        """Sends what is left, waits for all, and leaves the results in `.grad`."""
        try:
            with self._lock:
                if self._sparse is None:
                    self._agree()
                while len(self._sent) < len(self._buckets):
                    self._send()
            for sent in self._sent:
                sent.take()
        finally:
            self.reset()

    def _sequencer(self) -> Sequencer:
        return self._options.process_set.sequencer()

    def _make_hook(self, at: int) -> Callable[..., None]:
        reference = weakref.ref(self)

        def hook(*_: Any) -> None:
            reducer = reference()
            if reducer is not None:
                reducer._gradient_came(at)

        return hook

    def _gradient_came(self, at: int) -> None:
        with self._lock:
            if self._left[at] <= 0:
                raise AssertionError(
                    f"The gradient of {self._named[at][0]} was computed more than "
                    f"backward_passes_per_step={self.passes} times before step(): raise it to add "
                    "gradients up over more passes")
            self._touched = True
            self._left[at] -= 1
            if self._left[at] or self._sparse is None:
                return
            self._waiting[self._bucket_of[at]] -= 1
            while len(self._sent) < len(self._buckets) and not self._waiting[len(self._sent)]:
                self._send()

    def _agree(self) -> None:
        """At the first step: which gradients are sparse on any rank. Only then is there a plan."""
        dimensions = torch.zeros(len(self._named), dtype=torch.uint8)
        for at, (_, parameter) in enumerate(self._named):
            gradient = parameter.grad
            if gradient is not None and gradient.is_sparse:
                # One that was set to zero has lost its own, and an embedding's is 1.
                dimensions[at] = gradient.sparse_dim() if gradient._nnz() else 1
        largest = reduction_of(ReduceOp.Max)
        self._sequencer().give(lambda group: group.all_reduce(
            [dimensions], reduction=largest, async_=True)).wait()
        self._sparse = {at: count for at, count in enumerate(dimensions.tolist()) if count}
        self._plan()

    def _plan(self) -> None:
        entries = [Entry(parameter.numel() * parameter.element_size(),
                         (parameter.dtype, parameter.device)) for _, parameter in self._named]
        self._buckets = plan_buckets(entries, self._options.groups, sorted(self._sparse or ()))
        self._bucket_of = {at: number for number, bucket in enumerate(self._buckets)
                           for at in bucket}

    def _send(self) -> None:
        """The next bucket, in the plan's order."""
        bucket = self._buckets[len(self._sent)]
        named = [self._named[at] for at in bucket]
        dimensions = (self._sparse or {}).get(bucket[0])
        with torch.no_grad():
            self._sent.append(_Dense(named, self._options, self._sequencer()) if dimensions is None
                              else _Sparse(named[0][1], dimensions, self._options))


class _Dense:
    """Gradients of one bucket, reduced where they lie if they can be."""

    def __init__(self, named: Named, options: Options, sequencer: Sequencer) -> None:
        self._parameters = [parameter for _, parameter in named]
        self._compression = options.compression
        self._given: List[Tuple[torch.Tensor, torch.Size, Any]] = []
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradient = parameter.grad
            gradient = gradient.to_dense() if gradient.is_sparse else gradient
            sent, context = options.compression.compress(gradient)
            self._given.append((on_host(flat(sent.contiguous())), sent.shape, context))
        arrays = [array_of(array, name) for (array, _, _), (name, _) in zip(self._given, named)]
        factor = options.predivide
        self._pending = sequencer.give(lambda group: group.all_reduce(
            arrays, reduction=reduction_of(options.op), prescale=1.0 / factor, postscale=factor,
            async_=True))

    def take(self) -> None:
        self._pending.wait()
        with torch.no_grad():
            for parameter, (array, shape, context) in zip(self._parameters, self._given):
                self._put(parameter, array.view(shape).to(parameter.device), context)

    def _put(self, parameter: torch.Tensor, result: torch.Tensor, context: Any) -> None:
        gradient = parameter.grad
        reduced = self._compression.decompress(result, context)
        if gradient is None or gradient.is_sparse:
            parameter.grad = (reduced if gradient is None
                              else reduced.to_sparse(gradient.sparse_dim()))
        elif gradient.data_ptr() != reduced.data_ptr():
            gradient.copy_(reduced)


class _Sparse:
    """The sparse gradient of one parameter: indices and values of all ranks, one after the other."""

    def __init__(self, parameter: torch.Tensor, dimensions: int, options: Options) -> None:
        self._parameter = parameter
        self._take = sparse_allreduce_async(
            _as_sparse(parameter, dimensions), None, options.op, options.process_set)

    def take(self) -> None:
        self._parameter.grad = self._take()


def _as_sparse(parameter: torch.Tensor, dimensions: int) -> torch.Tensor:
    """The gradient as a sparse tensor of so many; without values where there is none."""
    gradient: Any = parameter.grad
    if gradient is None or (gradient.is_sparse and not gradient._nnz()):
        indices = torch.empty((dimensions, 0), dtype=torch.int64)
        values = torch.empty((0, *parameter.shape[dimensions:]), dtype=parameter.dtype)
        return torch.sparse_coo_tensor(indices, values, parameter.shape, device=parameter.device)
    if not gradient.is_sparse or gradient.sparse_dim() != dimensions:
        gradient = gradient.to_dense().to_sparse(dimensions)
    result: torch.Tensor = gradient
    return result


class _NodeHook:
    """A hook on the graph's node that adds gradients up, for torch before 2.1.

    The node lives only as long as somebody holds it.
    """

    def __init__(self, parameter: torch.Tensor, function: Callable[..., None]) -> None:
        expanded = parameter.expand_as(parameter)
        graph: Any = expanded.grad_fn
        self._node = graph.next_functions[0][0]
        self._handle = self._node.register_hook(function)

    def remove(self) -> None:
        self._handle.remove()


def _hook(parameter: torch.Tensor, function: Callable[..., None]) -> Any:
    """Calls the function after each time a gradient was added to `parameter.grad`."""
    register = getattr(parameter, "register_post_accumulate_grad_hook", None)
    return register(function) if register else _NodeHook(parameter, function)
