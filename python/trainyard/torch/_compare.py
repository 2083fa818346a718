"""Finding out, before anything is sent, whether all ranks mean the same tensors."""
from __future__ import annotations

from typing import Iterable, Tuple

import torch

from trainyard._memory import Array, torch_types
from trainyard._types import Type
from trainyard.torch._process_sets import ProcessSet


def compare(named: Iterable[Tuple[str, torch.Tensor]], process_set: ProcessSet,
            about: str = "") -> None:
    """Checks that names, types and shapes, and the text `about`, are the same on all ranks.

    Mismatch on all ranks, naming the first that differs; the group lives on. One operation.
    """
    # The library reads no elements, but wants an address.
    somewhere = torch.zeros(1, dtype=torch.uint8)
    listed = {}
    if about:
        listed[about] = Array(somewhere.data_ptr(), 1, Type.UINT8, about, somewhere)
    for name, tensor in named:
        label = f"{name} {list(tensor.shape)}"
        kind = torch_types(torch).get(tensor.dtype)
        elements = tensor.numel() if kind is not None else tensor.numel() * tensor.element_size()
        listed[label] = Array(somewhere.data_ptr(), elements,
                              Type.UINT8 if kind is None else kind, label, somewhere)
    process_set.sequencer().run_here(lambda group: group.compare(listed))
