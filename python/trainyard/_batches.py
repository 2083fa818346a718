"""Which samples a worker of a job reads, in the form in which loaders ask for them: as batch samplers.

A loader with processes of its own asks ahead of the job, which only says with each turn what is to be read. So what comes
next is guessed, and what was read on a wrong guess is dropped and read again: nothing is left out, and nothing is used
twice.
"""
from __future__ import annotations

import collections
from typing import Any, Callable, Deque, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from trainyard._arguments import whole
from trainyard._errors import InvalidArgument

_MOST_SAMPLES = 100_000_000


class Place(NamedTuple):
    """Of one worker's batch in the stream of samples, in which every sample comes once a pass."""

    first: int
    samples: int


class Batches:
    """Lists of sample numbers, one for each step, without end: what torch's DataLoader takes as `batch_sampler`."""

    def __init__(self, samples: int, numbers: Callable[[int, int], List[int]]) -> None:
        """`numbers(first, count)`: the samples that stand there in the stream."""
        self.samples = whole(samples, "samples to train on", 1, _MOST_SAMPLES)
        self._numbers = numbers
        self._asked: Deque[Place] = collections.deque()  # and not taken yet
        self._next: Optional[Place] = None
        self._stride = 0

    def __iter__(self) -> Iterator[List[int]]:
        self._asked.clear()
        while True:
            place = self._next
            if place is None:
                raise InvalidArgument("job.batches() says what to read only within job.steps()")
            self._asked.append(place)
            # All else staying as it is, as it does but for changes of the membership and the end of the stream.
            self._next = place._replace(first=place.first + self._stride)
            yield self._numbers(*place)

    def expect(self, place: Place, stride: int) -> None:
        """The turn's place, and how far behind it that of the next step probably is."""
        self._stride = stride
        if place not in self._asked and place != self._next:
            self._next = place

    def coming(self, stride: int) -> Optional[Place]:
        """What is asked for next, the turn's batch being here already."""
        self._stride = stride
        return self._next

    def taken(self) -> Optional[Place]:
        """What the oldest batch is that was asked for and not taken; None: there is none."""
        return self._asked.popleft() if self._asked else None


class EvaluationBatches:
    """Lists of numbers of the samples that this worker evaluates, at most `size` in each."""

    def __init__(self, samples: int, size: int) -> None:
        self.samples = whole(samples, "samples to evaluate", 1, _MOST_SAMPLES)
        self.size = whole(size, "the size of a batch", 1)
        self.share: Optional[range] = None

    def __iter__(self) -> Iterator[List[int]]:
        share = self.share
        if share is None:
            raise InvalidArgument("job.evaluation_batches() says what to read only within job.evaluate()")
        for begin in range(share.start, share.stop, self.size):
            yield list(range(begin, min(begin + self.size, share.stop)))


class Reader:
    """What a loader has read for each turn."""

    def __init__(self, loader: Iterable[Any], batches: Batches) -> None:
        self._loader = loader
        self._batches = batches
        self._items: Optional[Iterator[Any]] = None
        self._ahead: Optional[Tuple[Place, Any]] = None  # read, and no turn's yet
        self.dropped = 0  # batches that were read on a wrong guess

    def read(self, place: Place, stride: int) -> Any:
        """The batch of the turn.

        Raises:
            InvalidArgument: the loader ended, or does not read by job.batches().
        """
        if self._ahead is not None:
            (guess, batch), self._ahead = self._ahead, None
            if guess == place:
                self._batches.coming(stride)
                return batch
            self.dropped += 1
        self._batches.expect(place, stride)
        if self._items is None:
            self._items = iter(self._loader)
        for batch in self._items:
            read = self._batches.taken()
            if read is None:
                raise InvalidArgument("the loader does not read what the job says: make it with "
                                      "batch_sampler=job.batches(len(data))")
            if read == place:
                return batch
            self.dropped += 1
        raise InvalidArgument("the loader ended before the job: it must read all that job.batches() gives")

    def read_ahead(self, stride: int, begin: Callable[[int], None]) -> Optional[Tuple[Place, Any]]:
        """Behind read(): the batch that probably comes next; None: there is none.

        Args:
            begin: called before a loader without processes of its own reads it, with the place of its first sample.
        """
        coming = self._batches.coming(stride)
        if coming is None or self._items is None:
            return None
        begin(coming.first)
        for batch in self._items:
            read = self._batches.taken()
            if read is not None:
                self._ahead = (read, batch)
            break
        return self._ahead
