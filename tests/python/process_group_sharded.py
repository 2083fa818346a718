"""Cases of process_group_test.py: the operations that DTensor and FSDP2 call, and these themselves, beside gloo."""
import torch
import torch.distributed as dist

from process_group_rank import start


def case_functional():
    from torch.distributed import _functional_collectives as functional
    start()
    rank, size = dist.get_rank(), dist.get_world_size()
    world = dist.group.WORLD
    mine = torch.full((size, 2), rank + 1.0)
    total = float(sum(range(1, size + 1)))
    assert torch.equal(functional.all_reduce(mine, "sum", world) + 0, torch.full((size, 2), total))
    assert torch.allclose(functional.all_reduce(mine, "avg", world) + 0, torch.full((size, 2), total / size))
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
    gradients(functional, rank, size)
    dist.destroy_process_group()


def gradients(functional, rank, size):
    """Of functional collectives: that of a gather is the sum of the parts, that of a scatter a gather."""
    mine = torch.full((1, 2), rank + 1.0, requires_grad=True)
    (functional.all_gather_tensor_autograd(mine, 0, dist.group.WORLD) * (rank + 1)).sum().backward()
    assert torch.equal(mine.grad, torch.full((1, 2), float(sum(range(1, size + 1))))), mine.grad
    mine = torch.ones(size, 2, requires_grad=True)
    (functional.reduce_scatter_tensor_autograd(mine, "sum", 0, dist.group.WORLD) * (rank + 1)).sum().backward()
    assert torch.equal(mine.grad[:, 0], torch.arange(1.0, size + 1)), mine.grad
    mine = torch.ones(size, 2, requires_grad=True)
    (functional.all_to_all_single_autograd(mine, [1] * size, [1] * size, dist.group.WORLD) * (rank + 1)).sum().backward()
    assert torch.equal(mine.grad[:, 0], torch.arange(1.0, size + 1)), mine.grad


def case_coalesced():
    """Several operations as one, by torch's manager of them, and messages among them."""
    start()
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    wholes = [torch.zeros(size, 2), torch.zeros(size * 3)]
    with dist._coalescing_manager(device=device, async_ops=True) as manager:
        dist.all_gather_into_tensor(wholes[0], torch.full((1, 2), float(rank)))
        dist.all_gather_into_tensor(wholes[1], torch.full((3,), float(rank)))
    manager.wait()
    assert wholes[0][:, 0].tolist() == list(range(size)), wholes
    assert torch.equal(wholes[1], torch.arange(float(size)).repeat_interleave(3)), wholes
    parts = [torch.zeros(1), torch.zeros(2)]
    with dist._coalescing_manager(device=device):
        dist.reduce_scatter_tensor(parts[0], torch.arange(float(size)))
        dist.reduce_scatter_tensor(parts[1], torch.arange(2.0 * size))
    assert parts[0].item() == rank * size and parts[1].tolist() == [2.0 * rank * size, (2.0 * rank + 1) * size], parts
    several = [torch.ones(2), torch.full((3,), 2.0)]
    with dist._coalescing_manager(device=device):
        for each in several:
            dist.all_reduce(each)
    assert several[0][0].item() == size and several[1][0].item() == 2 * size, several
    received = torch.zeros(4)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((4,), float(rank)), (rank + 1) % size),
                                    dist.P2POp(dist.irecv, received, (rank - 1) % size)])
    for work in works:
        work.wait()
    assert torch.equal(received, torch.full((4,), float((rank - 1) % size))), received
    dist.destroy_process_group()


def case_tensors():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, DTensor, distribute_tensor
    start()
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(size * 6.0).view(size * 2, 3)
    sharded = distribute_tensor(whole.clone(), mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    partial = DTensor.from_local(whole.clone(), mesh, [Partial()])
    assert torch.equal(partial.full_tensor(), whole * size)
    assert torch.equal(partial.redistribute(mesh, [Shard(0)]).full_tensor(), whole * size)
    uneven = torch.arange(float(size * 3 + 1))
    assert torch.equal(distribute_tensor(uneven, mesh, [Shard(0)]).full_tensor(), uneven)
    columns_and_rows(mesh)
    dist.destroy_process_group()


def columns_and_rows(mesh):
    """Two layers, one split by columns and one by rows, are the two layers."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    plain, split = network(), network()
    parallelize_module(split, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.manual_seed(2)
    inputs = torch.randn(4, 6)
    for each in (plain, split):
        each(inputs).square().mean().backward()
    for one, other in zip(plain.parameters(), split.parameters()):
        assert torch.allclose(one.grad, other.grad.full_tensor(), atol=1e-6), (one.grad, other.grad.full_tensor())


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def unchanged(model):
    pass


def train(mesh, prepare=unchanged, **options):
    """The whole weights of a network after a few steps on each rank's own samples."""
    from torch.distributed.fsdp import fully_shard
    model = network()
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh, **options)
    prepare(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    torch.manual_seed(dist.get_rank())
    for step in range(6):
        optimizer.zero_grad()
        model.set_requires_gradient_sync(step % 3 != 1)  # gradients of some steps wait for the next
        model(torch.randn(4, 6)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [each.full_tensor().detach() for each in model.parameters()]


def case_fsdp():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy
    gloo = start()
    ours, theirs = (DeviceMesh.from_group(group, "cpu") for group in (dist.group.WORLD, gloo))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for what, near, prepare, options in (
            ("plain", 1e-6, unchanged, {}),
            ("whole from forward to backward", 1e-6, unchanged, {"reshard_after_forward": False}),
            ("a factor", 1e-6, lambda model: model.set_gradient_divide_factor(3.0), {}),
            ("sums only", 1e-6, lambda model: model.set_force_sum_reduction_for_comms(True), {}),
            ("weights of half width", 1e-2, unchanged, {"mp_policy": half})):
        for one, other in zip(train(ours, prepare, **options), train(theirs, prepare, **options)):
            assert torch.allclose(one, other, rtol=near, atol=near), (what, one, other)
    dist.destroy_process_group()


def case_fsdp_replicated():
    """In two groups of two, which have the same weights: gradients are also summed between them."""
    from torch.distributed.device_mesh import init_device_mesh
    start()
    two = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    one = init_device_mesh("cpu", (4,))
    for once, twice in zip(train(one), train(two)):
        assert torch.allclose(once, twice, atol=1e-6), (once, twice)
    dist.destroy_process_group()
