"""Cases of group_test.py: every operation and type against plain Python."""
import array
import threading
import time

import trainyard as ty
from group_rank import LIMIT, expect, join
from trainyard._memory import Array, array_of
from trainyard._types import Type

# By type: how Python's memoryview and array call it. Half-width floats are only moved here: Python has no arithmetic
# of them.
FORMATS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "uint8": "B", "int8": "b", "bool": "?"}
def buffer_of(kind, values):
    view = memoryview(bytearray(memoryview(array.array("d", [0.0] * len(values))))).cast("B")
    item = {"f": 4, "d": 8, "i": 4, "q": 8}.get(FORMATS[kind], 1)
    view = view[:len(values) * item].cast(FORMATS[kind])
    for at, value in enumerate(values):
        view[at] = value
    return view


def values_of(kind, rank, count):
    if kind == "bool":
        return [(at + rank) % 3 == 0 for at in range(count)]
    return [(at * 3 + rank * 5) % 7 + 1 for at in range(count)]


def reduce_plainly(kind, reduction, columns):
    whole = kind not in ("float32", "float64")
    results = []
    for values in zip(*columns):
        result = values[0]
        for value in values[1:]:
            result = {ty.MIN: min, ty.MAX: max, ty.PRODUCT: lambda a, b: a * b, ty.BIT_AND: lambda a, b: a & b,
                      ty.BIT_OR: lambda a, b: a | b, ty.BIT_XOR: lambda a, b: a ^ b}.get(
                          reduction, lambda a, b: a + b)(result, value)
        if reduction == ty.AVERAGE:
            result = result // len(values) if whole else result / len(values)
        results.append(bool(result) if kind == "bool" else result)
    return wrapped(kind, results)


def wrapped(kind, results):
    bits = {"uint8": 8, "int8": 8, "int32": 32, "int64": 64}.get(kind)
    if bits is None:
        return results
    signed = kind != "uint8"
    return [(value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) if signed else value % (1 << bits)
            for value in results]


def reductions_of(kind):
    bitwise = (ty.BIT_AND, ty.BIT_OR, ty.BIT_XOR)
    every = [ty.SUM, ty.MIN, ty.MAX, ty.PRODUCT]
    if kind != "bool":
        every.append(ty.AVERAGE)
    return every if kind in ("float32", "float64") else [*every, *bitwise]


def same(found, expected, what):
    assert all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(found, expected)) and len(found) == len(expected), (
        what, list(found), expected)


def case_reductions():
    with join() as group:
        for kind in FORMATS:
            for count in (0, 1, 7, 3000):
                columns = [values_of(kind, rank, count) for rank in range(group.size)]
                for reduction in reductions_of(kind):
                    mine = buffer_of(kind, columns[group.rank])
                    group.all_reduce(mine, reduction, name="w")
                    same(mine, reduce_plainly(kind, reduction, columns), (kind, count, reduction))
                    scatter(group, kind, reduction, count)
        several = [array.array("f", [group.rank] * 5), array.array("d", [1.0] * 3), array.array("f", [2.0])]
        group.all_reduce(several, prescale=0.5, postscale=4.0)
        ranks = sum(range(group.size))
        same(several[0], [2.0 * ranks] * 5, "several")
        same(several[1], [2.0 * group.size] * 3, "several")
        assert group.totals().operations > 100 and group.totals().seconds > 0, group.totals()


def scatter(group, kind, reduction, count):
    counts = [count + rank for rank in range(group.size)]
    columns = [values_of(kind, rank, sum(counts)) for rank in range(group.size)]
    first = sum(counts[:group.rank])
    expected = reduce_plainly(kind, reduction, columns)[first:first + counts[group.rank]]
    output = buffer_of(kind, [0] * counts[group.rank])
    given = buffer_of(kind, columns[group.rank])
    group.reduce_scatter(given, output, reduction, counts=counts)
    same(output, expected, ("reduce_scatter", kind, reduction))
    same(given, columns[group.rank], "the input of reduce_scatter stays")


def case_moves():
    with join() as group:
        rank, size = group.rank, group.size
        for kind in FORMATS:
            mine = values_of(kind, rank, 5)
            output = buffer_of(kind, [0] * 5 * size)
            group.all_gather(buffer_of(kind, mine), output)
            same(output, [value for each in range(size) for value in values_of(kind, each, 5)], ("all_gather", kind))
            counts = [each + 1 for each in range(size)]
            output = buffer_of(kind, [0] * sum(counts))
            group.all_gather(buffer_of(kind, values_of(kind, rank, rank + 1)), output, counts=counts)
            same(output, [v for each in range(size) for v in values_of(kind, each, each + 1)], ("gatherv", kind))
            for root in range(size):
                moved = buffer_of(kind, mine)
                group.broadcast(moved, root)
                same(moved, values_of(kind, root, 5), ("broadcast", kind))
            output = buffer_of(kind, [0] * size)
            group.all_to_all(buffer_of(kind, values_of(kind, rank, size)), output)
            same(output, [values_of(kind, each, size)[rank] for each in range(size)], ("all_to_all", kind))
        exchange_unevenly(group)
        move_halves(group)
        group.barrier()


def exchange_unevenly(group):
    """Rank a sends rank b a + b elements of value a."""
    rank, size = group.rank, group.size
    counts = [rank + each for each in range(size)]
    output = array.array("i", [-1] * sum(counts))
    group.all_to_all(array.array("i", [rank] * sum(counts)), output, send_counts=counts, receive_counts=counts)
    same(output, [each for each in range(size) for _ in range(rank + each)], "all_to_all with counts")


def move_halves(group):
    for kind in (Type.FLOAT16, Type.BFLOAT16):
        # 1.0 and 2.0 are 0x3c00 and 0x4000 as float16, 0x3f80 and 0x4000 as bfloat16.
        one = 0x3C00 if kind == Type.FLOAT16 else 0x3F80
        bits = array.array("H", [one] * 9)
        memory = array_of(memoryview(bits).cast("B"))
        group.all_reduce(Array(memory.address, 9, kind, None, memory))
        expected = {2: 0x4000, 3: 0x4200 if kind == Type.FLOAT16 else 0x4040,
                    4: 0x4400 if kind == Type.FLOAT16 else 0x4080}[group.size]
        same(bits, [expected] * 9, kind)


def case_messages():
    with join() as group:
        rank, size = group.rank, group.size
        after, before = (rank + 1) % size, (rank - 1) % size
        works = [group.send(array.array("i", [rank, tag]), after, tag, async_=True) for tag in range(3)]
        for tag in (2, 0, 1):
            got = array.array("i", [0, 0])
            assert group.receive(got, before, tag) == before and list(got) == [before, tag], got
        for work in works:
            work.wait()
        if rank == 0:
            sources = set()
            for _ in range(size - 1):
                got = array.array("q", [0])
                source = group.receive(got, tag=9)
                assert got[0] == source * 11, (got, source)
                sources.add(source)
            assert sources == set(range(1, size)), sources
        else:
            group.send(array.array("q", [rank * 11]), 0, 9)
        wrong_message(group)
        group.barrier()


def wrong_message(group):
    if group.rank == 0:
        group.send(array.array("i", [1, 2, 3]), 1, 5)
        group.send(array.array("i", [4]), 1, 5)
    if group.rank == 1:
        expect(ty.Mismatch, lambda: group.receive(array.array("i", [0]), 0, 5), "")
        got = array.array("i", [0])
        group.receive(got, 0, 5)
        assert got[0] == 4, got


def case_handles():
    with join() as group:
        arrays = [array.array("f", [group.rank + at] * 1000) for at in range(40)]
        done, lock = [], threading.Lock()

        def note(work):
            with lock:
                done.append(work)

        works = [group.all_reduce(each, async_=True) for each in arrays]
        for work in works:
            work.add_done_callback(note)
            work.add_done_callback(lambda work: 1 / 0)  # logged, and nothing else
        for work in works:
            work.wait(LIMIT)
            assert work.done() and work.exception() is None
        for at, each in enumerate(arrays):
            same(each, [sum(range(group.size)) + at * group.size] * 1000, at)
        deadline = time.monotonic() + LIMIT
        while len(done) < len(works) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(done) == len(works), len(done)
        for _ in range(300):  # nobody keeps the works, nor the arrays
            group.all_reduce(array.array("f", [1.0] * 100), async_=True)
        late(group)
        two_threads(group)


def late(group):
    """A wait that ends before its operation does."""
    mine = array.array("f", [1.0])
    if group.rank == 0:
        work = group.all_reduce(mine, async_=True)
        expect(ty.TimedOut, lambda: work.wait(0.2), "all_reduce: not done within 0.2 s")
        assert not work.done()
        group.send(b"go", 1, 1)
        work.wait(LIMIT)
    else:
        if group.rank == 1:
            group.receive(bytearray(2), 0, 1)
        group.all_reduce(mine)
    assert mine[0] == group.size, mine


def two_threads(group):
    """Threads give operations of their own group, in turns with those of the other."""
    halves = [group.split(range(group.size)) for _ in range(2)]
    failed = []

    def run(half):
        try:
            for _ in range(200):
                mine = array.array("i", [1])
                half.all_reduce(mine)
                assert mine[0] == half.size
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(half,)) for half in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    for half in halves:
        half.leave()


def case_splits():
    with join() as group:
        for members in ([0], [0, 1], [1, group.size - 1] if group.size > 2 else [1], list(range(group.size))):
            part = group.split(members)
            assert (part is not None) == (group.rank in members), members
            if part is None:
                continue
            assert (part.rank, part.size) == (members.index(group.rank), len(members))
            mine = array.array("i", [group.rank])
            part.all_reduce(mine)
            assert mine[0] == sum(members), (members, mine)
            part.leave()
            expect(ty.NotInitialized, part.barrier, "barrier: the group was left")
        expect(ty.InvalidArgument, lambda: group.split([0, 0]))
        expect(ty.InvalidArgument, lambda: group.split([group.size]))
        group.barrier()


def case_memory():
    group = join(arena_bytes=1 << 20)
    view = group.allocate(4096)
    assert view.nbytes == 4096 and bytes(view) == bytes(4096)
    floats = view.cast("f")
    floats[0] = group.rank + 1
    group.all_reduce(floats)
    assert floats[0] == sum(range(1, group.size + 1)), floats[0]
    expect(ty.NoRoom, lambda: group.allocate(1 << 40))
    group.barrier()
    ty.shutdown()
    assert floats[0] == sum(range(1, group.size + 1)), "memory is there as long as arrays are"
    expect(ty.NotInitialized, group.barrier)
    del view, floats


def case_compare():
    with join() as group:
        group.compare({"weights": array.array("f", [0] * 8), "step": array.array("q", [0])})
        sizes = {"weights": array.array("f", [0] * (8 if group.rank == 0 else 9))}
        error = expect(ty.Mismatch, lambda: group.compare(sizes), "weights", "8", "9")
        assert error.rank >= 0, error.rank
        group.compare(dict.fromkeys(("a", "b"), bytearray(1)))
