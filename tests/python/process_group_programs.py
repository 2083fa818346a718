"""Cases of process_group_test.py: DDP, and a backend beside others."""
import os
import signal

import torch
import torch.distributed as dist

import trainyard as ty
from process_group_operations import exchanged
from process_group_rank import LIMIT, expect, start
from trainyard.torch._backend import register


def train(group, hook=None):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
                                torch.nn.Flatten(), torch.nn.Linear(4 * 36, 10))
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.002,
                                                      find_unused_parameters=True)
    if hook is not None:
        model.register_comm_hook(group, hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    torch.manual_seed(dist.get_rank())
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 1, 8, 8)), torch.randint(0, 10, (8,)))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(each.detach() for each in model.parameters())]


def case_ddp():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    gloo = start()
    world = dist.group.WORLD
    for hook in (None, default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        # Sums of three half-width floats depend on their order.
        near = 1e-3 if hook is default_hooks.fp16_compress_hook else 1e-6
        ours, theirs = train(world, hook), train(gloo, hook)
        for one, other in zip(ours, theirs):
            assert torch.allclose(one, other, rtol=near, atol=near), (hook, (one - other).abs().max())
    dist.destroy_process_group()


def case_mixed():
    """Beside the backend of another kind of device, where torch has such backends in Python."""
    register()
    dist.init_process_group("cpu:trainyard,cuda:gloo", timeout=LIMIT)
    rank, size = dist.get_rank(), dist.get_world_size()
    assert type(dist.group.WORLD) is dist.ProcessGroup, type(dist.group.WORLD)
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((3,), size * (size + 1) / 2)), tensor
    assert dist.all_reduce(tensor, async_op=True).get_future().wait()[0] is not None
    every = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(every, torch.full((2,), float(rank)))
    assert [each[0].item() for each in every] == list(range(size)), every
    exchanged(rank, size)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    part = dist.new_group([0])
    dist.barrier(part) if rank == 0 else None
    train(dist.group.WORLD)
    expect(ty.InvalidArgument, lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)), "torch.int16")
    dist.group.WORLD.monitored_barrier(LIMIT)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    expect(ty.RankLost, lambda: [dist.barrier() for _ in range(100)], "rank 1")
