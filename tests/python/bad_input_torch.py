"""Rows of bad_input_torch_test.py: Horovod's names and the backend of torch.distributed."""
import datetime
import os
import signal

import torch
import torch.distributed as dist

import trainyard as ty
import trainyard.torch as hvd
from bad_input import LIMIT_SECONDS, Batch, Ends, Row, Told, kept, say

ones = torch.ones


def short():
    return ones(2, dtype=torch.int16)


def crossed():
    """Not contiguous."""
    return ones(3, 2).t()


def linear():
    return torch.nn.Linear(3, 2)


def optimizer_of(model, **arguments):
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), **arguments)


def twice(name):
    """The same name before the first is synchronized."""
    first = hvd.allreduce_async(ones(2), name=name)
    try:
        hvd.allreduce_async(ones(2), name=name)
    finally:
        hvd.synchronize(first)


def differing(make):
    """By rank."""
    return lambda _: make(hvd.rank())


def in_a_child(use):
    def misuse(_):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                use()
            except ty.ForkedProcess:
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0

    return misuse


NO_GROUP = [
    kept("rank before init", lambda _: hvd.rank(), ty.NotInitialized, "init() was not called"),
    kept("allreduce before init", lambda _: hvd.allreduce(ones(2)), ty.NotInitialized, "init() was not called"),
    kept("shutdown before init", lambda _: hvd.shutdown()),
    kept("init of some ranks by comm", lambda _: alone(comm=[3]), NotImplementedError, "ProcessSet"),
    kept("init of process sets by a word", lambda _: alone(process_sets="static"), ValueError, "'static'"),
    kept("not synchronized before shutdown", lambda _: left_behind(), ty.NotInitialized, "allreduce.w", "shutdown()"),
    kept("allreduce after shutdown", lambda _: (alone(), hvd.shutdown(), hvd.allreduce(ones(2))), ty.NotInitialized),
]


def alone(**arguments):
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
    hvd.init(**arguments)


def left_behind():
    """What was asked for is not dropped without a word."""
    alone()
    handle = hvd.allreduce_async(ones(2), name="w")
    hvd.shutdown()
    assert hvd.poll(handle)
    hvd.synchronize(handle)


HOROVOD = [
    kept("hvd: a type that is not summed", lambda _: hvd.allreduce(short(), name="w"),
         ty.InvalidArgument, "torch.int16", "allreduce of 'w'"),
    kept("hvd: not contiguous", lambda _: hvd.allreduce_(crossed(), name="w"),
         ty.InvalidArgument, "contiguous", "allreduce of 'w'", "(2, 3)", "(1, 2)"),
    kept("hvd: one of several not contiguous", lambda _: hvd.grouped_allreduce([ones(2), crossed()], name="w"),
         ty.InvalidArgument, "contiguous", "'w[1]'"),
    kept("hvd: gathered and not contiguous", lambda _: hvd.allgather(crossed(), name="w"),
         ty.InvalidArgument, "contiguous", "allgather of 'w'"),
    kept("hvd: broadcast and not contiguous", lambda _: hvd.broadcast_(crossed(), 0, name="w"),
         ty.InvalidArgument, "contiguous", "broadcast of 'w'"),
    kept("hvd: a sparse tensor", lambda _: hvd.broadcast(ones(2).to_sparse(), 0), ty.InvalidArgument, "dense"),
    kept("hvd: no tensor", lambda _: hvd.broadcast([1.0], 0), ty.InvalidArgument, "torch.Tensor", "list"),
    kept("hvd: a scalar is gathered", lambda _: hvd.allgather(torch.tensor(1.0)),
         ty.InvalidArgument, "allgather", "scalar"),
    kept("hvd: a reduction that there is not", lambda _: hvd.allreduce(ones(2), op=99),
         ty.InvalidArgument, "99", "Sum"),
    kept("hvd: Adasum", lambda _: hvd.allreduce(ones(2), op=hvd.Adasum), NotImplementedError, "Adasum", "Average"),
    kept("hvd: op and average", lambda _: hvd.allreduce(ones(2), average=True, op=hvd.Sum),
         ty.InvalidArgument, "op", "average"),
    kept("hvd: a root that there is not", lambda _: hvd.broadcast(ones(2), 2, name="w"), ty.InvalidArgument, "rank 2"),
    kept("hvd: a root of another set", lambda _: hvd.broadcast(ones(2), 0, process_set=hvd.ProcessSet([0])),
         ty.InvalidArgument, "add_process_set"),
    kept("hvd: a name twice", lambda _: twice("w"), ty.InvalidArgument, "'w'", "twice"),
    kept("hvd: a handle that is none", lambda _: hvd.poll(-1), ty.InvalidArgument, "-1", "handle"),
    kept("hvd: nothing grouped", lambda _: hvd.grouped_allreduce([]), ty.InvalidArgument, "at least one"),
    kept("hvd: splits of another sum", lambda _: hvd.alltoall(ones(2), [2, 2]), ty.InvalidArgument, "[2, 2]", "2"),
    kept("hvd: splits below 0", lambda _: hvd.alltoall(ones(2), [-1, 1]), ty.InvalidArgument, "[-1, 1]"),
    kept("hvd: too few splits", lambda _: hvd.alltoall(ones(2), [2]), ty.InvalidArgument, "2 ranks", "[2]"),
    kept("hvd: what does not divide", lambda _: hvd.alltoall(ones(3)), ty.InvalidArgument, "3", "2 ranks"),
    kept("hvd: shapes that differ", differing(lambda rank: hvd.allgather(ones(2, 3 + rank), name="w")),
         ty.Mismatch, "allgather of w", "rank 1", "float32[*, 4]", "rank 0", "float32[*, 3]", rank=1),
    kept("hvd: types that differ", differing(lambda rank: hvd.allgather(short() if rank else ones(2), name="w")),
         ty.Mismatch, "allgather of w", "rank 1", "int16", "float32", rank=1),
    kept("hvd: parameters whose sizes differ", differing(
        lambda rank: hvd.broadcast_parameters({"bias": ones(2), "weight": ones(2, 3 + rank)}, 0)),
         ty.Mismatch, "weight", "[2, 3]", "[2, 4]", "rank 0", "rank 1"),
    kept("hvd: parameters of other names", differing(
        lambda rank: hvd.broadcast_parameters({f"weight{rank}": ones(2)}, 0)), ty.Mismatch, "weight0", "weight1"),
    kept("hvd: parameters that are none", lambda _: hvd.broadcast_parameters(ones(2), 0), ty.InvalidArgument, "Tensor"),
    kept("hvd: a number among parameters", lambda _: hvd.broadcast_parameters({"step": 3}, 0),
         ty.InvalidArgument, "step", "int"),
    kept("hvd: a set of ranks that there are not", lambda _: hvd.add_process_set([0, 2]), ty.InvalidArgument, "0 to 1"),
    kept("hvd: a set of all ranks", lambda _: hvd.add_process_set([0, 1]), ty.InvalidArgument, "duplicate"),
    kept("hvd: models that differ", differing(
        lambda rank: optimizer_of(torch.nn.Linear(3, 2 + rank))), ty.Mismatch, "rank 0", "rank 1"),
    kept("hvd: join", lambda _: hvd.join(), NotImplementedError, "DistributedSampler"),
    kept("hvd: in a forked child", in_a_child(lambda: hvd.allreduce(ones(2)))),
]

DISTRIBUTED = [
    kept("dist: a type that is not summed", lambda _: dist.all_reduce(short()), ty.InvalidArgument, "torch.int16"),
    kept("dist: another device", lambda _: dist.all_reduce(ones(2, device="meta")), ty.InvalidArgument, "meta"),
    kept("dist: bits of floats", lambda _: dist.all_reduce(ones(2), dist.ReduceOp.BAND), RuntimeError, "float32"),
    kept("dist: a sparse tensor", lambda _: dist.broadcast(ones(2).to_sparse(), 0), ty.InvalidArgument, "sparse"),
    kept("dist: a root that there is not", lambda _: dist.broadcast(ones(2), 2), RuntimeError, "2"),
    kept("dist: too many outputs", lambda _: dist.all_gather([ones(2)] * 3, ones(2)), RuntimeError, "3", "2 ranks"),
    kept("dist: an output of another size", lambda _: dist.all_gather([ones(3), ones(3)], ones(2)),
         RuntimeError, "2 elements", "3"),
    kept("dist: too short for all ranks", lambda _: dist._all_gather_base(ones(3), ones(2)),
         RuntimeError, "world_size"),
    kept("dist: splits of another sum", lambda _: dist.all_to_all_single(ones(2), ones(2), [1, 1], [2, 1]),
         RuntimeError, "[2, 1]", "2 rows"),
    kept("dist: send to nobody", lambda _: dist.send(ones(2), 2), RuntimeError),
    kept("dist: a tag below 0", lambda _: dist.send(ones(2), 1 - dist.get_rank(), tag=-1), RuntimeError, "tag"),
    kept("dist: in a forked child", in_a_child(lambda: dist.all_reduce(ones(2)))),
]


def begin_horovod():
    hvd.init()
    return None, hvd.barrier


def begin_distributed():
    dist.init_process_group("trainyard", timeout=datetime.timedelta(seconds=LIMIT_SECONDS))
    return None, dist.barrier


BATCHES = [Batch("no group", 1, NO_GROUP, lambda: (None, hvd.shutdown)),
           Batch("Horovod's names", 2, HOROVOD, begin_horovod),
           Batch("torch.distributed", 2, DISTRIBUTED, begin_distributed)]


# ---- What ends a group --------------------------------------------------------------------------


def with_horovod(operation):
    def misuse():
        hvd.init()
        hvd.barrier()
        say("ready")
        operation()

    return misuse


def with_distributed(operation):
    def misuse():
        begin_distributed()
        dist.barrier()
        say("ready")
        operation()

    return misuse


def train():
    model = linear()
    optimizer = optimizer_of(model, named_parameters=model.named_parameters())
    while True:
        optimizer.zero_grad()
        model(ones(4, 3)).sum().backward()
        optimizer.step()
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def fails_on_one():
    """What cannot be sent is found out on the root, before the others are told anything."""
    hvd.broadcast_object((each for each in ()) if hvd.rank() == 1 else None, 1)


ROWS = [
    Row("hvd: sizes that differ", 2, with_horovod(lambda: hvd.allreduce(ones(4 + hvd.rank()), name="w")),
        Told(ty.Mismatch, ("'w'", "rank", " 4 ", " 5 "))),
    Row("hvd: killed in training", 2, with_horovod(train),
        [Told(hvd.HorovodInternalError, ("rank 1",), 1), Ends(-signal.SIGKILL)]),
    Row("hvd: an object that cannot be sent", 2, with_horovod(fails_on_one),
        [Told(ty.RankLost, ("rank 1",), 1), Told(TypeError, ("pickle",))]),
    Row("dist: sizes that differ", 2, with_distributed(lambda: dist.all_reduce(ones(4 + dist.get_rank()))),
        Told(ty.Mismatch, ("rank", " 4 ", " 5 "))),
]
