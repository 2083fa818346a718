#!/usr/bin/env python3
"""A session from Python, with the job's end in a process of its own (parabola_member.cc)."""
import array
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["TRAINYARD_SOURCE"])
BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
sys.path.insert(0, str(SOURCE / "python"))
os.environ["TRAINYARD_LIBRARY"] = str(BIN.parent / "lib/libtrainyard.so")

from trainyard import InvalidArgument, NotInitialized, Refused, Unreachable  # noqa: E402
from trainyard._session import Session, TurnKind, Variable  # noqa: E402
from trainyard._types import Type  # noqa: E402

MODEL = [Variable("w", (2,)), Variable("mean", (3,), trained=False), Variable("b", ())]
STEPS = 5
HANGS_SECONDS = 60


class SessionTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "session.sock")
        self.member = subprocess.Popen([BIN / "parabola_member", self.path, str(STEPS)], stdout=subprocess.PIPE,
                                       text=True)
        self.addCleanup(self.end_member)
        self.assertEqual(self.member.stdout.readline(), "listening\n")

    def end_member(self):
        self.member.kill()
        self.member.wait()
        self.member.stdout.close()

    def said(self):
        return self.member.communicate(timeout=HANGS_SECONDS)[0]

    def step(self, session):
        """Half of a value is its gradient, of two samples."""
        for variable in (0, 2):
            session.gradient(variable)[:] = session.value(variable)
            session.push(variable)
        return session.finish(3.0, 2)

    def test_trains_and_ends(self):
        with Session(environment={"TRAINYARD_SESSION": self.path}) as session:
            self.assertEqual((session.job, session.index), ("parabola", 3))
            session.declare(100, MODEL, eval_samples=10)
            session.value(0)[:] = array.array("f", [8, -4])
            session.value(2)[:] = array.array("f", [2])
            samples = []
            while (turn := session.next()).kind is TurnKind.TRAIN:
                samples += turn.samples
                outcome = self.step(session)
                self.assertEqual((outcome.complete, outcome.step, outcome.loss, outcome.gradient_norm),
                                 (True, turn.step, 1.5, None))
            self.assertEqual(samples, list(range(2 * STEPS)))
            self.assertIs(turn.kind, TurnKind.EVALUATE)
            self.assertEqual(turn.samples, range(10))
            self.assertFalse(session.interrupted())
            session.evaluated(7, 10, 1.0)
            self.assertIs(session.next().kind, TurnKind.DONE)
            weights = session.value(0)
            self.assertEqual((list(weights), list(session.value(2))), ([0.25, -0.125], [0.0625]))
        # What is held of it outlives the session; it hangs up when that is gone.
        self.assertEqual(list(weights), [0.25, -0.125])
        del weights
        self.assertEqual(self.said(), "end: OK, hits 7\n")

    def test_makes_the_update_itself(self):
        with Session(self.path) as session:
            session.declare(100, MODEL, eval_samples=10, own_update=True)
            session.value(0)[:] = array.array("f", [8, -4])
            while (turn := session.next()).kind is TurnKind.TRAIN:
                session.gradient(0)[:] = session.value(0)
                session.push(0)
                session.gradient(2)[0] = 6
                session.push(2)
                with self.assertRaisesRegex(InvalidArgument, "is to be summed and committed"):
                    session.finish(3.0, 2)
                with self.assertRaisesRegex(InvalidArgument, "no step is summed"):
                    session.commit()
                summed = session.sum(3.0, 2)
                self.assertEqual((summed.complete, summed.step, summed.loss), (True, turn.step, 1.5))
                self.assertEqual(session.gradient(2)[0], 3)
                with self.assertRaisesRegex(InvalidArgument, "must be committed"):
                    session.next()
                session.value(0)[:] = array.array("f", [w - g for w, g in zip(session.value(0), session.gradient(0))])
                self.assertEqual(session.commit(), summed)
            self.assertEqual((turn.kind, turn.step), (TurnKind.EVALUATE, STEPS))
            self.assertEqual(list(session.value(0)), [0.25, -0.125])

    def test_hands_its_state_over_and_takes_it_over(self):
        for saved in (b"", b"state", bytearray(b"state"), memoryview(bytes(10 ** 6)), array.array("d", [1, 2])):
            with self.subTest(saved=type(saved)):
                self.end_member()
                self.setUp()
                with Session(self.path) as session:
                    session.declare(100, MODEL, eval_samples=10, has_state=True)
                    kinds = []
                    while (turn := session.next()).kind is not TurnKind.EVALUATE:
                        kinds.append((turn.kind, turn.step))
                        if turn.kind is TurnKind.SAVE:
                            session.save(saved)
                        elif turn.kind is TurnKind.LOAD:
                            self.assertEqual(session.state(), bytes(saved))
                        else:
                            self.step(session)
                            with self.assertRaisesRegex(InvalidArgument, "outside of a turn to save"):
                                session.save(b"")
                            with self.assertRaisesRegex(InvalidArgument, "outside of a turn to load"):
                                session.state()
                    expected = [(TurnKind.TRAIN, step) for step in range(STEPS)]
                    expected[3:3] = [(TurnKind.LOAD, 3)]
                    expected[1:1] = [(TurnKind.SAVE, 1)]
                    self.assertEqual(kinds, expected)

    def test_wrong_calls_are_told_and_it_goes_on(self):
        session = Session(self.path)
        for samples, variables in ((0, MODEL), (100, []), (100, [Variable("w", (0,))]),
                                   (100, [Variable("n", (), Type.INT64)])):
            with self.assertRaises(InvalidArgument):
                session.declare(samples, variables)
        with self.assertRaisesRegex(InvalidArgument, "must be declared first"):
            session.next()
        session.declare(100, MODEL, eval_samples=10)
        with self.assertRaisesRegex(InvalidArgument, "mean is not trained"):
            session.gradient(1)
        with self.assertRaisesRegex(InvalidArgument, "variable 3: 3 are declared"):
            session.value(3)
        with self.assertRaisesRegex(InvalidArgument, "outside of a turn to train"):
            session.push(0)
        session.next()
        session.push(0)
        with self.assertRaisesRegex(InvalidArgument, "given already"):
            session.push(0)
        with self.assertRaisesRegex(InvalidArgument, "variable 2 has no gradient"):
            session.finish(1.0, 2)
        session.push(2)
        self.assertTrue(session.finish(1.0, 2).complete)
        session.close()
        with self.assertRaisesRegex(NotInitialized, "closed"):
            session.next()
        self.assertIn("the other end of the session is gone", self.said())

    def test_another_model_is_refused_by_name(self):
        session = Session(self.path)
        with self.assertRaisesRegex(Refused, r"variable 0: w float32 \[3\], here w float32 \[2\]"):
            session.declare(100, [Variable("w", (3,)), *MODEL[1:]], eval_samples=10)

    def test_the_program_says_why_it_cannot_go_on(self):
        session = Session(self.path)
        session.declare(100, MODEL, eval_samples=10)
        session.abort("train.py:12: ValueError: grün")
        self.assertIn("train.py:12: ValueError: grün", self.said())

    def test_a_member_that_dies_is_told(self):
        session = Session(self.path)
        session.declare(100, MODEL, eval_samples=10)
        self.member.kill()
        with self.assertRaisesRegex(Unreachable, "gone"):
            session.next()

    def test_a_forked_child_does_not_hang_up(self):
        session = Session(self.path)
        session.declare(100, MODEL, eval_samples=10)
        child = os.fork()
        if child == 0:
            try:
                session.next()
            except NotInitialized:
                session.close()
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertIs(session.next().kind, TurnKind.TRAIN)


class WithoutAJobTest(unittest.TestCase):
    def test_says_what_is_missing(self):
        with self.assertRaisesRegex(InvalidArgument, "TRAINYARD_SESSION is not set"):
            Session(environment={})
        with self.assertRaisesRegex(Unreachable, "/nobody/there.sock"):
            Session("/nobody/there.sock")


if __name__ == "__main__":
    unittest.main()
