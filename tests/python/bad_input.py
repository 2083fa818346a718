"""Tables of bad input: what ranks do wrong, and what each of them must be told.

Rows that end nothing are done one after the other by the same ranks, which form a Batch. All others have processes of
their own. A rank prints what it was told as a line of JSON, and the test compares that with the table. Whatever hangs
fails by a limit, and by its row's name.
"""
import json
import threading
import time
import traceback
import unittest
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

import trainyard as ty
from ranks import Ranks

MARK = "told: "
# Rows that are to hang hang for less; whatever takes longer than this hangs against its will.
LIMIT_SECONDS = 30.0


class Told(NamedTuple):
    """What a rank must be told: an exception of this class or one derived from it, with all these words in its text."""

    kind: type
    words: Sequence[str] = ()
    rank: Optional[int] = None  # the one to blame; None: any


class Ends(NamedTuple):
    """How a rank's process ends that tells nothing: its exit status, and words of its output."""

    status: int
    words: Sequence[str] = ()


# Of a rank that is stopped or hangs for good.
ANYTHING = "anything"
Expected = Union[None, str, Told, Ends]


class Row(NamedTuple):
    """One mistake or fault.

    Attributes:
        misuse: what a rank does. In a batch it is given what that begins with.
        told: one for all ranks, or one for each. None: nothing is raised.
        act: what the test does to the running ranks; returns when.
    """

    name: str
    ranks: int
    misuse: Callable[..., Any]
    told: Union[Expected, List[Expected]]
    act: Optional[Callable[[Ranks], float]] = None

    def told_to(self, rank: int) -> Expected:
        return self.told[rank] if isinstance(self.told, list) else self.told


class Batch(NamedTuple):
    """Rows that end nothing, of the same processes.

    Attributes:
        begin: gives what the rows use, and what is done behind each.
    """

    name: str
    ranks: int
    rows: List[Row]
    begin: Callable[[], Any]


def kept(name, misuse, kind=None, *words, rank=None):
    """A row that ends nothing, the same on all ranks."""
    return Row(name, 0, misuse, None if kind is None else Told(kind, words, rank))


def join(**options):
    return ty.init(**{"join_timeout": LIMIT_SECONDS, "timeout": LIMIT_SECONDS, **options})


def say(words):
    print(words, flush=True)


# ---- A rank -------------------------------------------------------------------------------------


def tell(name, function, *arguments):
    """Carries a row out on this rank, and prints what it was told."""
    error = None
    try:
        function(*arguments)
    except (Exception, KeyboardInterrupt) as raised:  # SystemExit is meant
        error = raised
    line = {"row": name, "at": time.monotonic(), "raised": error is not None,
            "classes": [f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__],
            "text": str(error), "rank": getattr(error, "rank", None),
            "trace": "".join(traceback.format_exception(type(error), error, error.__traceback__)) if error else ""}
    say(MARK + json.dumps(line))


def run_batch(batch):
    """All its rows on this rank."""
    given, afterwards = batch.begin()
    for row in batch.rows:
        tell(row.name, row.misuse, given)
        afterwards()


def cases(batches, alone):
    """For ranks.main(): by name."""
    return {**{batch.name: lambda batch=batch: run_batch(batch) for batch in batches},
            **{row.name: lambda row=row: tell(row.name, row.misuse) for row in alone}}


# ---- The test -----------------------------------------------------------------------------------


def lines_of(ranks, rank):
    """What a rank was told so far: row: line."""
    found = [json.loads(line[len(MARK):]) for line in ranks.output(rank).splitlines()
             if line.startswith(MARK) and line.endswith("}")]
    return {line["row"]: line for line in found}


class BadInputTest(unittest.TestCase):
    """The tests are added by add_tests()."""

    script = ""
    _told: Dict[str, Any] = {}
    _once = threading.Lock()

    def check_in(self, batch, row):
        """The ranks go through the whole batch once."""
        with self._once:
            if batch.name not in self._told:
                self._told[batch.name] = self.run_batch(batch)
        told, outputs = self._told[batch.name]
        for rank in range(batch.ranks):
            if row.name not in told[rank]:
                self.fail(f"{row.name}, rank {rank}: did not come to the end of it: {outputs}")
            self.check_told(row.told_to(rank), told[rank][row.name], f"{row.name}, rank {rank}")

    def run_batch(self, batch):
        """What each rank was told, by row, and the end of what they printed."""
        with Ranks(self.script, batch.name, batch.ranks) as ranks:
            for process in ranks.processes:
                self.wait_for(lambda process=process: process.poll() is not None)
            return [lines_of(ranks, rank) for rank in range(batch.ranks)], ranks.outputs()[-3000:]

    def check_alone(self, row):
        with Ranks(self.script, row.name, row.ranks) as ranks:
            begun = row.act(ranks) if row.act is not None else None
            for rank in range(row.ranks):
                line = self.check_rank(row, ranks, rank)
                if line is not None and begun is not None:
                    print(f"{row.name}, rank {rank}: told after {1000 * (line['at'] - begun):.1f} ms")

    def check_rank(self, row, ranks, rank):
        """What it was told, where that counts."""
        expected, process = row.told_to(rank), ranks.processes[rank]
        where = f"{row.name}, rank {rank}"
        if expected == ANYTHING:
            return None
        if isinstance(expected, Ends):
            self.wait_for(lambda: process.poll() is not None)
            self.assertEqual(process.returncode, expected.status, f"{where}: {ranks.outputs()}")
            self.check_words(expected.words, ranks.output(rank), where)
            return None
        self.wait_for(lambda: row.name in lines_of(ranks, rank) or process.poll() is not None)
        line = lines_of(ranks, rank).get(row.name)
        how = "hangs" if process.poll() is None else f"ended with {process.returncode}"
        self.assertIsNotNone(line, f"{where}: {how}: {ranks.outputs()}")
        self.check_told(expected, line, where)
        return line

    def wait_for(self, condition, seconds=LIMIT_SECONDS):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def check_told(self, expected, line, where):
        if expected is None:
            self.assertFalse(line["raised"], f"{where}: {line['trace']}")
            return
        if "unittest.case.SkipTest" in line["classes"]:
            self.skipTest(line["text"])
        kind = f"{expected.kind.__module__}.{expected.kind.__qualname__}"
        self.assertIn(kind, line["classes"], f"{where}: {line['text']}\n{line['trace']}")
        self.check_words(expected.words, line["text"], where)
        if expected.rank is not None:
            self.assertEqual(line["rank"], expected.rank, f"{where}: {line['text']}")

    def check_words(self, words, text, where):
        for word in words:
            self.assertIn(word, text, where)


def add_tests(test_case, batches, alone):
    """A test for each row, by its name."""
    checks = [(row.name, lambda self, batch=batch, row=row: self.check_in(batch, row))
              for batch in batches for row in batch.rows]
    checks += [(row.name, lambda self, row=row: self.check_alone(row)) for row in alone]
    assert len({name for name, _ in checks}) == len(checks), "two rows of one name"
    for name, check in checks:
        setattr(test_case, f"test_{name}", check)
