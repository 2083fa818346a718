"""Cases of process_group_test.py: what is built of the operations: DDP, FSDP, DTensor."""
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


def case_functional():
    """The operations that DTensor and FSDP call, and FSDP itself, where torch has them."""
    from torch.distributed import _functional_collectives as functional
    start()
    rank, size = dist.get_rank(), dist.get_world_size()
    world = dist.group.WORLD
    mine = torch.full((size, 2), rank + 1.0)
    total = float(sum(range(1, size + 1)))
    assert torch.equal(functional.all_reduce(mine, "sum", world) + 0, torch.full((size, 2), total))
    assert torch.equal(functional.all_reduce(mine, "avg", world) + 0, torch.full((size, 2), total / size))
    assert torch.equal(functional.all_gather_tensor(mine[:1], 0, world)[:, 0] + 0, torch.arange(1.0, size + 1))
    assert torch.equal(functional.reduce_scatter_tensor(mine, "sum", 0, world) + 0, torch.full((1, 2), total))
    assert torch.equal(functional.broadcast(mine, 0, world) + 0, torch.full((size, 2), 1.0))
    assert (functional.all_to_all_single(mine, None, None, world) + 0)[:, 0].tolist() == list(range(1, size + 1))
    several = functional.all_reduce_coalesced([mine, mine[:1]], "sum", world)
    assert all(each[0, 0].item() == total for each in several), several
    several = functional.all_gather_into_tensor_coalesced([mine[:1], mine], world)
    assert several[0].shape == (size, 2) and several[1].shape == (size * size, 2), several
    several = functional.reduce_scatter_tensor_coalesced([mine, mine], "sum", [0, 0], world)
    assert all(torch.equal(each + 0, torch.full((1, 2), total)) for each in several), several
    distributed_tensors(size, rank)
    dist.destroy_process_group()


def distributed_tensors(size, rank):
    from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(size * 6.0).view(size * 2, 3)
    sharded = distribute_tensor(whole.clone(), mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    torch.manual_seed(1)
    plain = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    model.load_state_dict(plain.state_dict())
    fully_shard(model, mesh=mesh)
    inputs = torch.randn(size * 4, 6)
    for step, (each, rows) in enumerate(((plain, slice(None)), (model, slice(rank * 4, rank * 4 + 4)))):
        optimizer = torch.optim.SGD(each.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            each(inputs[rows]).square().mean().backward()
            optimizer.step()
    for one, other in zip(plain.parameters(), model.parameters()):
        assert torch.allclose(one, other.full_tensor(), atol=1e-6), (one, other.full_tensor())
