"""Cases of group_test.py: mistakes and faults."""
import array
import functools
import os
import signal
import sys
import time
import traceback

import trainyard as ty
from group_rank import LIMIT, expect, join

# How soon survivors are to hear of a rank that has died.
SOON = 5.0
# How long a rank may be silent where one is for ever. The others must not be for as long, on a busy machine neither.
SILENT = 5.0


def case_size_mismatch():
    group = join()
    mine = array.array("f", [0] * (100 if group.rank == 0 else 101))
    expect(ty.Mismatch, lambda: group.all_reduce(mine, name="w"), "100", "101")
    expect(ty.TrainyardError, group.barrier)
    ty.shutdown()


def case_other_operation():
    group = join()
    if group.rank == 0:
        expect(ty.Mismatch, lambda: group.all_reduce(array.array("f", [0] * 4)), "broadcast")
    else:
        expect(ty.Mismatch, lambda: group.broadcast(array.array("f", [0] * 4)), "all_reduce")
    ty.shutdown()


def case_arguments():
    """Mistakes of one rank that are found before anything is sent: the group lives on."""
    with join() as group:
        floats = array.array("f", [0] * 4)
        for function in (
                lambda: group.all_reduce([1.0]), lambda: group.all_reduce(bytes(4)),
                lambda: group.all_reduce(memoryview(floats)[::2]), lambda: group.all_reduce(floats, ty.BIT_AND),
                lambda: group.all_reduce(array.array("i", [1]), prescale=0.5), lambda: group.all_reduce(floats, 99),
                lambda: group.broadcast(floats, group.size), lambda: group.broadcast(floats, -1),
                lambda: group.all_gather(floats, array.array("f", [0] * 3)),
                lambda: group.all_gather(floats, array.array("d", [0] * 4 * group.size)),
                lambda: group.all_gather(floats, floats, counts=[1]),
                lambda: group.reduce_scatter(floats, array.array("f", [0] * 99)),
                lambda: group.all_to_all(floats, array.array("f", [0]), send_counts=[4] * group.size),
                lambda: group.send(floats, group.rank), lambda: group.send(floats, group.size),
                lambda: group.send(floats, 0, -1), lambda: group.receive(bytes(1), 0),
                lambda: group.receive(floats, group.size), lambda: ty.init(rank=0, size=99)):
            expect(ty.InvalidArgument, function)
        group.barrier()
        assert ty.init() is group


def case_killed():
    """The last rank kills itself; the others hear it soon, name it, and form a group without it."""
    group = join()
    group.barrier()
    if group.rank == group.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    error = expect(ty.RankLost, lambda: forever(group), f"rank {group.size - 1}")
    assert error.rank == group.size - 1 and time.monotonic() - begun < SOON, (error.rank, error)
    assert expect(ty.RankLost, group.barrier).rank == group.size - 1
    survivors, rank = group.size - 1, group.rank
    ty.shutdown()
    again = join(rank=rank, size=survivors, address=f"127.0.0.1:{os.environ['MASTER_PORT']}")
    again.barrier()
    ty.shutdown()


def forever(group):
    while True:
        group.all_reduce(array.array("f", [1.0] * 1000))


def case_stopped():
    """Rank 1 hangs; the others wait as long as the group allows, and name it."""
    group = join(timeout=SILENT)
    group.barrier()
    if group.rank == 1:
        print("ready", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    error = expect(ty.RankLost, lambda: forever(group), "rank 1")
    assert error.rank == 1, error
    assert isinstance(error, ty.TimedOut), error
    os._exit(0)


def case_gives_up():
    """An exception on one rank only: it tells the others, who name it and why."""
    group = join()
    if group.rank == 1:
        try:
            raise ValueError("no such file")
        except ValueError as error:
            group.abort(str(error))
        ty.shutdown()
        return
    error = expect(ty.RankLost, lambda: forever(group), "no such file")
    assert error.rank == 1, error


def case_exits():
    """An exception that nobody catches ends one rank."""
    group = join()
    if group.rank == 1:
        sys.excepthook = lambda *_: os._exit(0)
        raise ValueError("on one rank only")
    assert expect(ty.RankLost, lambda: forever(group)).rank == 1


def case_interrupted():
    """Ctrl-C while a rank waits for one that does not come: heard on the thread that carries the operation out, and
    in a wait behind one that another thread carries out."""
    group = join(timeout=LIMIT * 2)
    group.barrier()
    if group.rank == 1:
        print("ready", flush=True)
        expect(ty.RankLost, lambda: group.receive(bytearray(1), 0))
        return
    mine = array.array("f", [0] * 10)
    if os.environ["WAIT"] == "direct":
        wait = functools.partial(group.all_reduce, mine)
    elif os.environ["WAIT"] == "handle":
        wait = group.all_reduce(mine, async_=True).wait
    else:
        wait = functools.partial(group.receive, bytearray(1), 1)

    def say_and_wait():
        # In here, since the Ctrl-C may come as soon as this is said.
        print("ready", flush=True)
        wait()

    begun = time.monotonic()
    expect(KeyboardInterrupt, say_and_wait)
    assert time.monotonic() - begun < LIMIT, "heard too late"
    ty.shutdown()


def case_forked():
    group = join()
    work = group.all_reduce(array.array("f", [1.0]), async_=True)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            expect(ty.ForkedProcess, group.barrier)
            expect(ty.ForkedProcess, work.wait)
            expect(ty.ForkedProcess, ty.rank)
            assert not ty.is_initialized()
            ty.shutdown()
            alone = ty.init(rank=0, size=1)
            alone.barrier()
            ty.shutdown()
            del group, work
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    work.wait()
    group.barrier()
    ty.shutdown()


def case_afterwards():
    expect(ty.NotInitialized, ty.rank, "trainyard.init() was not called")
    group = join()
    assert ty.is_initialized() and (ty.rank(), ty.size()) == (group.rank, group.size)
    assert (ty.local_rank(), ty.local_size(), ty.cross_rank(), ty.cross_size()) == (group.rank, group.size, 0, 1)
    ty.shutdown()
    ty.shutdown()
    for function in (ty.rank, ty.size, ty.local_rank, ty.cross_size, group.barrier, group.totals,
                     lambda: group.all_reduce(array.array("f", [1])), lambda: group.split([0])):
        expect(ty.NotInitialized, function)
    join().barrier()  # and once more; left when the program ends


def case_secret():
    kind = ty.TimedOut if os.environ["RANK"] == "0" else ty.Refused
    expect(kind, lambda: join(secret=f"of rank {os.environ['RANK']}", join_timeout=5.0))


def case_alone():
    for name in ("RANK", "WORLD_SIZE"):
        del os.environ[name]
    with ty.init() as group:
        mine = array.array("f", [3.0])
        group.all_reduce(mine, postscale=2.0)
        assert mine[0] == 6.0 and group.size == 1
        expect(ty.InvalidArgument, lambda: group.send(mine, 0))
        group.barrier()
