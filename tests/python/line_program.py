#!/usr/bin/env python3
"""Fits a line to samples: a program whose model is its own, without any framework.

With UPDATE=own it makes the update itself: what the job's Momentum with a rate of 0.05 and a momentum of 0.9 does. Its
velocity is state of its own then. With UPDATE=counted the job makes it, and the state is how many steps were taken; with
UPDATE=kept, too, and it may be that of an earlier step than the weights.

What it shall do otherwise LINE says, WORKER=WHAT[:STEP]: `widen` the model, `abort`, `exit`, leave a sample out
(`short`), or `hold` in that step, once, until it is killed or the folder HOLD has a file "go"; `hold-summed` between its
sum and its commit, `hold-declare` before it declares its model, `hold-save` and `hold-load` in a turn of that kind, from that step on; `hold-kept` when there is a
checkpoint of a step that was taken.
"""
import os
import struct
import time

from holds import hold, kept
from trainyard._session import Session, TurnKind, Variable
from trainyard._types import Type

OWN_UPDATE = os.environ.get("UPDATE") == "own"
HAS_STATE = os.environ.get("UPDATE") in ("own", "counted", "kept")
RATE, MOMENTUM = 0.05, 0.9
PACE = 0.005  # seconds of a step, where the job is to live until it has a checkpoint
SAMPLES = 256
EVALUATED = 32
FEATURES = 3


def sample(number):
    features = [((number * (7 + 2 * i)) % 31) / 31 - 0.5 for i in range(FEATURES)]
    return features, 3 * features[0] - 2 * features[1] + features[2] + 0.5


def predict(weights, offset, features):
    return sum(w * x for w, x in zip(weights, features)) + offset[0]


def behaviour(session):
    """What this worker is to do, and at which step."""
    for entry in os.environ.get("LINE", "").split(","):
        who, _, what = entry.partition("=")
        if who == f"worker-{session.index}":
            name, _, step = what.partition(":")
            return name, int(step or 0)
    return "", 0


def train(session, turn):
    weights, offset = session.value(0), session.value(1)
    gradient, loss = [0.0] * (FEATURES + 1), 0.0
    for number in turn.samples:
        features, wanted = sample(number)
        error = predict(weights, offset, features) - wanted
        loss += error * error
        for i, x in enumerate(features + [1.0]):
            gradient[i] += 2 * error * x
    if turn.samples:
        session.gradient(1)[0] = gradient[FEATURES]
        session.push(1)
        for i in range(FEATURES):
            session.gradient(0)[i] = gradient[i]
        session.push(0)
    return session.sum(loss, len(turn.samples)) if OWN_UPDATE else session.finish(loss, len(turn.samples))


class State:
    """What goes with the weights: how many steps were taken, and the momentum."""

    def __init__(self):
        self.steps = 0
        self.velocity = [0.0] * (FEATURES + 1)

    def saved(self):
        return struct.pack(f"q{FEATURES + 1}d", self.steps, *self.velocity)

    def load(self, data):
        self.steps, *self.velocity = struct.unpack(f"q{FEATURES + 1}d", data)

    def update(self, session):
        for i, mean in enumerate([*session.gradient(0), *session.gradient(1)]):
            self.velocity[i] = MOMENTUM * self.velocity[i] + mean
            value, at = (session.value(0), i) if i < FEATURES else (session.value(1), 0)
            value[at] -= RATE * self.velocity[i]


def check(session, turn, state):
    """A state of another step than the weights ends the job. One that has left keeps those that it had: the others
    may have gone on before it hears so."""
    fits = state.steps <= turn.step if turn.kind is TurnKind.LEFT else state.steps == turn.step
    if os.environ["UPDATE"] in ("own", "counted") and not fits:
        session.abort(f"{turn.kind.name} at step {turn.step}: the state is of step {state.steps}")
        raise SystemExit(1)


def save_or_load(session, turn, state):
    if turn.kind is TurnKind.LOAD:
        state.load(session.state())
    check(session, turn, state)
    if turn.kind is TurnKind.SAVE:
        session.save(state.saved())
    print(f"{turn.kind.name.lower()} at step {turn.step}", flush=True)


def main():
    with Session() as session:
        name, at = behaviour(session)
        if name == "hold-declare":
            hold()
        features = FEATURES + (name == "widen")
        session.declare(SAMPLES, [Variable("slope", (features,)), Variable("offset", ()),
                                  Variable("seen", (), Type.INT64, trained=False)], eval_samples=EVALUATED,
                        own_update=OWN_UPDATE, has_state=HAS_STATE)
        state = State()
        # Those of worker-0 are the job's.
        session.value(0)[0] = session.index
        while True:
            turn = session.next()
            if turn.kind is TurnKind.TRAIN:
                if turn.step == at and name == "abort":
                    session.abort(f"ValueError at step {turn.step}")
                    raise SystemExit(1)
                if turn.step == at and name == "short":
                    turn = turn._replace(samples=turn.samples[:-1])
                if turn.step == at and name == "exit":
                    raise SystemExit(7)
                if (turn.step == at and name == "hold") or (name == "hold-kept" and kept()):
                    hold()
                elif name == "hold-kept":
                    time.sleep(PACE)
                check(session, turn, state)
                if train(session, turn).complete:
                    state.steps += 1
                    session.value(2)[0] += len(turn.samples)
                    if OWN_UPDATE:
                        state.update(session)
                        if turn.step == at and name == "hold-summed":
                            hold()
                        session.commit()
            elif turn.kind in (TurnKind.SAVE, TurnKind.LOAD):
                if name == "hold-" + turn.kind.name.lower() and turn.step >= at:
                    hold()
                save_or_load(session, turn, state)
            elif turn.kind is TurnKind.EVALUATE:
                errors = [predict(session.value(0), session.value(1), features) - wanted
                          for features, wanted in map(sample, turn.samples)]
                session.evaluated(sum(abs(e) < 0.05 for e in errors), len(errors), sum(e * e for e in errors))
            else:
                check(session, turn, state)
                print(f"{turn.kind.name.lower()} at step {turn.step}: "
                      + " ".join(f"{w:.6f}" for w in [*session.value(0), *session.value(1)]), flush=True)
                print(f"seen {session.value(2)[0]} samples", flush=True)
                return


main()
