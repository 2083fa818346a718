"""DistributedOptimizer: a torch optimizer whose gradients are those of all ranks."""
from __future__ import annotations

import collections
import contextlib
import warnings
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

import torch

from trainyard._errors import InvalidArgument
from trainyard.torch._buckets import split_evenly
from trainyard.torch._compression import Compression
from trainyard.torch._operations import Average
from trainyard.torch._process_sets import ProcessSet, global_process_set
from trainyard.torch._reduce import reduction_of
from trainyard.torch._reducer import Named, Options, Reducer

Groups = Union[None, int, Sequence[Sequence[torch.Tensor]]]


class _Distributed:
    """What is put in front of the optimizer's own class."""

    # A copy (copy.deepcopy) keeps these: it is an optimizer of this rank alone.
    _reducer: Optional[Reducer] = None
    _synchronized = False
    _should_synchronize = True
    _make_reducer: Callable[[Named, int], Optional[Reducer]]
    _inner: Optional[torch.optim.Optimizer] = None
    backward_passes_per_step = 1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """How often backward runs before each step."""
        self.backward_passes_per_step = passes
        if self._reducer is not None:
            self._reducer.set_passes(passes)

    def synchronize(self) -> None:
        """Waits until the gradients are those of all ranks. For what changes them before `step`,
        such as clipping, which then goes inside of `skip_synchronize`."""
        if self._reducer is not None:
            self._reducer.finish()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it `step` takes the gradients as they are, after a `synchronize`."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Synchronizes, then takes the optimizer's own step."""
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(): gradients are reduced a second time")
            self.synchronize()
        self._synchronized = False
        if self._inner is not None:
            # A scheduler made before has the given optimizer, and warns where that takes no steps.
            self._inner.__dict__["_step_count"] = self._inner.__dict__.get("_step_count", 0) + 1
            self._inner.__dict__["_opt_called"] = True
        return super().step(*args, **kwargs)  # type: ignore[misc]

    # torch wraps the steps of optimizers, to call step hooks around them. The own class's is.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """AssertionError between backward() and step() or synchronize(): gradients are on their
        way."""
        if self._reducer is not None and self._reducer.under_way:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(): gradients are on their way")
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def load_state_dict(self, state_dict: Any) -> None:
        """The optimizer's own; what was under way is forgotten."""
        if self._reducer is not None:
            self._reducer.reset()
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(state_dict)  # type: ignore[misc]

    def add_param_group(self, param_group: Any) -> None:
        """The optimizer's own; the new parameters' gradients are reduced too. All ranks call it."""
        super().add_param_group(param_group)  # type: ignore[misc]
        named = getattr(self, "_named", None)
        if named is None:
            return
        number = len(self.param_groups) - 1  # type: ignore[attr-defined]
        added = self.param_groups[number]["params"]  # type: ignore[attr-defined]
        named += [(f"added.{number}.{at}", parameter) for at, parameter in enumerate(added)]
        if self._reducer is not None:
            self._reducer.close()
            self._reducer = self._make_reducer(named, self.backward_passes_per_step)


def DistributedOptimizer(  # noqa: N802 (a class by its looks)
        optimizer: torch.optim.Optimizer,
        named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None,
        compression: Any = Compression.none, backward_passes_per_step: int = 1, op: int = Average,
        gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Groups = None,
        sparse_as_dense: bool = False, process_set: ProcessSet = global_process_set) -> Any:
    """The same optimizer, with the same state, whose gradients are reduced over all ranks.

    All ranks of the process set call it, with parameters of the same names, types and sizes in the
    same order. Reductions begin during backward, in buckets fixed by that order; from the second step
    on where gradients may be sparse. `step` waits for them. The result is of a subclass of the
    optimizer's class.

    named_parameters: `model.named_parameters()`; without it parameters have numbers.
    compression: of Compression, or a class of your own with `compress` and `decompress`.
    backward_passes_per_step: gradients are added up over so many passes first (and not divided).
    op: Average or Sum; Min, Max and Product too.
    gradient_predivide_factor: of an average: divides by so much before the sum, the rest after it.
    groups: lists of parameters that are to travel together, or how many buckets to make.
    sparse_as_dense: sparse gradients travel as dense ones and come back sparse.

    ValueError: names that come twice or are missing, a parameter in two groups, factors that do not
    fit. Mismatch, on all ranks: ranks differ. NotImplementedError: Adasum.
    """
    groups = _older_groups(num_groups, groups)
    _check_options(op, gradient_predivide_factor, backward_passes_per_step, groups)
    named = _checked_names(optimizer, named_parameters)
    trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]

    def make_reducer(parameters: Named, passes: int) -> Optional[Reducer]:
        lone = not process_set.included() or process_set.size() == 1
        return None if lone else Reducer(parameters, Options(
            compression, op, gradient_predivide_factor, _positions(groups, parameters),
            sparse_as_dense, process_set), passes)

    distributed: Any = _in_front(optimizer)
    distributed._inner = optimizer
    distributed._named = trained
    distributed._make_reducer = make_reducer
    distributed._reducer = make_reducer(trained, backward_passes_per_step)
    distributed.backward_passes_per_step = backward_passes_per_step
    return distributed


def _in_front(optimizer: torch.optim.Optimizer) -> Any:
    """An optimizer of a new class that shares groups and state with the given one."""
    kind = type(optimizer)
    distributed: Any = object.__new__(type(kind.__name__, (_Distributed, kind), {}))
    # A scheduler made before leaves a `step` of its own in the instance, which would hide ours.
    distributed.__dict__.update(
        {key: value for key, value in vars(optimizer).items() if key != "step"})
    return distributed


def _older_groups(num_groups: int, groups: Groups) -> Groups:
    if num_groups == 0:
        return groups
    warnings.warn("`num_groups` has given way to `groups`", DeprecationWarning, stacklevel=3)
    return num_groups if groups is None else groups


def _check_options(op: int, predivide: float, passes: int, groups: Groups) -> None:
    reduction_of(op)
    if predivide != 1.0 and op != Average:
        raise InvalidArgument("gradient_predivide_factor needs op=Average")
    if passes <= 0:
        raise InvalidArgument(f"backward_passes_per_step must be at least 1, not {passes}")
    if isinstance(groups, int) and groups <= 0:
        raise InvalidArgument("groups should be a positive number or a list of lists of parameters")
    if groups is not None and not isinstance(groups, int):
        seen: Set[int] = set()
        for parameter in (one for group in groups for one in group):
            if not isinstance(parameter, torch.Tensor):
                raise InvalidArgument(f"groups must consist of torch.Tensor, not {parameter!r}")
            if id(parameter) in seen:
                raise InvalidArgument("a parameter can only appear once in groups")
            seen.add(id(parameter))


def _checked_names(optimizer: torch.optim.Optimizer,
                   named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]]
                   ) -> List[Tuple[str, torch.Tensor]]:
    """Name and parameter of all that the optimizer has, in the order given."""
    if named_parameters is None:
        return [(f"allreduce.noname.{i}.{j}", parameter)
                for i, group in enumerate(optimizer.param_groups)
                for j, parameter in enumerate(group["params"])]
    named = list(named_parameters)
    if any(not isinstance(one, tuple) for one in named):
        raise InvalidArgument("named_parameters should be a sequence of tuples (name, parameter), "
                         "usually model.named_parameters()")
    counts = collections.Counter(name for name, _ in named)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise InvalidArgument(f"names in named_parameters must be unique; twice: {', '.join(twice)}")
    known = {id(parameter) for _, parameter in named}
    held = [(i, j, parameter) for i, group in enumerate(optimizer.param_groups)
            for j, parameter in enumerate(group["params"])]
    unnamed = [f"group {i} parameter {j} {tuple(parameter.shape)}"
               for i, j, parameter in held if id(parameter) not in known]
    if unnamed:
        raise InvalidArgument(f"named_parameters lacks parameters of the optimizer: {', '.join(unnamed)}")
    ours = {id(parameter) for _, _, parameter in held}
    return [(name, parameter) for name, parameter in named if id(parameter) in ours]


def _positions(groups: Groups, named: Named) -> Optional[List[List[int]]]:
    """Groups of parameters as groups of positions."""
    if groups is None:
        return None
    if isinstance(groups, int):
        return split_evenly(len(named), groups)
    at = {id(parameter): position for position, (_, parameter) in enumerate(named)}
    return [[at[id(parameter)] for parameter in group if id(parameter) in at] for group in groups]
