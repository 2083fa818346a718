"""The backend "trainyard" of torch.distributed."""
from __future__ import annotations

import datetime
import inspect
import os
import sys
from typing import Any, Dict, Optional

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from trainyard._errors import InvalidArgument
from trainyard.torch._c10d_store import form_group
from trainyard.torch._process_group import NAME, Members, TrainyardProcessGroup


def _make_backend_class() -> Optional[type]:
    """torch.distributed has backends in Python from 2.14 on; a group may have one for each kind of device then."""
    base: Any = getattr(c10d, "Backend", None)
    if base is None:
        return None

    class TrainyardBackend(Members, base):
        """Backend for tensors of the CPU, beside others."""

        def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
            base.__init__(self, rank, size)
            if store is not None:
                self._begin(form_group(store, rank, size, timeout, os.environ), timeout)

    try:
        TrainyardBackend(None, 0, 1, datetime.timedelta(0))
    except TypeError:  # no constructor: C++ only
        return None
    return TrainyardBackend


_backend_class = _make_backend_class()
HAS_BACKENDS = _backend_class is not None


# torch tells all that it knows of a new group from 2.15 on, where there are groups whose ranks change.
RECONFIGURES = hasattr(getattr(c10d, "_DistributedBackendOptions", None), "enable_reconfigure")


def create(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """What torch.distributed calls for each new group, with a store of its own.

    A process group of our own takes all tensors; a backend takes those of one kind of device. Where there is a choice
    the first is better: torch calls it without going through C++, where the ranks that messages came from and the
    types of errors are lost.
    """
    return _made_for(sys._getframe(1))(store, rank, size, timeout)


def create_with_options(told: Any, _: Any) -> Any:
    """The same, of versions of torch that have more to tell.

    Raises:
        trainyard.InvalidArgument: a group with several backends cannot change its ranks, says torch.
    """
    made = _made_for(sys._getframe(1))
    if not told.enable_reconfigure:
        return made(told.store, told.group_rank, told.group_size, told.timeout)
    if made is not TrainyardProcessGroup:
        raise InvalidArgument("enable_reconfigure: torch has it for groups with one backend: "
                              'init_process_group("trainyard", enable_reconfigure=True)')
    from trainyard.torch._c10d_reconfigure import ReconfigurableProcessGroup
    return ReconfigurableProcessGroup(told.group_rank, told.group_size, told.timeout)


def _made_for(frame: Any) -> Any:
    return _backend_class if _backend_class is not None and _has_other_backends(frame) else TrainyardProcessGroup


def _has_other_backends(frame: Any) -> bool:
    """Whether the group that torch is making has more backends. It tells those that it makes nothing of it, so this
    looks at its variables."""
    config = frame.f_locals.get("backend_config")
    if config is None or not hasattr(config, "get_device_backend_map"):
        return False
    return any(str(name).lower() != NAME for name in config.get_device_backend_map().values())


def register() -> None:
    """Makes init_process_group("trainyard") known to torch. Once more does nothing."""
    if hasattr(dist.Backend, NAME.upper()):
        return
    options: Dict[str, Any] = {}
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        options["devices"] = ["cpu"]
    if RECONFIGURES:
        dist.Backend.register_backend(NAME, create_with_options, extended_api=True, **options)
    else:
        dist.Backend.register_backend(NAME, create, **options)
