"""What every rank of horovod_test.py does: the operations, against plain torch on the same values."""
import torch

import trainyard
import trainyard.torch as hvd

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int32, torch.int64, torch.uint8, torch.int8]


def values(rank, dtype, shape=(5, 3), seed=0):
    """What `rank` gives: small whole numbers, so that sums are exact in every type."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(0, 8, shape, generator=generator).to(dtype)


def everywhere(dtype, shape=(5, 3), seed=0):
    """What all ranks give, one after the other, as float64."""
    return torch.stack([values(rank, dtype, shape, seed).double() for rank in range(hvd.size())])


def expect(actual, wanted, text=""):
    """Equal in shape and value."""
    assert tuple(actual.shape) == tuple(wanted.shape), (text, actual.shape, wanted.shape)
    assert torch.equal(actual.double(), wanted.double()), (text, actual, wanted)


def raises(kinds, function, *texts):
    """The error's text has all of `texts`."""
    try:
        function()
    except kinds as error:
        for text in texts:
            assert text in str(error), (text, str(error))
        return error
    raise AssertionError(f"no {kinds}")


def case_sum_of_all_types():
    for dtype in FLOATS + INTEGERS:
        mine = values(hvd.rank(), dtype)
        summed = hvd.allreduce(mine, op=hvd.Sum)
        expect(summed, everywhere(dtype).sum(0), dtype)
        expect(mine, values(hvd.rank(), dtype), "the input changed")


def case_reductions():
    for op, reduce in ((hvd.Min, lambda t: t.amin(0)), (hvd.Max, lambda t: t.amax(0)),
                       (hvd.Product, lambda t: t.prod(0))):
        for dtype in (torch.float32, torch.int64):
            expect(hvd.allreduce(values(hvd.rank(), dtype), op=op), reduce(everywhere(dtype)), op)


def case_average_of_integers_goes_towards_zero():
    mine = torch.tensor([hvd.rank(), -hvd.rank(), 7], dtype=torch.int32)
    total = sum(range(hvd.size()))
    wanted = torch.tensor([total // hvd.size(), -(total // hvd.size()), 7])
    expect(hvd.allreduce(mine), wanted)


def case_older_average():
    mine = torch.full((2,), float(hvd.rank()))
    expect(hvd.allreduce(mine, average=False), torch.full((2,), float(sum(range(hvd.size())))))
    raises(ValueError, lambda: hvd.allreduce(mine, average=True, op=hvd.Sum))


def case_in_place_and_scalars():
    mine = torch.tensor(float(hvd.rank() + 1))
    result = hvd.allreduce_(mine, op=hvd.Sum)
    assert result is mine
    expect(mine, torch.tensor(float(sum(range(1, hvd.size() + 1)))))


def case_factors():
    for dtype in (torch.float32, torch.float64):
        result = hvd.allreduce(values(hvd.rank(), dtype), op=hvd.Sum, prescale_factor=0.5,
                               postscale_factor=4.0)
        expect(result, everywhere(dtype).sum(0) * 2, dtype)
    mine = torch.tensor([5, 7], dtype=torch.int64)
    expect(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5),
           torch.tensor([2, 3]) * hvd.size(), "integers lose what is behind the point")
    expect(mine, torch.tensor([5, 7]), "the input changed")
    expect(hvd.allreduce(torch.tensor([6]), postscale_factor=1.5), torch.tensor([9]))


def case_async_in_flight():
    handles = [hvd.allreduce_async(values(hvd.rank(), torch.float32, seed=at), op=hvd.Sum,
                                   name=f"flight.{at}") for at in range(50)]
    for at, handle in reversed(list(enumerate(handles))):
        expect(hvd.synchronize(handle), everywhere(torch.float32, seed=at).sum(0))
    assert hvd.synchronize(handles[0]) is None
    raises(ValueError, lambda: hvd.poll(handles[0]))


def case_poll():
    handle = hvd.allreduce_async(torch.ones(1000))
    hvd.barrier()
    while not hvd.poll(handle):
        pass
    expect(hvd.synchronize(handle), torch.ones(1000))


def case_a_name_twice():
    first = hvd.allreduce_async(torch.ones(3), name="twice")
    raises(ValueError, lambda: hvd.allreduce_async(torch.ones(3), name="twice"), "twice")
    expect(hvd.synchronize(first), torch.ones(3))
    expect(hvd.allreduce(torch.ones(3), name="twice"), torch.ones(3))


def case_grouped_allreduce():
    shapes = [(17,), (4, 4), (2, 3, 5), (0, 2)]
    mine = [values(hvd.rank(), torch.float32, shape, at) for at, shape in enumerate(shapes)]
    for at, result in enumerate(hvd.grouped_allreduce(mine, op=hvd.Sum)):
        expect(result, everywhere(torch.float32, shapes[at], at).sum(0))
    mixed = [mine[0].clone(), values(hvd.rank(), torch.int32)]
    results = hvd.grouped_allreduce_(mixed, op=hvd.Sum, name="mixed")
    assert results[0] is mixed[0] and results[1] is mixed[1]
    expect(mixed[1], everywhere(torch.int32).sum(0))
    raises(ValueError, lambda: hvd.grouped_allreduce([]))


def case_compression():
    for compression, dtype in ((hvd.Compression.fp16, torch.float16),
                               (hvd.Compression.bf16, torch.bfloat16)):
        sent, context = compression.compress(torch.ones(3))
        assert sent.dtype == dtype and compression.decompress(sent, context).dtype == torch.float32
        result = hvd.allreduce(torch.full((4,), 1.5), compression=compression, op=hvd.Sum)
        assert result.dtype == torch.float32
        expect(result, torch.full((4,), 1.5 * hvd.size()))
        whole = torch.ones(2, dtype=torch.int32)
        assert compression.compress(whole)[0].dtype == torch.int32


def case_allgather():
    for dtype in FLOATS + INTEGERS + [torch.bool, torch.int16, torch.complex64]:
        mine = torch.full((hvd.rank() + 1, 2, 3), hvd.rank() % 2).to(dtype)
        wanted = torch.cat([torch.full((rank + 1, 2, 3), rank % 2) for rank in range(hvd.size())])
        gathered = hvd.allgather(mine)
        assert gathered.dtype == dtype
        assert torch.equal(gathered, wanted.to(dtype)), dtype
    empty = hvd.allgather(torch.ones((1 if hvd.rank() == 0 else 0, 2)))
    expect(empty, torch.ones((1, 2)))
    both = hvd.grouped_allgather([torch.full((1,), hvd.rank()), torch.full((2,), hvd.rank())])
    expect(both[1], torch.arange(hvd.size()).repeat_interleave(2))
    raises(ValueError, lambda: hvd.allgather(torch.tensor(1)))


def case_order_behind_an_allgather():
    """What is given while the all-gather still asks for lengths keeps its place behind it."""
    handles = []
    for at in range(20):
        handles.append(hvd.allgather_async(torch.full((hvd.rank() + 1,), at)))
        handles.append(hvd.allreduce_async(torch.full((3,), float(at)), op=hvd.Sum))
        handles.append(hvd.broadcast_async(torch.full((2,), hvd.rank() + at), 0))
    for at in range(20):
        expect(hvd.synchronize(handles[3 * at]), torch.full((sum(range(1, hvd.size() + 1)),), at))
        expect(hvd.synchronize(handles[3 * at + 1]), torch.full((3,), at * hvd.size()))
        expect(hvd.synchronize(handles[3 * at + 2]), torch.full((2,), at))


def case_broadcast():
    for root in range(hvd.size()):
        for dtype in (torch.float32, torch.bool, torch.int16, torch.bfloat16):
            mine = values(hvd.rank(), dtype)
            expect(hvd.broadcast(mine, root), values(root, dtype))
            expect(mine, values(hvd.rank(), dtype), "the input changed")
            hvd.broadcast_(mine, root)
            expect(mine, values(root, dtype))
    raises(ValueError, lambda: hvd.broadcast(torch.ones(1), hvd.size()), "not in")


def case_alltoall():
    size, rank = hvd.size(), hvd.rank()
    # Rank r sends r + 1 rows of its own number to each.
    mine = torch.full(((rank + 1) * size, 2), rank)
    splits = torch.tensor([rank + 1] * size, dtype=torch.int32)
    received, counts = hvd.alltoall(mine, splits)
    expect(received, torch.cat([torch.full((other + 1, 2), other) for other in range(size)]))
    assert counts.dtype == torch.int32
    expect(counts, torch.arange(1, size + 1))
    expect(hvd.alltoall(torch.arange(size) + 10 * rank),
           torch.tensor([rank + 10 * other for other in range(size)]))
    nothing, counts = hvd.alltoall(torch.ones((0, 3)), [0] * size)
    assert nothing.shape == (0, 3) and counts.tolist() == [0] * size
    raises(ValueError, lambda: hvd.alltoall(torch.ones(2), [1] * (size + 1)), "one split for each")
    raises(ValueError, lambda: hvd.alltoall(torch.ones(size), [2] * size), "more than")
    raises(ValueError, lambda: hvd.alltoall(torch.ones(size), torch.ones(size)), "32-bit")
    if size > 1:
        raises(ValueError, lambda: hvd.alltoall(torch.ones(size + 1)), "divided")


def case_reducescatter():
    size, rank = hvd.size(), hvd.rank()
    for dtype in (torch.float32, torch.int64):
        mine = values(rank, dtype, (2 * size + 1, 3))
        whole = everywhere(dtype, (2 * size + 1, 3)).sum(0)
        begin = 0 if rank == 0 else 3 + 2 * (rank - 1)
        share = whole[begin:begin + (3 if rank == 0 else 2)]
        expect(hvd.reducescatter(mine, op=hvd.Sum), share)
        expect(hvd.reducescatter(mine, op=hvd.Sum, prescale_factor=2.0), share * 2)
        both = hvd.grouped_reducescatter([mine, mine], op=hvd.Sum)
        expect(both[1], share)
    expect(hvd.reducescatter(torch.full((size,), float(rank))),
           torch.full((1,), sum(range(size)) / size))


def case_sparse():
    indices = torch.tensor([[hvd.rank(), 3]])
    mine = torch.sparse_coo_tensor(indices, torch.full((2, 2), float(hvd.rank() + 1)), (5, 2))
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
        result = hvd.synchronize(hvd.sparse_allreduce_async(mine, f"sparse.{divisor}", op))
        dense = torch.zeros(5, 2)
        for rank in range(hvd.size()):
            dense[rank] += rank + 1
            dense[3] += rank + 1
        assert torch.allclose(result.to_dense(), dense / divisor)
    raises(ValueError, lambda: hvd.sparse_allreduce_async(mine, "max", hvd.Max))


def case_wrong_arguments():
    crossed = torch.ones(3, 4).t()
    for function in (hvd.allreduce, hvd.allgather, hvd.reducescatter, hvd.alltoall,
                     lambda t: hvd.broadcast(t, 0)):
        raises(ValueError, lambda: function(crossed), "contiguous", "(4, 3)")
    raises(ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.int16)), "int16")
    raises(ValueError, lambda: hvd.allreduce(torch.ones(2), op=17))
    raises(NotImplementedError, lambda: hvd.allreduce(torch.ones(2), op=hvd.Adasum), "Average")
    raises(NotImplementedError, hvd.join, "DistributedSampler")
    raises(NotImplementedError, lambda: hvd.start_timeline("x"), "profiler")
    raises(NotImplementedError, lambda: hvd.elastic.run(print), "checkpoint")
    raises(NotImplementedError, lambda: hvd.elastic.TorchState(), "TorchState", "checkpoint")


def case_gradients():
    """Horovod's: the average of gradients for an average, their sum for a sum."""
    size, rank = hvd.size(), hvd.rank()
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        x = torch.ones(3, requires_grad=True)
        hvd.allreduce(x, op=op).sum().backward()
        expect(x.grad, torch.full((3,), float(factor)))
    x, y = torch.ones(2, requires_grad=True), torch.ones(4, requires_grad=True)
    first, second = hvd.grouped_allreduce([x, y], op=hvd.Sum)
    (first.sum() + 2 * second.sum()).backward()
    expect(y.grad, torch.full((4,), 2.0 * size))
    x = torch.ones(rank + 1, 2, requires_grad=True)
    gathered = hvd.allgather(x)
    (gathered * torch.arange(len(gathered)).view(-1, 1)).sum().backward()
    begin = sum(range(1, rank + 1))
    expect(x.grad, torch.arange(begin, begin + rank + 1.0).view(-1, 1).expand(-1, 2))
    x = torch.ones(2, requires_grad=True)
    hvd.broadcast(x, 0).sum().backward()
    expect(x.grad, torch.full((2,), 1.0 if rank == 0 else 0.0))
    x = torch.ones(size * 2, requires_grad=True)
    received, _ = hvd.alltoall(x, [1] * size)
    (received * (rank + 1)).sum().backward()
    expect(x.grad, torch.tensor([*range(1, size + 1), *[0] * size]).float())
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        x = torch.ones(size * 2, requires_grad=True)
        (hvd.reducescatter(x, op=op) * (rank + 1)).sum().backward()
        expect(x.grad, torch.arange(1.0, size + 1).repeat_interleave(2) * factor)


def case_process_sets():
    size, rank = hvd.size(), hvd.rank()
    assert hvd.global_process_set.size() == size and hvd.global_process_set.included()
    raises(ValueError, lambda: hvd.add_process_set(list(range(size))), "duplicate")
    raises(ValueError, lambda: hvd.add_process_set([size]))
    raises(ValueError, lambda: hvd.ProcessSet(["a"]))
    odd = hvd.ProcessSet([other for other in range(size) if other % 2])
    raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=odd), "add_process_set")
    if size == 1:
        return
    hvd.add_process_set(odd)
    even = hvd.add_process_set([other for other in range(size) if not other % 2]) if size > 2 else None
    mine = odd if rank % 2 else even
    if mine is not None:
        others = mine.ranks
        assert mine.included() and mine.size() == len(others)
        assert mine.rank() == others.index(rank)
        expect(hvd.allreduce(torch.tensor([rank]), op=hvd.Sum, process_set=mine),
               torch.tensor([sum(others)]))
        expect(hvd.allgather(torch.tensor([rank]), process_set=mine), torch.tensor(others))
        expect(hvd.broadcast(torch.tensor([rank]), others[-1], process_set=mine),
               torch.tensor([others[-1]]))
        hvd.barrier(mine)
    if rank % 2 == 0:
        raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=odd), "not in")
    hvd.allreduce(torch.ones(1))
    assert hvd.remove_process_set(odd) and odd.process_set_id is None
    assert not hvd.remove_process_set(odd)
    assert not hvd.remove_process_set(hvd.global_process_set)


def case_objects():
    thing = {"a": [1, 2], "rank": hvd.rank()}
    root = hvd.size() - 1
    assert hvd.broadcast_object(thing, root) == {"a": [1, 2], "rank": root}
    assert hvd.broadcast_object_fn(0)(hvd.rank()) == 0
    gathered = hvd.allgather_object("x" * hvd.rank())
    assert gathered == ["x" * rank for rank in range(hvd.size())]


def case_differing_shapes_are_an_error_everywhere():
    """Of an all-gather and an all-to-all: the group lives on."""
    if hvd.size() == 1:
        return
    shape = (2, 3 + hvd.rank() % 2)
    raises(trainyard.Mismatch, lambda: hvd.allgather(torch.ones(shape)), "rank 1", "float32[*, 4]")
    dtype = torch.int16 if hvd.rank() == 1 else torch.float32
    raises(trainyard.Mismatch, lambda: hvd.allgather(torch.ones(2, dtype=dtype), name="t"),
           "allgather of t", "int16")
    raises(trainyard.Mismatch, lambda: hvd.alltoall(torch.ones(hvd.size(), shape[1])), "rank 1")
    expect(hvd.allreduce(torch.ones(2)), torch.ones(2))


def case_start_and_end():
    hvd.init()
    before = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_size())
    hvd.shutdown()
    assert not hvd.is_initialized()
    raises((trainyard.NotInitialized, ValueError), lambda: hvd.allreduce(torch.ones(1)))
    hvd.init(process_sets="dynamic")
    assert hvd.is_initialized() and hvd.is_homogeneous()
    assert before == (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_size())
    expect(hvd.allreduce(torch.ones(2)), torch.ones(2))


CASES = {name[5:]: function for name, function in list(globals().items())
         if name.startswith("case_")}
