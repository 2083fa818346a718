"""Rows of bad_input_test.py that end nothing: wrong arguments, a wrong environment, differences that are found before
anything is sent."""
import array
import contextlib
import os

import trainyard as ty
from bad_input import Batch, Row, Told, join, kept

# What a launcher sets; each row takes some of it away or spoils it.
LAUNCHED = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
NAMES = ("TRAINYARD_RENDEZVOUS", "TRAINYARD_SECRET", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TRAINYARD_REPORT")


def floats(count=4):
    return array.array("f", [1.0] * count)


def ints(count=4):
    return array.array("i", [1] * count)


def bools():
    return memoryview(bytearray(4)).cast("?")


def differing(group, kind="f"):
    """Of another size on each rank."""
    return array.array(kind, [1] * (4 + group.rank))


@contextlib.contextmanager
def environment(**values):
    """Only these variables, of those that tell a process its place."""
    before = dict(os.environ)
    for name in (*LAUNCHED, *NAMES):
        os.environ.pop(name, None)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def init_with(without=(), **values):
    """init() in an environment that is wrong."""
    told = {name: value for name, value in {**LAUNCHED, **values}.items() if name not in without}

    def misuse(_):
        with environment(**told):
            ty.init()

    return misuse


def init(**arguments):
    def misuse(_):
        with environment(**LAUNCHED):
            ty.init(**arguments)

    return misuse


def exchange(send, receive):
    """A message from rank 0 to rank 1 that is not what rank 1 waits for."""
    def misuse(group):
        if group.rank == 0:
            group.send(send, 1)
        else:
            group.receive(receive, 0, name="w")

    return misuse


ARRAYS = [
    kept("a type that does not travel", lambda g: g.all_reduce(array.array("h", [1]), name="w"),
         ty.InvalidArgument, "tensor w", "'h'", "float32"),
    kept("a list of numbers", lambda g: g.all_reduce([1.0, 2.0], name="w"), ty.InvalidArgument, "w[0]", "float"),
    kept("no array at all", lambda g: g.broadcast(None, name="w"), ty.InvalidArgument, "tensor w", "NoneType"),
    kept("not contiguous", lambda g: g.all_reduce(memoryview(floats())[::2], name="w"),
         ty.InvalidArgument, "tensor w", "float32 of shape [2]", "not contiguous", "[8]"),
    kept("read-only", lambda g: g.all_reduce(bytes(4), name="w"), ty.InvalidArgument, "tensor w", "read-only"),
    kept("receive into read-only memory", lambda g: g.receive(bytes(4), 1 - g.rank, name="w"),
         ty.InvalidArgument, "tensor w", "read-only"),
    kept("one bad array of several", lambda g: g.all_reduce([floats(), array.array("h", [1])], name="w"),
         ty.InvalidArgument, "tensor w[1]", "'h'"),
    kept("an empty array", lambda g: g.all_reduce(floats(0))),
    kept("an empty list", lambda g: g.all_reduce([])),
    kept("an array that is resized while it travels", lambda g: resized(g), BufferError),
    kept("a name that is no text", lambda g: g.all_reduce(array.array("h", [1]), name=7),
         ty.InvalidArgument, "tensor 7"),
    kept("a name that is no UTF-8", lambda g: g.all_reduce(floats(), name="\udcff")),
]


def resized(group):
    mine = floats()
    work = group.receive(mine, 1 - group.rank, tag=9, async_=True)
    try:
        mine.append(1.0)
    finally:
        group.send(floats(), 1 - group.rank, tag=9)
        work.wait()


OPERATIONS = [
    kept("a reduction that there is not", lambda g: g.all_reduce(floats(), 99, name="w"),
         ty.InvalidArgument, "reduction", "99"),
    kept("a reduction by name", lambda g: g.all_reduce(floats(), "sum"), ty.InvalidArgument, "reduction", "'sum'"),
    kept("bits of floats", lambda g: g.all_reduce(floats(), ty.BIT_AND), ty.InvalidArgument, "all_reduce", "float32"),
    kept("the average of booleans", lambda g: g.all_reduce(bools(), ty.AVERAGE),
         ty.InvalidArgument, "all_reduce", "booleans"),
    kept("whole numbers scaled", lambda g: g.all_reduce(ints(), prescale=0.5),
         ty.InvalidArgument, "all_reduce", "int32"),
    kept("a factor that is no number", lambda g: g.all_reduce(floats(), prescale="x"),
         ty.InvalidArgument, "prescale", "'x'"),
    kept("a root that there is not", lambda g: g.broadcast(floats(), 2, name="w"), ty.InvalidArgument, "root", "2"),
    kept("a root below 0", lambda g: g.broadcast(floats(), -1), ty.InvalidArgument, "root", "-1"),
    kept("a root that is no number", lambda g: g.broadcast(floats(), "0"), ty.InvalidArgument, "root", "'0'"),
    kept("all_gather into too little", lambda g: g.all_gather(floats(), floats(7), name="w"),
         ty.InvalidArgument, "all_gather", "7 elements", "2 ranks"),
    kept("all_gather into another type", lambda g: g.all_gather(floats(), array.array("d", [0] * 8), name="w"),
         ty.InvalidArgument, "all_gather", "float32", "float64"),
    kept("too few counts", lambda g: g.all_gather(floats(), floats(8), counts=[8]),
         ty.InvalidArgument, "all_gather", "1 counts for 2 ranks"),
    kept("counts below 0", lambda g: g.all_gather(floats(), floats(8), counts=[-4, 12]),
         ty.InvalidArgument, "all_gather"),
    kept("counts of another sum", lambda g: g.all_gather(floats(), floats(8), counts=[4, 5]),
         ty.InvalidArgument, "all_gather", "8 elements", "9"),
    kept("counts that are no numbers", lambda g: g.all_gather(floats(), floats(8), counts=["4", "4"]),
         ty.InvalidArgument, "counts", "'4'"),
    kept("reduce_scatter into too much", lambda g: g.reduce_scatter(floats(8), floats(5), name="w"),
         ty.InvalidArgument, "reduce_scatter", "5 elements", "4"),
    kept("all_to_all of what does not divide", lambda g: g.all_to_all(floats(5), floats(5), name="w"),
         ty.InvalidArgument, "all_to_all", "5 elements", "2 ranks"),
    kept("too many arguments", lambda g: g.all_reduce(floats(), ty.SUM, 1.0, 1.0), TypeError, "positional"),
]

MESSAGES = [
    kept("send to oneself", lambda g: g.send(floats(), g.rank, name="w"), ty.InvalidArgument, "rank", "of 2"),
    kept("send to nobody", lambda g: g.send(floats(), 2), ty.InvalidArgument, "rank 2", "of 2"),
    kept("send below rank 0", lambda g: g.send(floats(), -1), ty.InvalidArgument, "rank -1"),
    kept("send to no number", lambda g: g.send(floats(), "1"), ty.InvalidArgument, "to", "'1'"),
    kept("receive from oneself", lambda g: g.receive(floats(), g.rank), ty.InvalidArgument, "rank", "of 2"),
    kept("receive from rank -1", lambda g: g.receive(floats(), -1), ty.InvalidArgument, "-1"),
    kept("a tag below 0", lambda g: g.send(floats(), 1 - g.rank, -1), ty.InvalidArgument, "tag: -1"),
    kept("a tag too large", lambda g: g.receive(floats(), 1 - g.rank, 1 << 64),
         ty.InvalidArgument, "tag: 18446744073709551616"),
    kept("a tag that is no number", lambda g: g.send(floats(), 1 - g.rank, "x"), ty.InvalidArgument, "tag", "'x'"),
    Row("a message longer than its buffer", 2, exchange(floats(5), floats(3)),
        [None, Told(ty.Mismatch, ("tensor 'w'", "receive of 3 float32 from rank 0", "sent 5 float32"), 0)]),
    Row("a message of another type", 2, exchange(ints(), floats()),
        [None, Told(ty.Mismatch, ("tensor 'w'", "receive of 4 float32 from rank 0", "sent 4 int32"), 0)]),
]

DIFFERENCES = [
    kept("compared sizes that differ", lambda g: g.compare({"v": floats(), "w": differing(g)}),
         ty.Mismatch, "w of 4 float32 on rank 0", "w of 5 float32 on rank 1", rank=1),
    kept("compared names that differ", lambda g: g.compare({f"w{g.rank}": floats()}),
         ty.Mismatch, "w0 of 4", "w1 of 4", rank=1),
    kept("compared types that differ", lambda g: g.compare({"w": floats() if g.rank else ints()}),
         ty.Mismatch, "w of 4 int32 on rank 0", "float32 on rank 1", rank=1),
    kept("compared lists of other lengths", lambda g: g.compare({str(at): floats() for at in range(1 + g.rank)}),
         ty.Mismatch, "tensor 1, 1 of 4", "only on rank 1", rank=1),
    kept("a compared name with a line's end", lambda g: g.compare({"w\n": floats()}), ty.InvalidArgument, "name"),
    kept("all_to_all of counts that differ",
         lambda g: g.all_to_all(floats(), floats(3 + g.rank), receive_counts=[2, 1 + g.rank], name="w"),
         ty.Mismatch, "all_to_all", "rank 1 sends 2 elements to rank 0", "expects 1", rank=1),
]

GROUPS = [
    kept("a second init", lambda g: (ty.init() is g) or 1 / 0),
    kept("a second init as another rank", lambda g: ty.init(rank=1 - g.rank, size=2),
         ty.InvalidArgument, "already", "shutdown() comes first"),
    kept("a split of ranks that there are not", lambda g: g.split([0, 2]), ty.InvalidArgument, "0 to 1"),
    kept("a split of nobody", lambda g: g.split([]), ty.InvalidArgument, "at least one"),
    kept("a split with a rank twice", lambda g: g.split([0, 0, 1]), ty.InvalidArgument, "ascending"),
    kept("a split of no numbers", lambda g: g.split(["0", "1"]), ty.InvalidArgument, "split", "'0'"),
    kept("memory below 0", lambda g: g.allocate(-1), ty.InvalidArgument, "allocate", "-1"),
    kept("more memory than was asked for", lambda g: g.allocate(1 << 40), ty.NoRoom, "1099511627776"),
]


def report(**values):
    """In a job, whose agent does not listen."""
    def misuse(_):
        with environment(TRAINYARD_REPORT="/nonexistent/socket"):
            ty.report(**values)

    return misuse


REPORTS = [
    kept("a report of a word", report(step="three"), ValueError, "three"),
    kept("a report of a list", report(loss=[0.5]), TypeError, "list"),
    kept("a report of an endless number", report(loss=float("nan"), examples=float("inf"))),
    kept("a report without a listener", report(step=1)),
    kept("a report too long for its listener", report(**{"a" * 5000: 1})),
    kept("a report by position", lambda _: ty.report(3), TypeError, "positional"),
]

NO_GROUP = [
    kept("use before init", lambda _: ty.rank(), ty.NotInitialized, "trainyard.init() was not called"),
    kept("the group before init", lambda _: ty.group(), ty.NotInitialized, "trainyard.init() was not called"),
    kept("shutdown without init", lambda _: ty.shutdown()),
    kept("half of a place", init(rank=0), ty.InvalidArgument, "rank and size"),
    kept("a place that there is not", init(rank=2, size=2), ty.InvalidArgument, "rank: 2 is not from 0 to 1"),
    kept("a rank that is no number", init(rank="0", size=2), ty.InvalidArgument, "rank", "'0'"),
    kept("an address that is none", init(address="node0"), ty.InvalidArgument, "address: 'node0' is not host:port"),
    kept("a wire of another type", init(wire="float8"), ty.InvalidArgument, "wire: 'float8'"),
    kept("a timeout that is over", init(timeout=0), ty.InvalidArgument, "timeout", "0"),
    kept("a join_timeout that is no number", init(join_timeout=float("nan")),
         ty.InvalidArgument, "join_timeout", "nan"),
    kept("arena_bytes below 0", init(arena_bytes=-1), ty.InvalidArgument, "arena_bytes", "-1"),
    kept("use after shutdown", lambda _: left().barrier(), ty.NotInitialized, "barrier", "left"),
    kept("an operation under way at shutdown", lambda _: under_way()),
    kept("shutdown twice", lambda _: [ty.shutdown() for _ in range(2)]),
    kept("no RANK", init_with({"RANK"}), ty.InvalidArgument, "RANK is not set, but WORLD_SIZE is"),
    kept("no WORLD_SIZE", init_with({"WORLD_SIZE"}), ty.InvalidArgument, "WORLD_SIZE is not set, but RANK is"),
    kept("RANK garbled", init_with(RANK="0x"), ty.InvalidArgument, "RANK: '0x' is not a number"),
    kept("RANK empty", init_with(RANK=""), ty.InvalidArgument, "RANK: '' is not a number"),
    kept("WORLD_SIZE garbled", init_with(WORLD_SIZE="two"), ty.InvalidArgument, "WORLD_SIZE: 'two' is not a number"),
    kept("WORLD_SIZE 0", init_with(WORLD_SIZE="0"), ty.InvalidArgument, "size: 0 is below 1"),
    kept("RANK too large", init_with(RANK="2"), ty.InvalidArgument, "rank: 2 is not from 0 to 1"),
    kept("RANK below 0", init_with(RANK="-1"), ty.InvalidArgument, "rank: -1"),
    kept("LOCAL_RANK garbled", init_with(LOCAL_RANK="x"), ty.InvalidArgument, "LOCAL_RANK: 'x'"),
    kept("nobody says where", init_with({"MASTER_ADDR"}), ty.InvalidArgument, "set TRAINYARD_RENDEZVOUS=host:port"),
    kept("MASTER_PORT garbled", init_with(MASTER_PORT="29500s"), ty.InvalidArgument, "MASTER_PORT: '29500s'"),
    kept("MASTER_PORT too large", init_with(MASTER_PORT="70000"), ty.InvalidArgument, "MASTER_PORT: 70000"),
    kept("TRAINYARD_RENDEZVOUS without a port", init_with(TRAINYARD_RENDEZVOUS="127.0.0.1"),
         ty.InvalidArgument, "TRAINYARD_RENDEZVOUS: '127.0.0.1' is not host:port"),
    kept("TRAINYARD_RENDEZVOUS with port 0", init_with(TRAINYARD_RENDEZVOUS="127.0.0.1:0"),
         ty.InvalidArgument, "is not host:port"),
    kept("TRAINYARD_RENDEZVOUS with a port of words", init_with(TRAINYARD_RENDEZVOUS="127.0.0.1:port"),
         ty.InvalidArgument, "is not host:port"),
    kept("no secret and another machine", init_with(MASTER_ADDR="10.0.0.1"),
         ty.InvalidArgument, "10.0.0.1:29501", "TRAINYARD_SECRET", "openssl rand -hex 32"),
    kept("an empty secret and another machine", init_with(MASTER_ADDR="10.0.0.1", TRAINYARD_SECRET=""),
         ty.InvalidArgument, "TRAINYARD_SECRET"),
]


def left():
    with ty.init(rank=0, size=1) as group:
        ty.shutdown()
        return group


def under_way():
    """It is done, or its end is told: what was not begun is not any more."""
    group = ty.init(rank=0, size=1)
    work = group.all_reduce(floats(), async_=True)
    ty.shutdown()
    with contextlib.suppress(ty.NotInitialized):
        work.wait()


def begin_group():
    group = join()
    return group, group.barrier


BATCHES = [Batch("no group", 1, [*NO_GROUP, *REPORTS], lambda: (None, ty.shutdown)),
           Batch("a group of two", 2, [*ARRAYS, *OPERATIONS, *MESSAGES, *DIFFERENCES, *GROUPS], begin_group)]
