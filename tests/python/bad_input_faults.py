"""Rows of bad_input_test.py that end a group, or keep one from coming about. Each has processes of its own."""
import array
import os
import signal
import socket
import sys
import time

import trainyard as ty
from bad_input import ANYTHING, Ends, Row, Told, join, say

RANK = int(os.environ.get("RANK", "0"))
# Sizes of which each travels in another way: together in one meeting, in halves, around the ring.
SMALL, MIDDLE, LARGE = 100, 50_000, 2_000_000
# Seconds that a rank may be silent where one is for ever. The others must not be for as long, on a busy machine neither.
SILENT = 5.0
# Seconds that one rank's program may begin after another's.
SKEW = 10.0


def floats(count=4):
    return array.array("f", [1.0]) * count


def lost(rank, *words):
    return Told(ty.RankLost, (f"rank {rank}", *words), rank)


def silent(rank, *words):
    return Told(ty.RankSilent, (f"rank {rank}", *words), rank)


# ---- Ranks that do not do the same --------------------------------------------------------------


def ends(operation, **options):
    """The operation raises on every rank, and whatever follows tells the same."""
    def misuse():
        group = join(**options)
        try:
            operation(group)
        except ty.TrainyardError as error:
            try:
                group.barrier()
            except type(error) as again:
                if str(again) in str(error):
                    raise
            raise AssertionError("the barrier after it did not tell what was wrong") from error

    return misuse


def differences(name, ranks, operation, *words):
    """Two rows: in shared memory, and over TCP."""
    told = Told(ty.Mismatch, words)
    return [Row(f"{name}, in shared memory", ranks, ends(operation), told),
            Row(f"{name}, over TCP", ranks, ends(operation, share_memory=False), told)]


def sizes(group, count, more=1):
    """Rank 1 has more."""
    group.all_reduce(floats(count + (more if group.rank == 1 else 0)), name="w")


DIFFERENCES = [
    *differences("small sizes that differ", 3, lambda g: sizes(g, SMALL), "tensor 'w'", "rank", "100", "101"),
    *differences("middle sizes that differ", 2, lambda g: sizes(g, MIDDLE), "tensor 'w'", "rank", "50000", "50001"),
    *differences("large sizes that differ", 2, lambda g: sizes(g, LARGE), "tensor 'w'", "rank", "2000000", "2000001"),
    *differences("a small and a large size", 2, lambda g: sizes(g, SMALL, LARGE),
                 "tensor 'w'", "rank", "100", "2000100"),
    *differences("an empty array on one rank", 2, lambda g: sizes(g, 0, 4), "tensor 'w'", "rank", " 0 ", " 4 "),
    *differences("types that differ", 2,
                 lambda g: g.all_reduce(floats() if g.rank else array.array("i", [1] * 4), name="w"),
                 "tensor 'w'", "rank", "float32", "int32"),
    *differences("reductions that differ", 2, lambda g: g.all_reduce(floats(), ty.MAX if g.rank else ty.SUM, name="w"),
                 "tensor 'w'", "rank", "max", "sum"),
    *differences("operations that differ", 2,
                 lambda g: g.all_gather(floats(), floats(8)) if g.rank else g.all_reduce(floats(), name="w"),
                 "rank", "all_reduce", "all_gather"),
    *differences("a barrier on one rank", 2, lambda g: g.all_reduce(floats(), name="w") if g.rank else g.barrier(),
                 "rank", "all_reduce", "barrier"),
    # Over TCP a root hears of nobody in a broadcast: what follows tells it.
    *differences("roots that differ", 2, lambda g: (g.broadcast(floats(), g.rank, name="w"), g.barrier()),
                 "rank", "broadcast"),
    *differences("gathered sizes that differ", 2,
                 lambda g: g.all_gather(floats(4 + g.rank), floats(8 + 2 * g.rank), name="w"),
                 "all_gather", "rank", " 8 ", " 10 "),
    *differences("scattered sizes that differ", 2,
                 lambda g: g.reduce_scatter(floats(8 + 2 * g.rank), floats(4 + g.rank), name="w"),
                 "reduce_scatter", "rank", " 8 ", " 10 "),
    *differences("an operation fewer on one rank", 2,
                 lambda g: (g.rank and g.all_reduce(floats(), name="w"), g.all_reduce(floats(8), name="v")),
                 "rank", " 4 ", " 8 "),
]


# ---- Ranks that are gone ------------------------------------------------------------------------


def survive(operation=None, **options):
    """Works with all ranks, of which one is about to go."""
    def misuse():
        group = join(**options)
        group.barrier()
        say("ready")
        while True:
            if operation is not None:
                operation(group)
            else:
                group.all_reduce(floats(1000), name="w")

    return misuse


def by_signal(number, waiting=False):
    """To the rank with number 1, or the only one, when all are at work; `waiting`: when it sleeps."""
    def act(ranks):
        for each in range(len(ranks.processes)):
            ranks.wait_for(each, "ready")
        victim = min(1, len(ranks.processes) - 1)
        if waiting:
            ranks.wait_until_asleep(victim)
        begun = time.monotonic()
        ranks.processes[victim].send_signal(number)
        return begun

    return act


def fails(group):
    if group.rank == 1:
        raise ValueError("no such file")
    group.all_reduce(floats())


def fails_and_tells(group):
    if group.rank == 1:
        group.abort("no such file")
    group.all_reduce(floats())


def uncaught():
    group = join()
    group.barrier()
    if group.rank == 1:
        sys.exit("on one rank only")
    while True:
        group.all_reduce(floats())


def leaves(group):
    if group.rank == 1:
        ty.shutdown()
        raise ValueError("it has left")
    group.all_reduce(floats())


def waits(group):
    """For a message that nobody sends."""
    group.receive(floats(), (group.rank + 1) % group.size, name="w")


def hangs(operation):
    """Rank 1 does something else for ever."""
    def misuse(group):
        if group.rank == 1:
            signal.pause()
        operation(group)

    return misuse


def without_rank_2(group):
    """Rank 2 waits for something else, so that the others wait."""
    if group.rank == 2:
        group.receive(floats(), 1)
    group.all_reduce(floats())


def does_not_come_in_time():
    """The caller's own limit: the operation goes on, and is well when the other one comes."""
    group = join()
    if group.rank == 1:
        group.receive(bytearray(1), 0)
        group.barrier()
        return
    work = group.barrier(async_=True)
    try:
        work.wait(0.1)
    finally:
        group.send(bytes(1), 1)
        work.wait()


def message_does_not_come_in_time():
    """As before: it comes once this rank has given up waiting."""
    group = join()
    if group.rank == 1:
        group.receive(bytearray(1), 0)
        group.send(floats(), 0)
        return
    work = group.receive(floats(), 1, name="w", async_=True)
    try:
        work.wait(0.1)
    finally:
        group.send(bytes(1), 1)
        work.wait()


def in_a_child():
    """A fork in the middle of a group: in the child nothing works, by an error, and it ends like any program."""
    group = join()
    work = group.all_reduce(floats(), async_=True)
    child = os.fork()
    if child == 0:
        for use in (group.barrier, work.wait, ty.rank, ty.group, lambda: group.split([0])):
            try:
                use()
            except ty.ForkedProcess as error:
                assert "child" in str(error), error
            else:
                os._exit(1)
        sys.exit(7)
    work.wait()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    group.barrier()


def meets_nobody():
    say("ready")
    join(rank=1, size=2)


GONE = [
    Row("killed", 3, survive(), [lost(1), Ends(-signal.SIGKILL), lost(1)], by_signal(signal.SIGKILL)),
    Row("killed, over TCP", 3, survive(share_memory=False), [lost(1), Ends(-signal.SIGKILL), lost(1)],
        by_signal(signal.SIGKILL)),
    Row("killed while its messages are waited for", 2, survive(waits),
        [lost(1, "tensor 'w'", "receive"), Ends(-signal.SIGKILL)], by_signal(signal.SIGKILL)),
    Row("terminated", 2, survive(), [lost(1), Ends(-signal.SIGTERM)], by_signal(signal.SIGTERM)),
    Row("stopped", 3, survive(timeout=SILENT), [silent(1), ANYTHING, silent(1)], by_signal(signal.SIGSTOP)),
    Row("hung in its own code", 2, survive(hangs(lambda g: g.all_reduce(floats(), name="w")), timeout=SILENT),
        [silent(1, "tensor 'w'"), ANYTHING]),
    Row("silent about a message", 2, survive(hangs(lambda g: g.receive(floats(), 1, name="w")), timeout=SILENT),
        [silent(1, "tensor 'w'", "receive of 4 float32"), ANYTHING]),
    Row("a message late for the caller's own limit", 2, message_does_not_come_in_time,
        [Told(ty.TimedOut, ("receive of 'w'", "0.1 s")), None]),
    Row("late for the caller's own limit", 2, does_not_come_in_time,
        [Told(ty.TimedOut, ("barrier", "0.1 s")), None]),
    Row("an exception on one rank", 3, survive(fails), [lost(1), Told(ValueError, ("no such file",)), lost(1)]),
    Row("an exception that is told the others", 3, survive(fails_and_tells),
        [lost(1, "no such file"), Told(ty.Cancelled, ("no such file",), 1), lost(1, "no such file")]),
    Row("an exit on one rank", 2, uncaught, [lost(1), Ends(1, ["on one rank only"])]),
    Row("shutdown on one rank", 2, survive(leaves), [lost(1), Told(ValueError)]),
    Row("Ctrl-C in an operation", 3, survive(without_rank_2),
        [lost(1, "interrupted"), Told(KeyboardInterrupt), lost(1)], by_signal(signal.SIGINT, waiting=True)),
    Row("Ctrl-C in a wait for a message", 2, survive(waits), [lost(1), Told(KeyboardInterrupt)],
        by_signal(signal.SIGINT, waiting=True)),
    Row("Ctrl-C while ranks meet", 1, meets_nobody, Told(KeyboardInterrupt), by_signal(signal.SIGINT, waiting=True)),
    Row("a forked child", 2, in_a_child, None),
]


# ---- Ranks that do not find each other ----------------------------------------------------------


def other(**by_rank):
    """init() with arguments that differ: name=[of rank 0, of rank 1, ...]."""
    def misuse():
        join(**{"join_timeout": SKEW, **{name: values[RANK] for name, values in by_rank.items()}})

    return misuse


def port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(os.environ["MASTER_PORT"]) + 1))
        taken.listen()
        join(rank=0, size=2, join_timeout=SKEW)


def one_never_comes(missing):
    def misuse():
        if RANK != missing:
            join(join_timeout=1.0)

    return misuse


MEETINGS = [
    Row("rank 0 never comes", 2, one_never_comes(0), [None, Told(ty.TimedOut, ("rank 0", "1.0 s", "127.0.0.1:"), 0)]),
    Row("rank 1 never comes", 3, one_never_comes(1),
        [Told(ty.TimedOut, ("without rank", " 1", "1.0 s"), 1), None, Told(ty.TimedOut, ("rank 0",))]),
    Row("two processes of one rank", 3, other(rank=[0, 1, 1], size=[3, 3, 3]),
        [Told(ty.Refused, ("two processes", "rank 1"), 1), Told(ty.TrainyardError, ("rank 0",)),
         Told(ty.TrainyardError, ("rank 0",))]),
    Row("another number of ranks on one", 2, other(rank=[0, 1], size=[2, 3]),
        Told(ty.Refused, ("rank 1 of 3", "rank 0 of 2"))),
    Row("another secret on one rank", 2, other(secret=["one", "another"], join_timeout=[5.0, 5.0]),
        [Told(ty.TimedOut, ("rank 1", "secret"), 1), Told(ty.Refused, ("TRAINYARD_SECRET",), 0)]),
    Row("a port that is in use", 1, port_in_use, Told(ty.Unreachable, ("rank 0", "127.0.0.1:", "in use"))),
]

ROWS = [*DIFFERENCES, *GONE, *MEETINGS]
