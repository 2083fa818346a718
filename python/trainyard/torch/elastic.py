"""Horovod's elastic training by its names, which say what to use instead.

When a rank is lost, all programs are started again together and go on from the script's own
checkpoint: `trainyard run`, a job file or a TrainingJob does that for any script.
"""
from __future__ import annotations

from typing import Any, NoReturn

_INSTEAD = ("let the script save a checkpoint and continue from it when it starts; after a rank is "
            "lost, `trainyard run` or a TrainingJob starts all programs again together")


def _refuse(name: str, instead: str = _INSTEAD) -> NoReturn:
    raise NotImplementedError(f"horovod.torch.elastic.{name} is not supported: {instead}")


def run(func: Any) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse("run")


class _Refused:
    """A class that cannot be made."""

    _instead = _INSTEAD

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__, self._instead)


class State(_Refused):
    """Raises NotImplementedError."""


class ObjectState(_Refused):
    """Raises NotImplementedError."""


class TorchState(_Refused):
    """Raises NotImplementedError."""


class SamplerStateHandler(_Refused):
    """Raises NotImplementedError."""


class ElasticSampler(_Refused):
    """Raises NotImplementedError."""

    _instead = ("use torch.utils.data.DistributedSampler with num_replicas=hvd.size() and "
                "rank=hvd.rank(), and save the position with the checkpoint")
