"""Cases of process_group_test.py: mistakes and faults."""
import datetime
import os
import signal
import time

import torch
import torch.distributed as dist

import trainyard as ty
from process_group_rank import LIMIT, expect, start
from trainyard.torch._c10d_store import form_group


def case_ddp_killed():
    """DDP when a rank dies: backward raises and names it."""
    start()
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.ones(1, 4)).sum().backward()
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(1000):
            model(torch.ones(1, 4)).sum().backward()
    except RuntimeError as error:
        assert "rank 1" in str(error), error
        return
    raise AssertionError("backward did not fail")


def case_killed():
    start()
    rank = dist.get_rank()
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    try:
        while True:
            dist.all_reduce(torch.ones(1000))
    except ty.RankLost as error:
        assert error.rank == 1 and time.monotonic() - begun < 5, error
    try:
        dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
        raise AssertionError("the future knows nothing of it")
    except RuntimeError as error:
        assert "RankLost" in str(error) and "rank 1" in str(error), error


def case_timeout():
    start(datetime.timedelta(seconds=2))
    if dist.get_rank() == 1:
        time.sleep(8)
        os._exit(0)
    try:
        dist.all_reduce(torch.ones(4))
    except ty.RankLost as error:
        assert error.rank == 1, error
        os._exit(0)
    raise AssertionError("nobody was blamed")


def case_left():
    """What has not been done when a group is left raises, and does not look as if it were."""
    start()
    if dist.get_rank() == 1:
        expect(ty.RankLost, lambda: dist.recv(torch.ones(1), 0), "rank 0")
        return
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(3)]
    works.append(dist.irecv(torch.ones(1), 1))
    future = works[1].get_future()
    dist.destroy_process_group()
    for work in works:
        expect((ty.NotInitialized, ty.Cancelled), work.wait)
        assert work.is_completed() and not work.is_success()
    expect(RuntimeError, future.wait, "NotInitialized")
    expect(RuntimeError, works[2].get_future().wait, "NotInitialized")


def case_monitored_barrier():
    start()
    group, rank = dist.group.WORLD, dist.get_rank()
    group.monitored_barrier(LIMIT)
    group.monitored_barrier(wait_all_ranks=True)
    short = datetime.timedelta(seconds=0.5)
    texts = ("Rank 1 failed to pass monitoredBarrier in 500 ms", "Rank 1 successfully reached monitoredBarrier",
             "it lacked rank 1")
    if rank == 1:
        time.sleep(2)
    expect(ty.TimedOut, lambda: group.monitored_barrier(short if rank == 0 else LIMIT), texts[rank])
    if rank != 0:
        time.sleep(2)
    expect(ty.TimedOut, lambda: group.monitored_barrier(short if rank == 0 else LIMIT, wait_all_ranks=True),
           "it lacked rank 1" if rank else "Ranks 1, 2 failed to pass monitoredBarrier in 500 ms")
    expect(ty.TimedOut, lambda: group.monitored_barrier(datetime.timedelta(0) if rank == 0 else LIMIT),
           "rank 0" if rank else "Rank 0 timed out in monitoredBarrier")
    group.monitored_barrier(LIMIT)
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    expect((ty.RankLost, ty.TimedOut), lambda: group.monitored_barrier(LIMIT),
           "lacked rank 2" if rank else "Rank 2 failed to pass monitoredBarrier")


def case_mistakes():
    for rank in (-1, 2):
        expect(ty.InvalidArgument, lambda: form_group(dist.HashStore(), rank, 2, LIMIT, {}), f"rank {rank} of 2")
    start()
    size = dist.get_world_size()
    group = dist.group.WORLD
    for kind, function, words in (
            (TypeError, lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)), ["torch.int16", "float32"]),
            (TypeError, lambda: group.allreduce([torch.ones(2, dtype=torch.complex64)], dist.ReduceOp.MAX),
             ["complex64"]),
            (RuntimeError, lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), []),
            (RuntimeError, lambda: dist.all_reduce(torch.ones(2, device="meta")), ["meta"]),
            (RuntimeError, lambda: dist.broadcast(torch.ones(2).to_sparse(), 0), ["sparse"]),
            (RuntimeError, lambda: dist.broadcast(torch.ones(2), size), []),
            (RuntimeError, lambda: dist.all_gather([torch.ones(2)] * (size + 1), torch.ones(2)), [str(size)]),
            (RuntimeError, lambda: dist.all_gather([torch.ones(3)] * size, torch.ones(2)), ["size"]),
            ((RuntimeError, ValueError), lambda: dist.all_gather([torch.ones(2).double()] * size, torch.ones(2)),
             ["type"]),
            (RuntimeError, lambda: dist._all_gather_base(torch.ones(size * 2 + 1), torch.ones(2)), ["world_size"]),
            (RuntimeError, lambda: dist._reduce_scatter_base(torch.ones(2), torch.ones(size * 2 + 1)), ["size"]),
            (RuntimeError, lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [1], [1]), ["splits"]),
            (RuntimeError, lambda: dist.all_to_all_single(torch.ones(size * 2 + 1), torch.ones(size * 2 + 1)),
             ["dim 0"])):
        expect(kind, function, *words)
    dist.barrier()
    mine = torch.ones(10 + dist.get_rank())
    expect(ty.Mismatch, lambda: dist.all_reduce(mine), "10", "11")
    dist.destroy_process_group()
