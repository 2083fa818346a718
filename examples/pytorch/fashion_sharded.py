"""Checkpoints of networks whose weights are in parts on several ranks, in the form of those of fashion.py."""
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

import fashion

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def resume(net, optimizer):
    """As fashion.resume. All ranks read the same file, and each keeps its part."""
    if not fashion.CHECKPOINT.exists():
        return 0
    state = torch.load(fashion.CHECKPOINT)
    set_state_dict(net, optimizer, model_state_dict=state["net"], optim_state_dict=state["optimizer"], options=WHOLE)
    return state["step"]


def save(net, optimizer, step):
    """All ranks put their parts together, and rank 0 writes."""
    weights, state = get_state_dict(net, optimizer, options=WHOLE)
    if dist.get_rank() == 0:
        fashion.write({"net": weights, "optimizer": state, "step": step})
