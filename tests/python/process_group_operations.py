"""Cases of process_group_test.py: every operation beside gloo's."""
import os
import time

import torch
import torch.distributed as dist

from process_group_rank import LIMIT, start

DTYPES = (torch.float32, torch.float64, torch.float16, torch.int32, torch.int64, torch.uint8, torch.int8)
OPS = ("SUM", "PRODUCT", "MIN", "MAX")
BITWISE = ("BAND", "BOR", "BXOR")


def values(dtype, rank, *shape):
    generator = torch.Generator().manual_seed(rank * 100 + len(shape))
    numbers = torch.randint(1, 5, shape, generator=generator)
    if dtype.is_complex:
        return torch.complex(numbers.double(), numbers.double() + 1).to(dtype)
    return numbers.to(dtype)


def both(function, gloo):
    """What a function makes with ours and with gloo."""
    return function(None), function(gloo)


def check_same(function, gloo, what, exact=True):
    if isinstance(what, tuple) and 0 in what:  # gloo dies of empty tensors in some collectives
        assert all(each.numel() == 0 for each in function(None)), what
        return
    ours, theirs = both(function, gloo)
    for one, other in zip(ours, theirs):
        equal = torch.equal(one, other) if exact else torch.allclose(one, other, rtol=1e-6)
        assert equal and one.shape == other.shape, (what, one, other)


def case_all_reduce():
    gloo = start()
    rank = dist.get_rank()
    for dtype in DTYPES:
        for op in OPS if dtype.is_floating_point else OPS + BITWISE:
            for shape in ((), (1,), (0,), (3, 5), (7, 11, 13)):
                def reduce(group):
                    tensor = values(dtype, rank, *shape)
                    dist.all_reduce(tensor, getattr(dist.ReduceOp, op), group=group)
                    return [tensor]
                check_same(reduce, gloo, (dtype, op, shape))
    averages()
    others(gloo, rank)
    dist.destroy_process_group()


def averages():
    size, rank = dist.get_world_size(), dist.get_rank()
    tensor = torch.full((5,), float(rank))
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert torch.allclose(tensor, torch.full((5,), (size - 1) / 2)), tensor
    for dtype in (torch.bfloat16, torch.bool, torch.complex64, torch.complex128):
        tensor = torch.ones(3, 2, dtype=dtype)
        dist.all_reduce(tensor)
        expected = torch.ones(3, 2, dtype=dtype) * (1 if dtype == torch.bool else size)
        assert torch.equal(tensor, expected.to(dtype)), tensor


def others(gloo, rank):
    def transposed(group):
        tensor = values(torch.float32, rank, 4, 6).t()
        dist.all_reduce(tensor, group=group)
        strided = values(torch.float32, rank, 4, 6)
        dist.all_reduce(strided[:, ::2] if group is None else strided, group=group)
        return [tensor]
    check_same(transposed, gloo, "transposed")
    strided = torch.arange(24.).view(4, 6)
    dist.all_reduce(strided[:, ::2])
    expected = torch.arange(24.).view(4, 6)
    expected[:, ::2] *= dist.get_world_size()
    assert torch.equal(strided, expected), "what lies between is not touched"

    def coalesced(group):
        tensors = [values(torch.float32, rank, 3), values(torch.float32, rank, 2, 2)]
        dist.all_reduce_coalesced(tensors, group=group)
        return tensors
    check_same(coalesced, gloo, "coalesced")

    def sparse(group):
        tensor = torch.sparse_coo_tensor([[rank, 3]], [1.0 + rank, 2.0], (6,))
        dist.all_reduce(tensor, group=group)
        return [tensor.to_dense()]
    check_same(sparse, gloo, "sparse")

    def parameter(group):
        tensor = torch.nn.Parameter(torch.full((2, 3), float(rank)))
        with torch.no_grad():
            dist.all_reduce(tensor, group=group)
        return [tensor.detach()]
    check_same(parameter, gloo, "parameter")


def case_collectives():
    gloo = start()
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.int64, torch.uint8, torch.float16):
        for shape in ((), (5,), (0,), (2, 3)):
            for root in range(size):
                rooted(gloo, dtype, shape, root, rank, size)
            gathered(gloo, dtype, shape, rank, size)
    moved_as_bytes(rank, size)
    scattered(rank, size)
    exchanged(rank, size)
    dist.barrier()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": each, "text": "x" * each} for each in range(size)], objects
    dist.destroy_process_group()


def rooted(gloo, dtype, shape, root, rank, size):
    def broadcast(group):
        tensor = values(dtype, rank, *shape)
        dist.broadcast(tensor, root, group=group)
        return [tensor]

    def reduce(group):
        tensor = values(dtype, rank, *shape)
        dist.reduce(tensor, root, group=group)
        return [tensor] if rank == root else []

    def gather(group):
        every = [torch.zeros(shape, dtype=dtype) for _ in range(size)] if rank == root else None
        dist.gather(values(dtype, rank, *shape), every, root, group=group)
        return every or []

    def scatter(group):
        tensor = torch.zeros(shape, dtype=dtype)
        every = [values(dtype, each + 7, *shape) for each in range(size)] if rank == root else None
        dist.scatter(tensor, every, root, group=group)
        return [tensor]

    for function in (broadcast, reduce, gather, scatter):
        check_same(function, gloo, (function.__name__, root + 1, dtype, *shape))


def gathered(gloo, dtype, shape, rank, size):
    def all_gather(group):
        every = [torch.zeros(shape, dtype=dtype) for _ in range(size)]
        dist.all_gather(every, values(dtype, rank, *shape), group=group)
        return every
    check_same(all_gather, gloo, ("all_gather", dtype, *shape))

    def in_one(group):
        whole = torch.zeros((size, *shape), dtype=dtype)
        dist.all_gather(list(whole.unbind(0)), values(dtype, rank, *shape), group=group)
        return [whole]
    check_same(in_one, gloo, ("all_gather in one", dtype, *shape))

    expected = torch.stack([values(dtype, each, *shape) for each in range(size)])
    whole = torch.zeros((size, *shape), dtype=dtype)
    whole[rank] = values(dtype, rank, *shape)
    dist._all_gather_base(whole, whole[rank])
    assert torch.equal(whole, expected), ("all_gather in place", whole, expected)


def moved_as_bytes(rank, size):
    for dtype in (torch.int16, torch.complex64, torch.complex128, torch.bool, torch.bfloat16):
        tensor = values(dtype, rank, 3)
        every = [torch.zeros(3, dtype=dtype) for _ in range(size)]
        dist.all_gather(every, tensor)
        assert all(torch.equal(each, values(dtype, at, 3)) for at, each in enumerate(every)), every
        dist.broadcast(tensor, 0)
        assert torch.equal(tensor, values(dtype, 0, 3)), tensor
    pair = [torch.zeros(2, 2), torch.zeros(3)]
    lists = [[each.clone() for each in pair] for _ in range(size)]
    dist.all_gather_coalesced(lists, [each + rank for each in pair])
    assert all(torch.equal(lists[each][at], pair[at] + each) for each in range(size) for at in range(2)), lists


def scattered(rank, size):
    group = dist.group.WORLD
    parts = [values(torch.float32, rank * size + each, 2, 3) for each in range(size)]
    expected = sum(values(torch.float32, each * size + rank, 2, 3) for each in range(size))
    output = torch.zeros(2, 3)
    dist.reduce_scatter(output, parts)
    assert torch.equal(output, expected), output
    dist._reduce_scatter_base(output, torch.stack(parts))
    assert torch.equal(output, expected), output
    output = torch.zeros(3, 2).t()
    group.reduce_scatter_single(output, torch.stack(parts)).wait()
    assert torch.equal(output, expected), output
    outputs = [torch.zeros(2, 3), torch.zeros(1)]
    group.reduce_scatter_tensor_coalesced(outputs, [torch.stack(parts), torch.ones(size)]).wait()
    assert torch.equal(outputs[0], expected) and outputs[1].item() == size, outputs
    outputs = [torch.zeros(size), torch.zeros(size * 2)]
    group.allgather_into_tensor_coalesced(outputs, [torch.tensor([rank + 1.]), torch.full((2,), rank + 1.)]).wait()
    assert torch.equal(outputs[0], torch.arange(1., size + 1)), outputs
    assert torch.equal(outputs[1], torch.arange(1., size + 1).repeat_interleave(2)), outputs


def exchanged(rank, size):
    output = torch.zeros(size, 2)
    dist.all_to_all_single(output, torch.full((size, 2), float(rank)))
    assert torch.equal(output, torch.arange(float(size)).repeat_interleave(2).view(size, 2)), output
    # Rank a sends rank b a + b rows.
    rows = [rank + each for each in range(size)]
    output = torch.full((sum(rows), 3), -1)
    dist.all_to_all_single(output, torch.full((sum(rows), 3), rank), rows, rows)
    assert output[:, 0].tolist() == [each for each in range(size) for _ in range(rank + each)], output
    outputs = [torch.zeros(each + rank, dtype=torch.int64) for each in range(size)]
    dist.all_to_all(outputs, [torch.full((each + rank,), rank) for each in range(size)])
    assert all(torch.equal(outputs[each], torch.full((each + rank,), each)) for each in range(size)), outputs


def case_messages():
    start()
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    got = torch.zeros(2, 3)
    work = dist.isend(torch.full((2, 3), float(rank)), after, tag=4)
    assert dist.recv(got, before, tag=4) == before and torch.equal(got, torch.full((2, 3), float(before))), got
    work.wait()
    if rank == 0:
        sources = set()
        for _ in range(size - 1):
            got = torch.zeros(4, dtype=torch.int64).view(2, 2).t()
            source = dist.recv(got, tag=3)
            assert torch.equal(got, torch.full((2, 2), source)), (source, got)
            sources.add(source)
        assert sources == set(range(1, size)), sources
    else:
        dist.send(torch.full((2, 2), rank), 0, tag=3)
    incoming = torch.zeros(5)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((5,), float(rank)), after),
                                    dist.P2POp(dist.irecv, incoming, before)])
    for work in works:
        work.wait()
    assert torch.equal(incoming, torch.full((5,), float(before))), incoming
    dist.barrier()
    dist.destroy_process_group()


def case_groups():
    start()
    rank, size = dist.get_rank(), dist.get_world_size()
    for members in ([0], [0, size - 1], list(range(size))):
        group = dist.new_group(members)
        tensor = torch.tensor([float(rank + 1)])
        if rank in members:
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(each + 1 for each in members), (members, tensor)
            dist.broadcast(tensor, members[-1], group=group)
            dist.destroy_process_group(group)
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("trainyard", timeout=LIMIT, init_method=f"file://{os.environ['SHARED']}/store",
                            rank=rank, world_size=size)
    dist.barrier()
    dist.destroy_process_group()


def case_futures():
    start()
    size = dist.get_world_size()
    tensors = [torch.ones(1000) * at for at in range(30)]
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    chained = [work.get_future().then(lambda done: done.value()[0].sum()) for work in works]
    for at, future in enumerate(chained):
        assert future.wait().item() == at * size * 1000, at

    def again(done):
        """Waits in a callback for another operation."""
        return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(again)
    assert torch.equal(future.wait(), torch.full((4,), float(size * size)))
    failing = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(lambda done: 1 / 0)
    try:
        failing.wait()
        raise AssertionError("what a callback raises is lost")
    except RuntimeError as error:
        assert "division" in str(error), error
    work = dist.all_reduce(torch.ones(2, 3).t(), async_op=True)
    deadline = time.monotonic() + LIMIT.total_seconds()
    while not work.is_completed() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert work.is_success() and work.exception() is None
    assert torch.equal(work.result()[0], torch.full((3, 2), float(size))), "copied back by who asks too"
    for _ in range(100):
        dist.all_reduce(torch.ones(100), async_op=True)
    dist.barrier()
    dist.destroy_process_group()
