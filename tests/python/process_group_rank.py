"""One rank of process_group_test.py: the backend, and what is expected to be raised."""
import datetime

import torch.distributed as dist

import trainyard.torch._backend
from ranks import expect  # noqa: F401

LIMIT = datetime.timedelta(seconds=30)


def start(timeout=LIMIT):
    """Both backends over the same ranks: ours is the default one."""
    trainyard.torch._backend.register()
    trainyard.torch._backend.register()
    dist.init_process_group("trainyard", timeout=timeout)
    assert dist.get_backend() == "trainyard"
    return dist.new_group(backend="gloo", timeout=timeout)
