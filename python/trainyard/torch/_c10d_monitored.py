"""A barrier that says which ranks did not come."""
from __future__ import annotations

import time
from typing import List, Optional

import torch

from trainyard import Group, RankLost, TimedOut, TrainyardError
from trainyard import Work as TrainyardWork

# Tags of torch's own messages are smaller.
_TAGS = 1 << 63
# For a letter that is there already when no time is left.
_LEAST_SECONDS = 0.01
_ALL_CAME = 0


def monitored_barrier(group: Group, number: int, seconds: float, wait_all_ranks: bool) -> None:
    """Returns when all ranks have called it with the same number; each number is used once.

    The ranks write to rank 0, which waits so many seconds for them and answers when all have; they wait twice as long
    for that, since rank 0 may come last itself. Letters are outside of the order of the collectives: so it tells who
    hangs in one of these.

    Raises:
        trainyard.RankLost, TimedOut: on rank 0 with the first rank that did not come, or the text with all of them if
            `wait_all_ranks`; on those that came, with that rank. The words are those of torch's gloo.
    """
    tag = _TAGS + number
    if group.rank != 0:
        _come(group, tag, seconds)
        return
    failure = _watch(group, tag, seconds, wait_all_ranks)
    # Also to those that come too late.
    answer = torch.tensor([_ALL_CAME if failure is None else failure.rank], dtype=torch.int32)
    for rank in range(1, group.size):
        try:
            group.send(answer, rank, tag)
        except TrainyardError:
            if failure is None:
                raise
    if failure is not None:
        raise failure


def _watch(group: Group, tag: int, seconds: float, wait_all_ranks: bool) -> Optional[TrainyardError]:
    """Waits for the other ranks; what is to be raised."""
    end = time.monotonic() + seconds
    took = f"monitoredBarrier in {seconds * 1000:.0f} ms"
    missing: List[int] = []
    for rank in range(1, group.size):
        left = end - time.monotonic()
        if left <= 0 and not wait_all_ranks:
            return TimedOut(f"[Rank 0]: Rank 0 timed out in {took}, before rank {rank} came", rank)
        try:
            letter = group.receive(torch.empty(1, dtype=torch.int32), rank, tag, async_=True)
            assert isinstance(letter, TrainyardWork)
            letter.wait(max(left, _LEAST_SECONDS))
        except TrainyardError as error:
            if not wait_all_ranks:
                text = f"[Rank 0]: Rank {rank} failed to pass {took}: {error}"
                return RankLost(rank, text) if isinstance(error, RankLost) else TimedOut(text, rank)
            missing.append(rank)
    if not missing:
        return None
    ranks = ", ".join(str(rank) for rank in missing)
    return TimedOut(f"[Rank 0]: Ranks {ranks} failed to pass {took}", missing[0])


def _come(group: Group, tag: int, seconds: float) -> None:
    answer = torch.empty(1, dtype=torch.int32)
    text = (f"Rank {group.rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
            "from rank 0. Please check rank 0 logs for faulty rank")
    try:
        group.send(answer.fill_(group.rank), 0, tag)
        letter = group.receive(answer, 0, tag, async_=True)
        assert isinstance(letter, TrainyardWork)
        letter.wait(2 * seconds)
    except TrainyardError as error:
        raise TimedOut(f"{text}: {error}", 0) from error
    if answer.item() != _ALL_CAME:
        raise TimedOut(f"{text}: it lacked rank {answer.item()}", int(answer.item()))
