"""Which gradients travel together: fixed before the first step, the same on all ranks.

Nothing is negotiated between ranks, so what travels when may depend only on what all ranks know:
names, types and sizes of the parameters in the order in which they were declared.
"""
from __future__ import annotations

from typing import Dict, Hashable, List, NamedTuple, Optional, Sequence

# The first bucket is small, so that the wire is busy early in the backward pass; the others are as
# large as pays for what an operation costs by itself.
FIRST_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20


class Entry(NamedTuple):
    """One parameter. `kind` is its type and device: what differs in it does not travel together."""

    size_bytes: int
    kind: Hashable


def plan_buckets(entries: Sequence[Entry], groups: Optional[Sequence[Sequence[int]]] = None,
                 alone: Sequence[int] = (), first_bytes: int = FIRST_BYTES,
                 bucket_bytes: int = BUCKET_BYTES) -> List[List[int]]:
    """Positions in `entries`, bucket by bucket, in the order in which buckets are sent.

    Gradients become ready about in the reverse order of the parameters' declaration, so buckets are
    filled from the last parameter on. A bucket holds one kind and at most `first_bytes` (the first
    of its kind) or `bucket_bytes`, unless one parameter alone is larger. Those in `groups` make a
    bucket of each group, whatever its size, of each kind in it; those in `alone` one each.
    A bucket's place is that of its last member: the one that is ready last.
    """
    taken = set(alone)
    buckets = [[at] for at in alone]
    for group in groups or ():
        members = [at for at in group if at not in taken]
        taken.update(members)
        buckets += _by_kind(entries, members)
    free = [at for at in reversed(range(len(entries))) if at not in taken]
    buckets += _filled(entries, free, first_bytes, bucket_bytes)
    return sorted(buckets, key=min, reverse=True)


def split_evenly(count: int, parts: int) -> List[List[int]]:
    """0 to `count` - 1 in `parts` runs whose lengths differ by at most 1; none is empty."""
    short, longer = divmod(count, parts)
    runs: List[List[int]] = []
    begin = 0
    for part in range(parts):
        end = begin + short + (1 if part < longer else 0)
        if end > begin:
            runs.append(list(range(begin, end)))
        begin = end
    return runs


def _by_kind(entries: Sequence[Entry], members: Sequence[int]) -> List[List[int]]:
    kinds: Dict[Hashable, List[int]] = {}
    for at in sorted(members, reverse=True):
        kinds.setdefault(entries[at].kind, []).append(at)
    return list(kinds.values())


def _filled(entries: Sequence[Entry], order: Sequence[int], first_bytes: int,
            bucket_bytes: int) -> List[List[int]]:
    closed: List[List[int]] = []
    opened: Dict[Hashable, List[int]] = {}
    room: Dict[Hashable, int] = {}
    for at in order:
        size, kind = entries[at]
        bucket = opened.get(kind)
        if bucket is not None and size > room[kind]:
            closed.append(bucket)
            bucket = None
            room[kind] = bucket_bytes
        if bucket is None:
            bucket = opened[kind] = []
            room.setdefault(kind, first_bytes)
        bucket.append(at)
        room[kind] -= size
    return closed + list(opened.values())
