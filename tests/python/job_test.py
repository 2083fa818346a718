#!/usr/bin/env python3
"""Training loops of a job without a job: what loaders are told to read, and what is refused before anything is trained.
The session is a list of turns."""
import array
import collections
import ctypes
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TRAINYARD_SOURCE"]) / "python"))
os.environ.setdefault("TRAINYARD_LIBRARY", str(pathlib.Path(os.environ["TRAINYARD_BIN"]).parent / "lib/libtrainyard.so"))

from trainyard import Arrays, InvalidArgument, Job, job  # noqa: E402
from trainyard._batches import Batches, EvaluationBatches, Place, Reader  # noqa: E402
from trainyard._job import _reason  # noqa: E402
from trainyard._session import Combiner, Outcome, Table, Turn, TurnKind  # noqa: E402

SAMPLES = 1000


def numbers(first, count):
    """The stream: backwards."""
    return [SAMPLES - 1 - (first + at) % SAMPLES for at in range(count)]


def ahead(batches, most):
    """A loader that has asked for so many batches when it gives one."""
    asked = collections.deque()
    for batch in batches:
        asked.append(batch)
        if len(asked) > most:
            yield asked.popleft()


class Loader:
    def __init__(self, batches, most=0):
        self.batches, self.most, self.begun = batches, most, 0

    def __iter__(self):
        self.begun += 1
        return ahead(self.batches, self.most)


def train(first, count, step=0, all_samples=None):
    return Turn(TurnKind.TRAIN, step, 1, 0, 1, first, numbers(first, count), all_samples or count)


def over(kind=TurnKind.DONE):
    return Turn(kind, 9, 1, 0, 1, 0, (), 0)


def at(address, kind, count):
    return list((kind * count).from_address(address)) if count else []


class FakeSession:
    job, index = "fake", 0
    tables = [Table(0, "users", 2, Combiner.MEAN), Table(1, "words", 1, Combiner.SUM)]

    def __init__(self, turns, sizes=(2, 1)):
        self.turns, self.said, self.voided = list(turns), [], False
        self.values = [memoryview(array.array("f", [0.0] * size)) for size in sizes]
        self.gradients = [memoryview(array.array("f", [0.0] * size)) for size in sizes]

    def sample_numbers(self, first, count):
        return numbers(first, count)

    def declare(self, samples, variables, eval_samples=0, own_update=False, has_state=False):
        self.said.append(("declare", samples, [(each.name, each.shape) for each in variables], eval_samples))
        self.declared = own_update, has_state

    def save(self, state):
        self.said.append(("save", state))

    def state(self):
        return b"of another"

    def value(self, at):
        return self.values[at]

    def gradient(self, at):
        return self.gradients[at]

    def next(self):
        return self.turns.pop(0)

    def push(self, at):
        self.said.append(("push", at, list(self.gradients[at])))

    def count_hits(self, hits):
        self.said.append(("hits", hits))

    def finish(self, loss_sum, samples):
        self.said.append(("finish", loss_sum, samples))
        return Outcome(True, False, 0, 0.0, None)

    def rows(self, table, ids, count, rows):
        found = at(ids, ctypes.c_int64, count)
        self.said.append(("rows", table, found))
        dim = self.tables[table].dim
        (ctypes.c_float * (count * dim)).from_address(rows)[:] = [each + i / 4 for each in found for i in range(dim)]

    def push_rows(self, table, ids, counts, count, gradients):
        self.said.append(("push_rows", table, at(ids, ctypes.c_int64, count), counts,
                          at(gradients, ctypes.c_float, count * self.tables[table].dim)))

    def look_ahead(self, first, count, ids):
        self.said.append(("look_ahead", first, count, [at(address, ctypes.c_int64, length) for address, length in ids]))

    def score_clicks(self, logits, labels, count):
        self.said.append(("clicks", at(logits, ctypes.c_float, count), at(labels, ctypes.c_ubyte, count)))
        return count - 1, 0.5

    def evaluated(self, hits, samples, loss_sum):
        self.said.append(("evaluated", hits, samples, loss_sum))

    def interrupted(self):
        return self.voided

    def abort(self, why):
        self.said.append(("abort", why))


def floats(*values):
    return array.array("f", values)


class BatchesTest(unittest.TestCase):
    def read(self, places, most, stride=None):
        """What a reader gives for each place, and how many batches it dropped."""
        batches = Batches(SAMPLES, numbers)
        loader = Loader(batches, most)
        reader = Reader(loader, batches)
        given = [reader.read(place, stride or place.samples) for place in places]
        self.assertEqual(loader.begun, 1)
        self.assertEqual(given, [numbers(*place) for place in places])
        return reader.dropped

    def test_each_turn_gets_its_own_samples(self):
        for most in (0, 1, 4):
            self.assertEqual(self.read([Place(at * 8, 8) for at in range(20)], most), 0)

    def test_of_several_workers_each_has_its_piece(self):
        for most in (0, 3):
            self.assertEqual(self.read([Place(16 * at + 8, 8) for at in range(20)], most, stride=16), 0)

    def test_a_step_taken_again_is_read_again(self):
        places = [Place(0, 8), Place(8, 8), Place(8, 8), Place(16, 8)]
        self.assertEqual(self.read(places, 0), 0)
        # Those that were read ahead of it come first, and once more behind it.
        self.assertEqual(self.read(places, 3), 3)

    def test_another_membership_gives_other_places(self):
        places = [Place(0, 8), Place(8, 8), Place(20, 4), Place(28, 4), Place(24, 8), Place(40, 8)]
        for most in (0, 2, 5):
            self.read(places, most)

    def test_a_worker_alone_after_a_return_to_an_older_step(self):
        self.read([Place(80, 8), Place(0, 8), Place(8, 8), Place(80, 8)], 4)

    def test_a_loader_that_ends(self):
        batches = Batches(SAMPLES, numbers)
        reader = Reader(zip(batches, range(2)), batches)
        reader.read(Place(0, 8), 8)
        reader.read(Place(8, 8), 8)
        with self.assertRaisesRegex(InvalidArgument, "the loader ended before the job"):
            reader.read(Place(16, 8), 8)

    def test_a_loader_that_reads_something_else(self):
        with self.assertRaisesRegex(InvalidArgument, r"batch_sampler=job.batches\(len\(data\)\)"):
            Reader([[1, 2]], Batches(SAMPLES, numbers)).read(Place(0, 8), 8)

    def test_out_of_turn(self):
        with self.assertRaisesRegex(InvalidArgument, "only within job.steps"):
            next(iter(Batches(SAMPLES, numbers)))
        with self.assertRaisesRegex(InvalidArgument, "only within job.evaluate"):
            next(iter(EvaluationBatches(10, 2)))

    def test_a_batch_that_is_read_ahead_is_read_once(self):
        for most in (0, 3):
            batches, begun = Batches(SAMPLES, numbers), []
            reader = Reader(Loader(batches, most), batches)
            given = []
            for place in (Place(0, 8), Place(8, 8), Place(8, 8), Place(16, 8), Place(24, 4), Place(28, 8)):
                given.append((place, reader.read(place, place.samples)))
                coming, batch = reader.read_ahead(place.samples, begun.append)
                self.assertEqual(batch, numbers(*coming))
                self.assertEqual(reader._ahead, (coming, batch))
            self.assertEqual([batch for _, batch in given], [numbers(*place) for place, _ in given])
            self.assertEqual(len(begun), len(given))
            if most == 0:
                self.assertEqual(begun, [8, 16, 16, 24, 28, 36])

    def test_a_loader_that_ends_is_read_ahead_to_its_end(self):
        batches = Batches(SAMPLES, numbers)
        reader = Reader(zip(batches, range(2)), batches)
        reader.read(Place(0, 8), 8)
        self.assertIsNotNone(reader.read_ahead(8, lambda first: None))
        reader.read(Place(8, 8), 8)
        self.assertIsNone(reader.read_ahead(8, lambda first: None))

    def test_numbers_that_are_none(self):
        for samples in (0, -1, 100_000_001, 1.5, "many"):
            with self.assertRaisesRegex(InvalidArgument, "samples to train on"):
                Batches(samples, numbers)
            with self.assertRaisesRegex(InvalidArgument, "samples to evaluate"):
                EvaluationBatches(samples, 2)
        with self.assertRaisesRegex(InvalidArgument, "the size of a batch"):
            EvaluationBatches(10, 0)


class JobTest(unittest.TestCase):
    def made(self, turns, **given):
        session = FakeSession(turns, **given)
        made = Job(session)
        weights = {"slope": floats(1, 2), "offset": floats(3)}
        return session, made, Arrays(made, weights), weights

    def test_rows_and_what_is_looked_up_ahead(self):
        session, made, arrays, _ = self.made([train(0, 4), train(4, 4), over()])
        looked = []

        def ids(batch):
            looked.append(batch)
            return {"words": batch[:2]}

        for batch in made.steps(Loader(made.batches(SAMPLES)), ids=ids):
            session.said.clear()
            self.assertEqual(made.rows("users", [7, -1]).tolist(), [[7, 7.25], [-1, -0.75]])
            self.assertEqual(made.rows("words", array.array("q", [3])).tolist(), [[3]])
            self.assertEqual(made.rows("words", []).tolist(), [])
            made.push_rows("users", [7, 7], floats(1, 2, 3, 4))
            self.assertEqual(session.said, [("rows", 0, [7, -1]), ("rows", 1, [3]), ("rows", 1, []),
                                            ("push_rows", 0, [7, 7], None, [1, 2, 3, 4])])
            session.said.clear()
            arrays.step({"offset": floats(5), "slope": floats(6, 8)}, 2.5)
        self.assertEqual(looked, [numbers(4, 4), numbers(8, 4)])

    def test_a_batch_is_said_before_its_step(self):
        session, made, arrays, _ = self.made([train(0, 4), over()])
        for batch in made.steps(Loader(made.batches(SAMPLES)), ids=lambda batch: {"words": batch[:2]}):
            self.assertEqual(session.said[-1], ("look_ahead", 4, 4, [[], numbers(4, 4)[:2]]))
            arrays.step({"offset": floats(5), "slope": floats(6, 8)}, 2.5)

    def test_rows_that_cannot_be(self):
        session, made, arrays, _ = self.made([train(0, 4), over()])
        with self.assertRaisesRegex(InvalidArgument, "this belongs into the loop of job.steps"):
            made.rows("users", [1])
        for _ in made.steps(Loader(made.batches(SAMPLES))):
            for call, why in (
                    (lambda: made.rows("user", [1]), "the job has no table 'user'; there are users, words"),
                    (lambda: made.rows("users", [0.5]), "whole numbers of 64 bits"),
                    (lambda: made.rows("users", floats(1)), "ids are int64 in one piece, not format 'f'"),
                    (lambda: made.rows("users", [1 << 63]), "whole numbers of 64 bits"),
                    (lambda: made.push_rows("users", [1], floats(1)), "1 ids need 2 values, not 1"),
                    (lambda: made.push_rows("users", [1], [1.0, 2.0]), "list has not the buffer protocol"),
                    (lambda: made.push_rows("users", [1], array.array("d", [1, 2])), "float32 in one piece")):
                with self.assertRaisesRegex(InvalidArgument, why):
                    call()
            self.assertEqual([said for said in session.said if "rows" in said[0]], [])
            arrays.step({"offset": floats(5), "slope": floats(6, 8)}, 2.5)

    def test_ids_of_an_unknown_table(self):
        _, made, _, _ = self.made([train(0, 4), over()])
        with self.assertRaisesRegex(InvalidArgument, "no table 'items'"):
            next(iter(made.steps(Loader(made.batches(SAMPLES)), ids=lambda batch: {"items": batch})))

    def test_a_step(self):
        session, made, arrays, weights = self.made([train(0, 4), over()])
        loader = Loader(made.batches(SAMPLES))
        for batch in made.steps(loader):
            self.assertEqual((batch, made.step, made.rank, made.workers), (numbers(0, 4), 0, 0, 1))
            session.values[0][0] = 7
            outcome = arrays.step({"offset": floats(5), "slope": floats(6, 8)}, 2.5)
            self.assertTrue(outcome.complete)
        self.assertEqual(session.said, [
            ("declare", SAMPLES, [("slope", (2,)), ("offset", (1,))], 0), ("push", 0, [6, 8]), ("push", 1, [5]),
            ("finish", 2.5, 4)])
        # The first values were put in place, and those of the last turn arrived.
        self.assertEqual((list(weights["slope"]), list(weights["offset"])), ([7, 2], [3]))
        self.assertIs(made.ending, TurnKind.DONE)

    def test_hits_are_told_with_the_step(self):
        session, made, arrays, _ = self.made([train(0, 4), over()])
        for _ in made.steps(Loader(made.batches(SAMPLES))):
            arrays.step({"offset": floats(5), "slope": floats(6, 8)}, 2.5, hits=array.array("b", [3])[0])
        self.assertEqual(session.said[-2:], [("hits", 3), ("finish", 2.5, 4)])

    def test_state_goes_out_and_comes_in(self):
        session, made, arrays, _ = self.made([Turn(TurnKind.LOAD, 3, 1, 0, 1, 0, (), 0), train(0, 4),
                                              Turn(TurnKind.SAVE, 4, 1, 0, 1, 0, (), 0), over()])
        loaded = []
        arrays.has_state, arrays.load, arrays.save = True, loaded.append, lambda: b"mine"
        for _ in made.steps(Loader(made.batches(SAMPLES))):
            self.assertEqual(loaded, [b"of another"])
            arrays.step({"offset": floats(5), "slope": floats(6, 8)}, 2.5)
        self.assertEqual(session.said[-1], ("save", b"mine"))
        self.assertEqual(session.declared, (False, True))

    def test_how_it_ends(self):
        for kind in (TurnKind.DONE, TurnKind.STOPPED, TurnKind.LEFT):
            _, made, _, _ = self.made([over(kind)])
            self.assertEqual(list(made.steps(Loader(made.batches(SAMPLES)))), [])
            self.assertIs(made.ending, kind)

    def test_a_step_without_samples_is_not_seen(self):
        session, made, _, _ = self.made([train(0, 0, all_samples=4), over()])
        self.assertEqual(list(made.steps(Loader(made.batches(SAMPLES)))), [])
        self.assertIn(("finish", 0.0, 0), session.said)

    def evaluate(self, samples, function, shares=range(3, 8)):
        session, made, _, _ = self.made([Turn(TurnKind.EVALUATE, 9, 1, 0, 1, 3, shares, 0), over()])
        tests = Loader(made.evaluation_batches(samples, 2))
        list(made.steps(Loader(made.batches(SAMPLES)), lambda: function(session, made, tests)))
        return session.said

    def test_evaluation(self):
        seen = []

        def score(_, made, tests):
            for batch in made.evaluate(tests):
                seen.append(batch)
                made.scored(len(batch) - 1, len(batch), 0.5)

        said = self.evaluate(10, score)
        self.assertEqual(seen, [[3, 4], [5, 6], [7]])
        self.assertEqual((said[0][3], said[-1]), (10, ("evaluated", 2, 5, 1.5)))

    def test_a_share_that_is_empty(self):
        said = self.evaluate(10, lambda _, made, tests: list(made.evaluate(tests)), shares=range(3, 3))
        self.assertEqual(said[-1], ("evaluated", 0, 0, 0.0))

    def test_evaluation_of_clicks(self):
        def score(_, made, tests):
            labels = iter((b"\1\0", [1.0, 0], array.array("q", [1])))
            for batch in made.evaluate(tests):
                made.scored_clicks(array.array("f", [number / 2 for number in batch]), next(labels))
        said = self.evaluate(10, score)
        self.assertEqual(said[-4:], [("clicks", [1.5, 2], [1, 0]), ("clicks", [2.5, 3], [1, 0]), ("clicks", [3.5], [1]),
                                     ("evaluated", 2, 5, 1.5)])

    def test_clicks_that_are_none(self):
        logits = array.array("f", [1, 2])
        for labels, message in ((b"\1", "2 logits, and 1 labels"), ([1, 2], "expected 0 and 1"), ([1, None], "expected 0"),
                                (7, "expected 0 and 1"), (array.array("f", [0.5, 1]), "expected 0 and 1")):
            with self.subTest(labels), self.assertRaisesRegex(InvalidArgument, message):
                self.evaluate(10, lambda _, made, tests: made.scored_clicks(logits, labels))
        with self.assertRaisesRegex(InvalidArgument, "float32"):
            self.evaluate(10, lambda _, made, tests: made.scored_clicks(array.array("d", [1]), b"\1"))
        with self.assertRaisesRegex(InvalidArgument, "belongs into"):
            Job(FakeSession([])).scored_clicks(logits, b"\1\0")

    def test_evaluation_that_nobody_needs_any_more(self):
        def score(session, made, tests):
            for batch in made.evaluate(tests):
                session.voided = True
                made.scored(0, len(batch))

        self.assertEqual(self.evaluate(10, score)[-1], ("evaluated", 0, 2, 0.0))

    def test_evaluation_that_leaves_samples_out(self):
        with self.assertRaisesRegex(InvalidArgument, "step 9: 1 samples were scored, it has 5"):
            self.evaluate(10, lambda _, made, tests: made.scored(1, 1))

    def refuse(self, text, use, turns=()):
        session, made, arrays, _ = self.made(list(turns) or [train(0, 4), over()])
        with self.assertRaisesRegex(InvalidArgument, text):
            use(made, arrays)
        return session

    def test_what_is_refused(self):
        def loader(made):
            return Loader(made.batches(SAMPLES))

        def loop(made, body, *more):
            for _ in made.steps(loader(made), *more):
                body()

        gradients = {"slope": floats(1, 2), "offset": floats(3)}
        for text, use in (
                ("the job has no data yet", lambda made, _: next(made.steps([]))),
                ("belong together", lambda made, _: next(made.steps(loader(made), print))),
                ("belong together", lambda made, _: (made.evaluation_batches(5), next(made.steps(loader(made))))),
                ("reads one set of data", lambda made, _: (made.batches(1), made.batches(1))),
                ("evaluates one set of data", lambda made, _: (made.evaluation_batches(1), made.evaluation_batches(1))),
                ("has a model already", lambda made, _: Arrays(made, {"more": floats(1)})),
                ("step\\(loss\\) was not called", lambda made, _: loop(made, lambda: None)),
                ("goes through all steps", lambda made, _: loop(made, lambda: next(made.steps([])))),
                ("loop of job.steps", lambda made, _: made.step),
                ("loop of job.steps", lambda made, arrays: arrays.step(gradients, 0)),
                ("job.evaluate\\(\\) belongs", lambda made, _: next(made.evaluate([]))),
                ("job.scored\\(\\) belongs", lambda made, _: made.scored(1, 1)),
                ("missing or unknown: offset", lambda made, arrays: loop(
                    made, lambda: arrays.step({"slope": floats(1, 2)}, 0))),
                ("missing or unknown: more", lambda made, arrays: loop(
                    made, lambda: arrays.step({**gradients, "more": floats(1)}, 0))),
                ("gradient of slope has 1 elements, not 2", lambda made, arrays: loop(
                    made, lambda: arrays.step({**gradients, "slope": floats(1)}, 0))),
                ("gradient of offset: float32, .* not format 'd'", lambda made, arrays: loop(
                    made, lambda: arrays.step({**gradients, "offset": array.array("d", [1])}, 0))),
                ("gradient of offset: list has not the buffer", lambda made, arrays: loop(
                    made, lambda: arrays.step({**gradients, "offset": [1]}, 0)))):
            with self.subTest(text):
                self.refuse(text, use)

    def test_models_that_are_refused(self):
        for text, value in (("writable", memoryview(bytes(8)).cast("f")), ("format 'i'", array.array("i", [1])),
                            ("buffer protocol", 3)):
            with self.assertRaisesRegex(InvalidArgument, text):
                Arrays(Job(FakeSession([])), {"it": value})
        with self.assertRaisesRegex(InvalidArgument, "no model yet"):
            next(Job(FakeSession([])).steps([]))

    def test_outside_of_a_job(self):
        self.assertNotIn("TRAINYARD_SESSION", os.environ)
        with self.assertRaisesRegex(InvalidArgument, "TRAINYARD_SESSION is not set.*trainyard run -f"):
            job()

    def test_an_exception_that_nobody_catches_ends_the_job(self):
        session, made, _, _ = self.made([train(0, 4), over()])
        kept, told = sys.excepthook, []
        try:
            sys.excepthook = lambda *raised: told.append(raised)
            steps = made.steps(Loader(made.batches(SAMPLES)))
            next(steps)
            try:
                raise KeyError("lost")
            except KeyError as error:
                sys.excepthook(KeyError, error, error.__traceback__)
            sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
        finally:
            sys.excepthook = kept
        reasons = [each[1] for each in session.said if each[0] == "abort"]
        self.assertEqual(len(reasons), 1)
        self.assertRegex(reasons[0], r"^KeyError: 'lost' \(job_test.py, line \d+: raise KeyError\(\"lost\"\)\)$")
        self.assertEqual([raised[0] for raised in told], [KeyError, KeyboardInterrupt])

    def test_a_reason_without_a_line(self):
        self.assertEqual(_reason(ValueError("two\nlines"), None), "lines")


if __name__ == "__main__":
    unittest.main(verbosity=2)
