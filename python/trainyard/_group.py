"""A group of ranks and its operations."""
from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from trainyard._arguments import factor, reduction_number, whole, wholes
from trainyard._errors import InvalidArgument
from trainyard._handle import Handle
from trainyard._library import CTotals, check, library
from trainyard._memory import Array, array_of, structs
from trainyard._types import Reduction
from trainyard._work import Flight, Work

Arrays = Union[Any, Sequence[Any]]


class Totals(NamedTuple):
    """What a group has done so far; the bytes are those of arrays."""

    operations: int
    bytes_sent: int
    bytes_received: int
    seconds: float


class Group:
    """Ranks that carry out operations together.

    All ranks call the same operations in the same order with the same types and sizes. Operations work on
    contiguous memory in place: numpy arrays, torch tensors of the CPU, array.array, bytearray, memoryview, and
    objects with DLPack; of float32, float16, bfloat16, float64, int32, int64, uint8, int8 or bool.

    Every operation waits until it is done; with async_=True it returns a Work instead, and the arrays may not be
    touched until that is done. All methods may be called from any thread.

    Errors of all operations:
        InvalidArgument: an argument is wrong here; nothing was sent and the group lives on.
        Mismatch: another rank is in another operation, or with other types or sizes.
        RankLost: a rank died, left or failed (RankSilent: it hangs). The group is of no more use then.
        NotInitialized: the group was left. ForkedProcess: this is a forked child.
    """

    def __init__(self, pointer: int, rank: int, size: int) -> None:
        """Takes over the library's group; init(), split() and join() make these."""
        self._handle = Handle(pointer)
        self._rank, self._size = rank, size
        self._flight = Flight()
        self._memory: List[Any] = []
        self._finalizer = weakref.finalize(self, self._handle.leave)

    def __repr__(self) -> str:
        return f"<trainyard.Group: rank {self._rank} of {self._size}>"

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    @property
    def rank(self) -> int:
        """Of this process, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    # ---- Operations -----------------------------------------------------------------------------

    def all_reduce(self, arrays: Arrays, reduction: Reduction = Reduction.SUM, *, prescale: float = 1.0,
                   postscale: float = 1.0, name: Optional[str] = None, async_: bool = False) -> Optional[Work]:
        """Every array becomes postscale * reduction(prescale * array) over all ranks, in place.

        Args:
            arrays: one of any shape, or a sequence, whose arrays of one type travel together.
            prescale, postscale: others than 1 need floats.
            name: told in errors.
        """
        given = _sequence(arrays, name)
        return self._carry_out("all_reduce", async_, given, library().ty_all_reduce, structs(given), len(given),
                               *_reducing(reduction, prescale, postscale))

    def reduce_scatter(self, input: Any, output: Any, reduction: Reduction = Reduction.SUM, *,
                       counts: Optional[Sequence[int]] = None, prescale: float = 1.0, postscale: float = 1.0,
                       name: Optional[str] = None, async_: bool = False) -> Optional[Work]:
        """`output` becomes this rank's part of the reduction of all ranks' `input`, which is left as it was.

        Args:
            input: all ranks' parts one after the other: counts[r] elements for rank r.
            output: counts[rank] elements.
            counts: None: all parts are equal.
        """
        source, target = array_of(input, name, writable=False), array_of(output, name)
        return self._carry_out("reduce_scatter", async_, (source, target), library().ty_reduce_scatter,
                               source.struct(), self._counts(counts, "reduce_scatter"), target.struct(),
                               *_reducing(reduction, prescale, postscale))

    def all_gather(self, input: Any, output: Any, *, counts: Optional[Sequence[int]] = None,
                   name: Optional[str] = None, async_: bool = False) -> Optional[Work]:
        """`output` becomes all ranks' `input`, one after the other.

        Args:
            input: counts[rank] elements; may lie at its place in `output`.
            output: sum(counts) elements.
            counts: None: all ranks have equally many.
        """
        source, target = array_of(input, name, writable=False), array_of(output, name)
        return self._carry_out("all_gather", async_, (source, target), library().ty_all_gather, source.struct(),
                               target.struct(), self._counts(counts, "all_gather"))

    def broadcast(self, array: Any, root: int = 0, *, name: Optional[str] = None,
                  async_: bool = False) -> Optional[Work]:
        """`array` becomes that of rank `root`."""
        root = whole(root, "broadcast: root")
        given = array_of(array, name, writable=root != self._rank)
        return self._carry_out("broadcast", async_, given, library().ty_broadcast, given.struct(), root)

    def all_to_all(self, send: Any, receive: Any, *, send_counts: Optional[Sequence[int]] = None,
                   receive_counts: Optional[Sequence[int]] = None, name: Optional[str] = None,
                   async_: bool = False) -> Optional[Work]:
        """Sends each rank r send_counts[r] elements, and receives receive_counts[r] from it.

        Args:
            send, receive: the ranks' parts one after the other.
            send_counts, receive_counts: None: all parts are equal.
        """
        source, target = array_of(send, name, writable=False), array_of(receive, name)
        return self._carry_out("all_to_all", async_, (source, target), library().ty_all_to_all, source.struct(),
                               self._counts(send_counts, "all_to_all: send_counts"), target.struct(),
                               self._counts(receive_counts, "all_to_all: receive_counts"))

    def barrier(self, *, async_: bool = False) -> Optional[Work]:
        """Done when all ranks have come."""
        return self._carry_out("barrier", async_, None, library().ty_barrier)

    def send(self, array: Any, to: int, tag: int = 0, *, name: Optional[str] = None,
             async_: bool = False) -> Optional[Work]:
        """Sends a message to rank `to`; done when `array` may be used again, received or not.

        Messages are outside of the order of the other operations. `tag` (from 0) tells those of one pair apart.
        """
        given = array_of(array, name, writable=False)
        work = self._begin("send", given, library().ty_send, given.struct(), whole(to, "send: to"), _tag(tag),
                           tensor=name)
        if async_:
            return work
        work.wait()
        return None

    def receive(self, array: Any, source: Optional[int] = None, tag: int = 0, *, name: Optional[str] = None,
                async_: bool = False) -> Union[int, Work]:
        """Receives a message into `array` from rank `source`, or from any.

        Returns: the rank it came from; with async_ the Work, whose `source` is that.

        Raises:
            Mismatch: the message is of another type or size. It is dropped and the group lives on.
        """
        given = array_of(array, name)
        # -1 is the library's number for any.
        place = -1 if source is None else whole(source, "receive: source", 0)
        work = self._begin("receive", given, library().ty_receive, given.struct(), place, _tag(tag), tensor=name)
        return work if async_ else work.source

    # ---- The group ------------------------------------------------------------------------------

    def split(self, ranks: Sequence[int]) -> Optional[Group]:
        """Some ranks of this group as a group of their own; None for those that are not among them.

        All ranks of this group call it at the same place of their order with the same ranks.
        """
        members = sorted(whole(rank, "split: rank") for rank in ranks)
        pointer = ctypes.c_void_p()
        self._call("split", library().ty_split, (ctypes.c_int * max(len(members), 1))(*members), len(members),
                   ctypes.byref(pointer))
        if pointer.value is None:
            return None
        return Group(pointer.value, members.index(self._rank), len(members))

    def compare(self, arrays: Mapping[str, Any]) -> None:
        """Checks that all ranks list the same arrays: names, types and sizes, in one order.

        Raises:
            Mismatch: on all ranks; it names the first that differs, both ranks and both sizes. The group lives on.
        """
        given = [array_of(array, str(name), writable=False) for name, array in arrays.items()]
        self._call("compare", library().ty_compare, structs(given), len(given))

    def allocate(self, nbytes: int) -> memoryview:
        """Memory that the other ranks of this machine read in place: arrays in it are not copied.

        All ranks should allocate the same. It is zero at first and aligned to 64 bytes; `numpy.frombuffer` and
        `torch.frombuffer` make arrays of it. A group that is left while there are such arrays goes when they do.

        Raises:
            NoRoom: there is none left of what init(arena_bytes=) asked for, or ranks do not share memory.
        """
        nbytes = whole(nbytes, "allocate: nbytes", 0, sys.maxsize)
        address = ctypes.c_void_p()
        self._call("allocate", library().ty_allocate, nbytes, ctypes.byref(address))
        block = (ctypes.c_ubyte * nbytes).from_address(address.value or 0)
        block.group = self  # type: ignore[attr-defined]
        self._memory.append(weakref.ref(block))
        return memoryview(block).cast("B")

    def totals(self) -> Totals:
        """What the group has done so far."""
        totals = CTotals(bytes=ctypes.sizeof(CTotals))
        self._call("totals", library().ty_group_totals, totals)
        return Totals(totals.operations, totals.bytes_sent, totals.bytes_received, totals.seconds)

    def abort(self, why: str) -> None:
        """Ends the group because this rank cannot go on: the others raise RankLost with its number and `why`."""
        pointer = self._handle.enter("abort")
        try:
            library().ty_abort(pointer, why.encode())
        finally:
            self._handle.exit()

    def leave(self) -> None:
        """Leaves the group. The others lose this rank if they need more of it. Once more does nothing."""
        self._finalizer.detach()
        self._handle.leave([block for block in (each() for each in self._memory) if block is not None])

    # ---- How ------------------------------------------------------------------------------------

    def _call(self, what: str, function: Any, *arguments: Any) -> None:
        pointer = self._handle.enter(what)
        try:
            code = function(pointer, *arguments)
        finally:
            self._handle.exit()
        check(code)

    def _begin(self, what: str, keep: Any, function: Any, *arguments: Any, tensor: Optional[str] = None) -> Work:
        handle = ctypes.c_void_p()
        self._call(what, function, *arguments, ctypes.byref(handle))
        assert handle.value is not None
        work = Work(handle.value, (keep, arguments), what, tensor)
        self._flight.add(work)
        return work

    def _carry_out(self, what: str, async_: bool, keep: Any, function: Any, *arguments: Any) -> Optional[Work]:
        if not async_ and self._flight.over():
            pointer = self._handle.enter(what)
            try:
                # Nothing else is under way: this thread carries it out and hears signals. Behind another
                # operation it would not.
                direct = not self._handle.shared
                if direct:
                    code = function(pointer, *arguments, None)
            finally:
                self._handle.exit()
            if direct:
                check(code)
                return None
        work = self._begin(what, keep, function, *arguments)
        if async_:
            return work
        work.wait()
        return None

    def _counts(self, counts: Optional[Sequence[int]], what: str) -> Any:
        if counts is None:
            return None
        if len(counts) != self._size:
            raise InvalidArgument(f"{what}: {len(counts)} counts for {self._size} ranks")
        return (ctypes.c_int64 * self._size)(*wholes(counts, f"{what}: counts"))


def _sequence(arrays: Arrays, name: Optional[str]) -> List[Array]:
    if not isinstance(arrays, (list, tuple)) or isinstance(arrays, Array):
        return [array_of(arrays, name)]
    return [array_of(array, f"{name or ''}[{at}]") for at, array in enumerate(arrays)]


def _reducing(reduction: Reduction, prescale: float, postscale: float) -> Tuple[int, float, float]:
    return reduction_number(reduction), factor(prescale, "prescale"), factor(postscale, "postscale")


def _tag(tag: int) -> int:
    return whole(tag, "tag", 0, (1 << 64) - 1)
