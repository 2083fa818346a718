#!/usr/bin/env python3
"""Fits a line to samples: a program whose model is its own, without any framework.

What it shall do otherwise LINE says, WORKER=WHAT[:STEP]: `widen` the model, `abort`, `exit`, leave a sample out
(`short`), or `hold` in that step, once, until it is killed or the folder HOLD has a file "go".
"""
import os
import pathlib
import time

from trainyard._session import Session, TurnKind, Variable

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


def hold():
    """The file "held" tells that it does."""
    folder = pathlib.Path(os.environ["HOLD"])
    if (folder / "held").exists():
        return
    (folder / "held").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)


def train(session, turn):
    weights, offset = session.value(0), session.value(1)
    gradient, loss = [0.0] * (FEATURES + 1), 0.0
    for number in turn.samples:
        features, wanted = sample(number)
        error = predict(weights, offset, features) - wanted
        loss += error * error
        for i, x in enumerate(features + [1.0]):
            gradient[i] += 2 * error * x
    session.gradient(1)[0] = gradient[FEATURES]
    session.push(1)
    for i in range(FEATURES):
        session.gradient(0)[i] = gradient[i]
    session.push(0)
    return session.finish(loss, len(turn.samples))


def main():
    with Session() as session:
        name, at = behaviour(session)
        features = FEATURES + (name == "widen")
        session.declare(SAMPLES, [Variable("slope", (features,)), Variable("offset", ())], eval_samples=EVALUATED)
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
                if turn.step == at and name == "hold":
                    hold()
                train(session, turn)
            elif turn.kind is TurnKind.EVALUATE:
                errors = [predict(session.value(0), session.value(1), features) - wanted
                          for features, wanted in map(sample, turn.samples)]
                session.evaluated(sum(abs(e) < 0.05 for e in errors), len(errors), sum(e * e for e in errors))
            else:
                print(f"{turn.kind.name.lower()} at step {turn.step}: "
                      + " ".join(f"{w:.6f}" for w in [*session.value(0), *session.value(1)]), flush=True)
                return


main()
