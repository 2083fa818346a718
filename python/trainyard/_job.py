"""A training loop of the program's own as a worker of a job.

    job = ty.job()
    loader = DataLoader(data, batch_sampler=job.batches(len(data)))
    for x, y in job.steps(loader):
        ...

Who takes part, which samples a step takes and when to evaluate the job says; it may take a batch again, and skips none.
"""
from __future__ import annotations

import ctypes
import linecache
import os
import sys
import traceback
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

from trainyard._batches import Batches, EvaluationBatches, Place, Reader
from trainyard._errors import ForkedProcess, InvalidArgument, TrainyardError
from trainyard._library import generation
from trainyard._rows import floats_of, ids_of, labels_of
from trainyard._session import VARIABLE, Outcome, Session, Table, Turn, TurnKind, Variable


# Samples of a batch that does not count: some layers do not compute with one.
_STAND_INS = 2


class Trainee(Protocol):
    """The model, as whoever computes with it keeps it: its arrays are not those of the session.

    Attributes:
        own_update: it makes the update itself, which strategy AllReduce has.
        has_state: it has state besides, which goes with the weights: save() and load().
    """

    @property
    def own_update(self) -> bool: ...

    @property
    def has_state(self) -> bool: ...

    def variables(self) -> Sequence[Variable]:
        """To declare."""

    def begin(self, session: Session) -> None:
        """Once, when they are declared: puts the first values in place."""

    def arrived(self, turn: Turn) -> None:
        """The session has the values of the turn."""

    def ready(self, turn: Turn) -> None:
        """The turn's samples are read: what follows computes."""

    def save(self) -> bytes:
        """The state that goes with the values."""

    def load(self, saved: bytes) -> None:
        """Goes on with what save() gave, here or in another worker."""

    def reading(self, first: int) -> None:
        """A batch whose first sample stands at that place of the stream is read, ahead of its turn."""

    def stand(self, turn: Turn) -> bool:
        """A step that has no samples for this worker, which takes part in it all the same.

        Returns:
            Whether that is done. Otherwise the loop's body does it, with samples that do not count.
        """


class Job:
    """One worker's part in a job. Of one thread.

    Attributes:
        name: of the job.
        index: of this worker; worker-0's first weights are the job's.
        ending: DONE, STOPPED or LEFT, when steps() has ended.
        tables: the job's embedding tables, by name.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._generation = generation()
        self._trainee: Optional[Trainee] = None
        self._batches: Optional[Batches] = None
        self._tests: Optional[EvaluationBatches] = None
        self._turn: Optional[Turn] = None
        self._outcome: Optional[Outcome] = None
        self._declared = False
        self._score: List[float] = []
        self.name = session.job
        self.index = session.index
        self.ending: Optional[TurnKind] = None
        self.tables: Dict[str, Table] = {each.name: each for each in session.tables}

    # ---- What is trained on what

    def batches(self, samples: int) -> Batches:
        """What this worker reads, for DataLoader(data, batch_sampler=...).

        Args:
            samples: how many there are to train on, the same on all workers: len(data).
        """
        if self._batches is not None:
            raise InvalidArgument("job.batches() was called before: a job reads one set of data")
        self._batches = Batches(samples, self._session.sample_numbers)
        return self._batches

    def evaluation_batches(self, samples: int, size: int = 256) -> EvaluationBatches:
        """What this worker evaluates, for DataLoader(tests, batch_sampler=...).

        Args:
            samples: how many there are to evaluate, the same on all workers.
            size: of a batch.
        """
        if self._tests is not None:
            raise InvalidArgument("job.evaluation_batches() was called before: a job evaluates one set of data")
        self._tests = EvaluationBatches(samples, size)
        return self._tests

    def attach(self, trainee: Trainee) -> Session:
        """For who keeps the model, as ServerOptimizer does."""
        if self._trainee is not None:
            raise InvalidArgument("the job has a model already: one ServerOptimizer, State or Arrays has all of its variables")
        self._trainee = trainee
        return self._session

    # ---- The loop

    def steps(self, loader: Iterable[Any], evaluate: Optional[Callable[[], object]] = None,
              ids: Optional[Callable[[Any], Mapping[str, Any]]] = None) -> Iterator[Any]:
        """The batches of all steps, until the job is over for this worker (see `ending`).

        A step that does not come about, because somebody died in it, is asked for again, with weights as they were.

        Args:
            loader: made with batch_sampler=job.batches(...); it may read ahead.
            evaluate: called when the job wants an evaluation; it goes through job.evaluate(...) and calls
                job.scored(...).
            ids: which rows a batch looks up: by table's name, as of rows(). The loader is then read a batch ahead, and
                rows come with the step before instead of being waited for. It may name too few: those are waited for.

        Raises:
            InvalidArgument: something is missing, or a step's batch was taken and its update not made.
            Refused, JobFailed, Unreachable: what ended the job.
        """
        trainee, batches = self._declare(evaluate)
        reader = Reader(loader, batches)
        while True:
            turn = self._session.next()
            if turn.kind is TurnKind.SAVE:
                self._session.save(trainee.save())
                continue
            if turn.kind is TurnKind.LOAD:
                trainee.load(self._session.state())
                continue
            self._turn = turn
            trainee.arrived(turn)
            if turn.kind is TurnKind.EVALUATE:
                self._evaluate(turn, evaluate)
            elif turn.kind is not TurnKind.TRAIN:
                self.ending = turn.kind
                return
            elif turn.samples or not trainee.stand(turn):
                self._outcome = None
                place = Place(turn.first_position, len(turn.samples) or min(_STAND_INS, batches.samples))
                batch = reader.read(place, turn.step_samples)
                if ids is not None:
                    self._look_ahead(reader.read_ahead(turn.step_samples, trainee.reading), ids)
                trainee.ready(turn)
                yield batch
                if self._outcome is None:
                    raise InvalidArgument(f"step {turn.step}: its batch was taken, but the optimizer's step(loss) was "
                                          "not called, or state.commit(loss)")

    def _declare(self, evaluate: Optional[Callable[[], object]]) -> Tuple[Trainee, Batches]:
        if self._generation != generation():
            raise ForkedProcess("this process is a forked child; the job is its parent's")
        if self._declared:
            raise InvalidArgument("job.steps() has been called before: it goes through all steps of the job")
        if self._trainee is None:
            raise InvalidArgument("job.steps(): the job has no model yet: ServerOptimizer(net, job) or State(job, net, "
                                  "optimizer) of trainyard.torch, or trainyard.Arrays(job, ...), come first")
        if self._batches is None:
            raise InvalidArgument("job.steps(): the job has no data yet: make the loader with "
                                  "batch_sampler=job.batches(len(data))")
        if (evaluate is None) != (self._tests is None):
            raise InvalidArgument("job.steps(): evaluate= and job.evaluation_batches() belong together")
        tests = self._tests.samples if self._tests is not None else 0
        self._session.declare(self._batches.samples, self._trainee.variables(), tests, self._trainee.own_update,
                              self._trainee.has_state)
        self._trainee.begin(self._session)
        self._declared = True
        _tell_exceptions(self)
        return self._trainee, self._batches

    # ---- Embedding tables

    def table(self, name: str) -> Table:
        """Raises:
            InvalidArgument: the job has no such table.
        """
        if name not in self.tables:
            there = ", ".join(self.tables) if self.tables else "none: they go into the job's `training.tables`"
            raise InvalidArgument(f"the job has no table {name!r}; there are {there}")
        return self.tables[name]

    def rows(self, table: str, ids: Any) -> memoryview[float]:
        """Rows of a table, [len(ids), dim] float32, as they are in this step; in modes Async and BoundedDelay as they
        are now. One that nobody has trained yet has the table's initial weights.

        Args:
            ids: whole numbers of 64 bits: of the buffer protocol (int64), a torch tensor, or one by one. A negative one
                is the id 2^64 above it.

        Raises:
            InvalidArgument: no such table, or no ids; outside of steps() and what it calls.
        """
        self.turn()
        found, given = self.table(table), ids_of(ids, f"job.rows({table!r})")
        memory = (ctypes.c_float * (given.length * found.dim))()
        self._session.rows(found.number, given.address, given.length, ctypes.addressof(memory))
        view = memoryview(memory).cast("B")
        if given.length == 0:
            return view.cast("f")
        return view.cast("f", shape=(given.length, found.dim))

    def push_rows(self, table: str, ids: Any, gradients: Any) -> None:
        """Hands over gradients of rows, before the step's own: the SUMS over this worker's samples.

        Args:
            ids: as of rows(); one that comes more than once has its gradients added up.
            gradients: [len(ids), dim] of the buffer protocol, float32.

        Raises:
            InvalidArgument: as of rows(); more or fewer gradients than ids x dim.
        """
        self.turn()
        found, given = self.table(table), ids_of(ids, f"job.push_rows({table!r})")
        sums = floats_of(gradients, f"job.push_rows({table!r})")
        if sums.length != given.length * found.dim:
            raise InvalidArgument(f"job.push_rows({table!r}): {given.length} ids need {given.length * found.dim} values, "
                                  f"not {sums.length}")
        self._session.push_rows(found.number, given.address, None, given.length, sums.address)

    def _look_ahead(self, ahead: Optional[Tuple[Place, Any]],
                    ids: Callable[[Any], Mapping[str, Any]]) -> None:
        if ahead is None:
            return
        place, batch = ahead
        named = ids(batch)
        for name in named:
            self.table(name)
        given = [ids_of(named.get(name, ()), f"ids of table {name}") for name in self.tables]
        self._session.look_ahead(place.first, place.samples, [(each.address, each.length) for each in given])

    def turn(self) -> Turn:
        """What this worker is at.

        Raises:
            InvalidArgument: outside of steps().
        """
        if self._turn is None or self.ending is not None:
            raise InvalidArgument("this belongs into the loop of job.steps()")
        return self._turn

    def stepped(self, outcome: Outcome) -> None:
        """For who keeps the model: the turn's update was asked for, and what came of it."""
        self._outcome = outcome

    @property
    def step(self) -> int:
        """Updates so far."""
        return self.turn().step

    @property
    def rank(self) -> int:
        """Of this worker among those that take part now."""
        return self.turn().rank

    @property
    def workers(self) -> int:
        """How many take part now."""
        return self.turn().ranks

    # ---- Evaluation

    def evaluate(self, loader: Iterable[Any]) -> Iterator[Any]:
        """This worker's share of the batches to evaluate; ends early where nobody needs the result any more.

        Args:
            loader: made with batch_sampler=job.evaluation_batches(...).
        """
        if self._turn is None or self._turn.kind is not TurnKind.EVALUATE:
            raise InvalidArgument("job.evaluate() belongs into what steps(evaluate=...) calls")
        for batch in loader:
            if self._session.interrupted():
                return
            yield batch

    def scored(self, hits: Any, samples: int, loss_sum: Any = 0.0) -> None:
        """Of `samples` that were evaluated, `hits` were right; added up over all batches and workers.

        Args:
            hits: a whole number, also a tensor's or an array's only element.
            loss_sum: over these samples.
        """
        if len(self._score) != 3:
            raise InvalidArgument("job.scored() belongs into what steps(evaluate=...) calls")
        self._score[0] += int(hits)
        self._score[1] += int(samples)
        self._score[2] += float(loss_sum)

    def scored_clicks(self, logits: Any, labels: Any) -> None:
        """Instead of scored(), where a sample's label is 0 or 1: with the accuracy and the loss the job's score has the
        area under the ROC curve and the calibration, of all batches and workers.

        Args:
            logits: of label 1: a torch tensor, or float32 of the buffer protocol.
            labels: as many: a torch tensor, bytes or bool of the buffer protocol, or a list.
        """
        if len(self._score) != 3:
            raise InvalidArgument("job.scored_clicks() belongs into what steps(evaluate=...) calls")
        scores, told = floats_of(logits, "job.scored_clicks()"), labels_of(labels, "job.scored_clicks()")
        if scores.length != told.length:
            raise InvalidArgument(f"job.scored_clicks(): {scores.length} logits, and {told.length} labels")
        hits, loss_sum = self._session.score_clicks(scores.address, told.address, scores.length)
        self.scored(hits, scores.length, loss_sum)

    def _evaluate(self, turn: Turn, evaluate: Optional[Callable[[], object]]) -> None:
        assert evaluate is not None and self._tests is not None  # nothing else was declared
        self._tests.share = range(turn.samples[0], turn.samples[-1] + 1) if turn.samples else range(0)
        self._score = [0, 0, 0.0]
        evaluate()
        (hits, samples, loss_sum), self._score, self._tests.share = self._score, [], None
        if samples != len(turn.samples) and not self._session.interrupted():
            raise InvalidArgument(f"evaluation at step {turn.step}: {int(samples)} samples were scored, it has "
                                  f"{len(turn.samples)}")
        self._session.evaluated(int(hits), int(samples), loss_sum)

    def abort(self, why: str) -> None:
        """The program cannot go on: the job ends, with `why` as its reason."""
        if self.ending is None:
            self._session.abort(why)


_job: Optional[Job] = None


def job() -> Job:
    """The job that this process is a worker of; once more, the same.

    Raises:
        InvalidArgument: it is none of a job with `model: {name: program}`. Unreachable: the job's runtime is gone.
    """
    global _job
    if _job is None or _job._generation != generation():
        if not os.environ.get(VARIABLE):
            raise InvalidArgument(
                f"trainyard.job(): {VARIABLE} is not set, so this is no worker of a job whose model is a program's own. "
                "Put `model: {name: program}` into the job's `training`, and start it with `trainyard run -f job.yaml`")
        _job = Job(Session())
    return _job


def _tell_exceptions(job: Job) -> None:
    """An exception that nobody catches is the job's reason to end, with the line that raised it: started again, the
    program would come to it again."""
    previous, wanted = sys.excepthook, weakref.ref(job)

    def hook(kind: Any, value: BaseException, trace: Any) -> None:
        known = wanted()
        # What the job itself raised it knows; InvalidArgument is of this side.
        told = isinstance(value, TrainyardError) and not isinstance(value, InvalidArgument)
        if known is not None and not told and isinstance(value, Exception) and known._generation == generation():
            try:
                known.abort(_reason(value, trace))
            except TrainyardError:
                pass  # it is over already
        previous(kind, value, trace)

    sys.excepthook = hook


def _reason(value: BaseException, trace: Any) -> str:
    """What was raised, and the last line that is not of an installed package."""
    frames = traceback.extract_tb(trace)
    own = [each for each in frames if "site-packages" not in each.filename and "dist-packages" not in each.filename
           and not each.filename.startswith(os.path.dirname(os.path.abspath(__file__)))]
    text = "".join(traceback.format_exception_only(type(value), value)).strip().splitlines()[-1]
    if not (own or frames):
        return text
    last = (own or frames)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return f"{text} ({os.path.basename(last.filename)}, line {last.lineno}: {line})"
