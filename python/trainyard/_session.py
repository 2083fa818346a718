"""A session with the process of ours beside a program that is a worker of a job with a model of its own.

    declare -> values in place -> { next -> push... -> finish | evaluated }... -> over

The job says which samples a step takes and makes the update; the program computes gradients. A program that makes the
update itself says so when it declares, and has sum -> values in place -> commit in place of finish; one with state of
its own also has turns next -> save and next -> state. Arrays lie in memory that both processes have mapped.
"""
from __future__ import annotations

import ctypes
import enum
import os
import platform
import weakref
from ctypes import byref, c_double, c_int64, c_size_t, c_void_p
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from trainyard._errors import InvalidArgument, NotInitialized
from trainyard._library import CModel, COutcome, CTable, CTurn, CVariable, check, generation, library
from trainyard._types import ITEM_BYTES, Type

VARIABLE = "TRAINYARD_SESSION"

# How memoryview names the types that it knows.
_FORMATS = {Type.FLOAT32: "f", Type.FLOAT64: "d", Type.INT32: "i", Type.INT64: "q", Type.UINT8: "B", Type.INT8: "b",
            Type.BOOL: "?"}


class Variable(NamedTuple):
    """One array of the model.

    Attributes:
        name: unique in the model.
        shape: row-major; () is a scalar.
        type: of its elements; what is trained is float32.
        trained: whether the job updates it by its gradient. What is not only travels with checkpoints.
    """

    name: str
    shape: Tuple[int, ...]
    type: Type = Type.FLOAT32
    trained: bool = True


class Combiner(enum.IntEnum):
    """What becomes of the rows that a sample has of one feature: sum, sum / n, sum / sqrt(n)."""

    SUM = 0
    MEAN = 1
    SQRTN = 2


class Table(NamedTuple):
    """An embedding table of the job, whose rows lie on the parameter servers.

    Attributes:
        number: among the job's tables.
        name: in the job's file.
        dim: floats of a row.
        combiner: what the job says.
    """

    number: int
    name: str
    dim: int
    combiner: Combiner


class TurnKind(enum.IntEnum):
    """What a turn is for."""

    TRAIN = 0
    EVALUATE = 1
    DONE = 2
    STOPPED = 3
    LEFT = 4
    SAVE = 5
    LOAD = 6


class Turn(NamedTuple):
    """What to do next.

    Attributes:
        kind: TRAIN, EVALUATE; or it is over: DONE (all steps are taken), STOPPED (on request; it can be resumed),
            LEFT (the job goes on without this worker, as was asked for). With has_state also, before these: SAVE
            (save() the state that goes with the values of `step`) and LOAD (go on with state(), which does), of which
            nothing but `step` has a meaning.
        step: updates so far: of what step the values are. LEFT: the job's, which may have gone on since.
        epoch: of the job's membership.
        rank: of this worker among `ranks`.
        ranks: workers that take part.
        first_position: of the first sample in the stream, in which every sample comes once a pass.
        samples: their numbers. EVALUATE: this worker's share of those to evaluate.
        step_samples: how many all workers read for this step.
    """

    kind: TurnKind
    step: int
    epoch: int
    rank: int
    ranks: int
    first_position: int
    samples: Sequence[int]
    step_samples: int


class Outcome(NamedTuple):
    """What became of a step.

    Attributes:
        complete: whether the gradients were taken. Otherwise the same samples come again.
        too_late: not complete: backup workers had made the step without them.
        step: the step that was taken.
        loss: mean over all workers' samples.
        gradient_norm: of the mean gradient before it was clipped; None: it is not clipped.
    """

    complete: bool
    too_late: bool
    step: int
    loss: float
    gradient_norm: Optional[float]


class _Owner:
    """The library's session, for as long as somebody refers to it or to one of its arrays."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        made_in = generation()
        # A forked child has no session: its parent's must not be hung up by it.
        weakref.finalize(self, lambda: library().ty_session_free(pointer) if made_in == generation() else None)


class Session:
    """Of one thread, but for interrupted().

    An InvalidArgument leaves the session as it was; every other error ends it: JobFailed, Refused, Unreachable (the
    job's process is gone), NotInitialized (closed).
    """

    def __init__(self, path: Optional[str] = None, environment: Mapping[str, str] = os.environ) -> None:
        """Connects.

        Args:
            path: of the socket; by default what TRAINYARD_SESSION says.

        Raises:
            InvalidArgument: neither says where. Unreachable: nobody is there.
        """
        path = path or environment.get(VARIABLE)
        if not path:
            raise InvalidArgument(f"{VARIABLE} is not set: this is no worker of a job whose model is a program's own")
        pointer = c_void_p()
        program = f"Python {platform.python_version()}"
        check(library().ty_session_open(os.fsencode(path), program.encode(), byref(pointer)))
        self._owner: Optional[_Owner] = _Owner(pointer.value or 0)
        self._variables: List[Variable] = []
        self.job = (library().ty_session_job(pointer) or b"").decode("utf-8", "replace")
        self.index = int(library().ty_session_index(pointer))
        self.tables = [self._table(number) for number in range(library().ty_session_tables(pointer))]

    def _pointer(self) -> int:
        if self._owner is None:
            raise NotInitialized("the session was closed")
        return self._owner.pointer

    def close(self) -> None:
        """Hangs up when the last of its arrays is gone. Before the job is over that is the program's death to it."""
        self._owner = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_raised: Any) -> None:
        self.close()

    def declare(self, samples: int, variables: Sequence[Variable], eval_samples: int = 0,
                own_update: bool = False, has_state: bool = False) -> None:
        """Says what is trained on what; once, and the same in all workers. Waits until the job has taken it.

        Args:
            samples: how many there are to train on.
            variables: of the model.
            eval_samples: how many there are to evaluate; 0: it is not evaluated.
            own_update: the program makes the update itself, by sum() and commit(); with strategy AllReduce.
            has_state: the program has state of its own, which goes with the weights: it is asked for it (SAVE), and
                given it (LOAD).

        Raises:
            InvalidArgument: no samples, no variables, an empty shape, a trained variable that is not float32.
            Refused: it is not what the job has, and where; an update of its own where parameter servers make it.
        """
        shapes = [(c_int64 * len(each.shape))(*each.shape) for each in variables]
        given = (CVariable * len(variables))(*(
            CVariable(each.name.encode(), shape, len(each.shape), int(each.type), int(each.trained))
            for each, shape in zip(variables, shapes)))
        model = CModel(ctypes.sizeof(CModel), samples, eval_samples, given, len(variables), int(own_update),
                       int(has_state))
        check(library().ty_session_declare(self._pointer(), byref(model)))
        self._variables = list(variables)

    def value(self, variable: int) -> memoryview:
        """The variable's elements, flat. The program writes the first ones before its first next(), and reads the
        job's after each."""
        return self._array(variable, library().ty_session_value(self._pointer(), self._number(variable)))

    def gradient(self, variable: int) -> memoryview:
        """Where the variable's gradient goes, flat, float32."""
        return self._array(variable, library().ty_session_gradient(self._pointer(), self._number(variable)))

    def _number(self, variable: int) -> c_size_t:
        if not 0 <= variable < len(self._variables):
            raise InvalidArgument(f"variable {variable}: {len(self._variables)} are declared")
        return c_size_t(variable)

    def _array(self, variable: int, address: Optional[int]) -> memoryview:
        declared = self._variables[variable]
        if not address:
            raise InvalidArgument(f"{declared.name} is not trained and has no gradient")
        elements = 1
        for size in declared.shape:
            elements *= size
        memory = (ctypes.c_char * (elements * ITEM_BYTES[declared.type])).from_address(address)
        # Whoever holds a view of it holds the session's memory.
        memory._owner = self._owner  # type: ignore[attr-defined]
        elements_format = _FORMATS.get(declared.type, "B")
        view: memoryview = memoryview(memory).cast("B").cast(elements_format)  # type: ignore[call-overload]
        return view

    def _table(self, number: int) -> Table:
        given = CTable(bytes=ctypes.sizeof(CTable))
        check(library().ty_session_table(self._pointer(), number, byref(given)))
        return Table(number, given.name.decode("utf-8", "replace"), given.dim, Combiner(given.combiner))

    def rows(self, table: int, ids: int, count: int, rows: int) -> None:
        """In a turn to train or to evaluate: rows as they are at its version.

        Args:
            ids: address of `count` int64, read as uint64.
            rows: address of count x dim float32, where they go; zeros where the turn's result will not be used.
        """
        check(library().ty_session_rows(self._pointer(), table, ids, count, rows))

    def push_rows(self, table: int, ids: int, counts: Optional[int], count: int, gradients: int) -> None:
        """In a turn to train, before finish(): the gradients of rows, SUMS over this worker's samples; the job adds
        up what an id has more than once.

        Args:
            ids: address of `count` int64.
            counts: address of `count` uint32, how often each occurs in the samples; None: once.
            gradients: address of count x dim float32.
        """
        check(library().ty_session_push_rows(self._pointer(), table, ids, counts, count, gradients))

    def look_ahead(self, first: int, count: int, ids: Sequence[Tuple[int, int]]) -> None:
        """In a turn to train, before finish(): which rows the samples at `count` places of the stream from `first` on
        need. They come with the turn that has just these samples, and rows() does not wait.

        Args:
            ids: by table, address and number of int64.
        """
        addresses = (c_void_p * len(ids))(*(address for address, _ in ids))
        counts = (c_size_t * len(ids))(*(each for _, each in ids))
        check(library().ty_session_look_ahead(self._pointer(), first, count, addresses, counts))

    def sample_numbers(self, first: int, count: int) -> List[int]:
        """Which samples stand at `count` places of the stream from `first` on: for whoever reads ahead."""
        numbers = (c_int64 * count)()
        check(library().ty_session_sample_numbers(self._pointer(), first, count, numbers))
        return list(numbers)

    def next(self) -> Turn:
        """Waits for the next thing to do; the values are those for it."""
        given = CTurn(bytes=ctypes.sizeof(CTurn))
        check(library().ty_session_next(self._pointer(), byref(given)))
        kind = TurnKind(given.kind)
        samples: Sequence[int] = ()
        if kind is TurnKind.TRAIN:
            samples = given.sample_numbers[:given.samples]
        elif kind is TurnKind.EVALUATE:
            samples = range(given.first_position, given.first_position + given.samples)
        return Turn(kind, given.step, given.epoch, given.rank, given.ranks, given.first_position, samples,
                    given.step_samples)

    def push(self, variable: int) -> None:
        """The variable's gradient is in place: the SUM over this worker's samples. Each that is trained once a step,
        in any order; it must not be touched until finish() or sum() returns. A turn without samples needs none."""
        check(library().ty_session_push(self._pointer(), self._number(variable)))

    def count_hits(self, hits: int) -> None:
        """Before finish() or sum(): of this worker's samples of the step, `hits` were told right in this very pass. Where
        every worker with samples says so, the job records the share."""
        check(library().ty_session_count_hits(self._pointer(), hits))

    def finish(self, loss_sum: float, samples: int) -> Outcome:
        """After all pushes: waits until the step is made.

        Args:
            loss_sum: over this worker's samples.
            samples: how many they were.
        """
        made = COutcome(bytes=ctypes.sizeof(COutcome))
        check(library().ty_session_finish(self._pointer(), loss_sum, samples, byref(made)))
        return self._outcome(made)

    def sum(self, loss_sum: float, samples: int) -> Outcome:
        """With own_update, instead of finish(): after all pushes, waits until the gradients of all workers are in.

        Where the outcome is complete, their means over all workers' samples (clipped where the job clips) are in
        place of the gradients, the same bits in all workers: the program writes the next version into the values, all
        of them, and calls commit(). Otherwise the step is not taken, and next() is next. A turn without samples is no
        exception.

        Args:
            loss_sum: over this worker's samples.
            samples: how many they were.
        """
        made = COutcome(bytes=ctypes.sizeof(COutcome))
        check(library().ty_session_sum(self._pointer(), loss_sum, samples, byref(made)))
        return self._outcome(made)

    def commit(self) -> Outcome:
        """The values are those of the next version: the step is taken."""
        made = COutcome(bytes=ctypes.sizeof(COutcome))
        check(library().ty_session_commit(self._pointer(), byref(made)))
        return self._outcome(made)

    @staticmethod
    def _outcome(made: COutcome) -> Outcome:
        norm = made.gradient_norm if made.gradient_norm >= 0 else None
        return Outcome(bool(made.complete), bool(made.too_late), made.step, made.loss, norm)

    def evaluated(self, hits: int, samples: int, loss_sum: float = 0.0) -> None:
        """Ends a turn to evaluate: of `samples` that were looked at `hits` were right."""
        check(library().ty_session_evaluated(self._pointer(), hits, samples, loss_sum))

    def score_clicks(self, logits: int, labels: int, count: int) -> Tuple[int, float]:
        """In a turn to evaluate: samples whose labels are 0 or 1, of which the job's score then has the area under the ROC
        curve.

        Args:
            logits: where these float32 are.
            labels: where these bytes are.
        Returns:
            Hits and the sum of log loss: to be added to what evaluated() is given.
        """
        hits, loss_sum = c_int64(), c_double()
        check(library().ty_session_score_clicks(self._pointer(), logits, labels, count, byref(hits), byref(loss_sum)))
        return hits.value, loss_sum.value

    def save(self, state: Union[bytes, bytearray, memoryview]) -> None:
        """Ends a turn to save: the state that goes with the values in place; copied."""
        view = memoryview(state).cast("B")
        # An array that only lends its address; what may not be written cannot lend it, unless it is `bytes`.
        memory: Any = state if isinstance(state, bytes) else bytes(view)
        if not view.readonly and len(view) > 0:
            memory = (ctypes.c_char * len(view)).from_buffer(view)
        check(library().ty_session_save(self._pointer(), ctypes.cast(memory, c_void_p), len(view)))

    def state(self) -> bytes:
        """In a turn to load: the state to go on with, which a program of this job has saved with these values."""
        data, length = c_void_p(), c_size_t()
        check(library().ty_session_state(self._pointer(), byref(data), byref(length)))
        return ctypes.string_at(data, length.value) if length.value else b""

    def interrupted(self) -> bool:
        """Whether this turn's result will not be used: a long evaluation may end. Any thread."""
        return bool(library().ty_session_interrupted(self._pointer()))

    def abort(self, why: str) -> None:
        """The program cannot go on: the job ends, with `why` as its reason."""
        check(library().ty_session_abort(self._pointer(), why.encode("utf-8", "replace")))
