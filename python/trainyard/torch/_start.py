"""Beginning and end: `init` and `shutdown` by Horovod's names."""
from __future__ import annotations

from typing import Iterable, Optional, Union

import torch

import trainyard
from trainyard._errors import InvalidArgument
from trainyard.torch import _build_info, _handles, _process_sets
from trainyard.torch._autograd import allgather
from trainyard.torch._process_sets import ProcessSet


def init(comm: Optional[Iterable[int]] = None,
         process_sets: Union[None, str, Iterable[ProcessSet]] = None) -> None:
    """Joins the other ranks; does nothing the second time. All ranks call it.

    process_sets: sets to be made of use, the same on all ranks; more can be added at any time, so
    "dynamic" means none. NotImplementedError for a `comm` that is not all ranks: use a ProcessSet.
    """
    begun = not trainyard.is_initialized()
    if begun:
        trainyard.init()
    if comm is not None and (not hasattr(comm, "__iter__")
                             or sorted(comm) not in ([], list(range(trainyard.size())))):
        raise NotImplementedError("comm is not supported: make a ProcessSet of these ranks and give "
                                  "it to the operations as process_set=")
    if begun:
        _build_info.set_homogeneous(_same_everywhere(trainyard.local_size()))
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise InvalidArgument(f'process_sets is a list of ProcessSet or "dynamic", not {process_sets!r}')
        return
    for process_set in process_sets or ():
        if process_set.process_set_id is None:
            _process_sets.add_process_set(process_set)


def shutdown() -> None:
    """Leaves the other ranks, who lose this one if they still need it. `init` may follow."""
    _handles.drop_all()
    _process_sets.forget_all()
    _build_info.set_homogeneous(None)
    trainyard.shutdown()


def _same_everywhere(number: int) -> bool:
    everywhere = allgather(torch.tensor([number], dtype=torch.int64))
    return set(everywhere.tolist()) == {number}
