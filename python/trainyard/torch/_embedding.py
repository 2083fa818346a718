"""EmbeddingBag and Embedding over the job's tables: rows lie on its parameter servers, and a step moves those it uses."""
from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch.nn import functional

from trainyard._errors import InvalidArgument
from trainyard._job import Job
from trainyard._session import Combiner, Table, TurnKind

_MODES = {"sum": Combiner.SUM, "mean": Combiner.MEAN, "sqrtn": Combiner.SQRTN}


class _Used(NamedTuple):
    """Rows that a step has looked up: each id once.

    Attributes:
        counts: how often each occurs, int32.
        rows: [ids, dim]; their gradients gather there.
    """

    ids: torch.Tensor
    counts: torch.Tensor
    rows: torch.Tensor


class TableLookup(torch.nn.Module):
    """What EmbeddingBag and Embedding have in common. It has no parameters: its weights are the job's."""

    def __init__(self, job: Job, table: str) -> None:
        super().__init__()
        self._table: Table = job.table(table)
        self._job = job
        self._used: List[_Used] = []
        self._belongs = False

    def extra_repr(self) -> str:
        return f"{self._table.name!r}, dim={self._table.dim}"

    def belong(self, job: Job) -> None:
        """To the model that ServerOptimizer trains."""
        if job is not self._job:
            raise InvalidArgument(f"{self!r} is of another job than its model")
        self._belongs = True

    def begin_turn(self) -> None:
        self._used = []

    def zero_grad_rows(self) -> None:
        for used in self._used:
            used.rows.grad = None

    def leave(self, samples: int) -> None:
        """Hands over the gradients of the step, whose loss is the mean over so many samples."""
        for ids, counts, rows in self._used:
            if rows.grad is not None and samples > 0:
                sums = rows.grad.detach().to("cpu", torch.float32).mul(samples).contiguous()
                self._job._session.push_rows(self._table.number, ids.data_ptr(), counts.data_ptr(), len(ids),
                                                sums.data_ptr())
        self._used = []

    def look_up(self, ids: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """Rows of the distinct ids, and of each of `ids`, which are flat, where its row is."""
        turn = self._job.turn()
        if ids.dtype not in (torch.int64, torch.int32):
            raise InvalidArgument(f"{self!r}: ids are int64 or int32, not {ids.dtype}")
        distinct, places, counts = torch.unique(ids.detach().to("cpu", torch.int64), return_inverse=True,
                                                return_counts=True)
        rows = torch.empty(len(distinct), self._table.dim)
        self._job._session.rows(self._table.number, distinct.data_ptr(), len(distinct), rows.data_ptr())
        rows = rows.to(ids.device)
        if turn.kind is TurnKind.TRAIN and torch.is_grad_enabled():
            if not self._belongs:
                raise InvalidArgument(f"{self!r} belongs to no model: it must be a part of the one that ServerOptimizer "
                                      "is given")
            rows.requires_grad_()
            self._used.append(_Used(distinct, counts.to(torch.int32), rows))
        return rows, places.to(ids.device)


class EmbeddingBag(TableLookup):
    """As torch.nn.EmbeddingBag, over a table of the job (`training.tables`), by any ids of 64 bits: rows are made when
    they are first trained, and begin as the table's `initial` says.

        net.words = trainyard.nn.EmbeddingBag(job, "words", mode="mean")
        ...
        net.words(ids, offsets)                  # [bags, dim]
    """

    def __init__(self, job: Job, table: str, mode: Optional[str] = None) -> None:
        """Args:
            table: its name in the job's file, which has also the rows' dim.
            mode: sum, mean or sqrtn (sum / sqrt(n)); None: the table's combiner.

        Raises:
            InvalidArgument: no such table or mode.
        """
        super().__init__(job, table)
        if mode is not None and mode not in _MODES:
            raise InvalidArgument(f"EmbeddingBag: mode {mode!r} is none of {', '.join(_MODES)}")
        self._combiner = self._table.combiner if mode is None else _MODES[mode]

    def forward(self, input: torch.Tensor, offsets: Optional[torch.Tensor] = None,
                per_sample_weights: Optional[torch.Tensor] = None) -> torch.Tensor:
        """[bags, dim]. A bag without ids has zeros.

        Args:
            input: [bags, n] ids, or all bags' ids one after the other.
            offsets: of ids one after the other: where each bag begins.
            per_sample_weights: by id, with mode sum.
        """
        if (input.dim() == 1) != (offsets is not None):
            raise InvalidArgument(f"{self!r}: ids [bags, n], or one after the other with the offsets of bags")
        rows, places = self.look_up(input.reshape(-1))
        mode = "mean" if self._combiner is Combiner.MEAN else "sum"
        if len(rows) == 0:
            return rows.new_zeros(len(input) if offsets is None else len(offsets), self._table.dim)
        bags: torch.Tensor = functional.embedding_bag(places.view(input.shape), rows, offsets, mode=mode,
                                                      per_sample_weights=per_sample_weights)
        if self._combiner is Combiner.SQRTN:
            bags = bags / _lengths(input, offsets).clamp(min=1).sqrt().unsqueeze(1)
        return bags


class Embedding(TableLookup):
    """As torch.nn.Embedding, over a table of the job: [...] ids, [..., dim] rows."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        rows, places = self.look_up(input.reshape(-1))
        if len(rows) == 0:
            return rows.new_zeros(*input.shape, self._table.dim)
        found: torch.Tensor = functional.embedding(places.view(input.shape), rows)
        return found


def _lengths(input: torch.Tensor, offsets: Optional[torch.Tensor]) -> torch.Tensor:
    """Ids of each bag, as floats."""
    if offsets is None:
        return torch.full((len(input),), float(input.shape[1]), device=input.device)
    ends = torch.cat([offsets[1:], offsets.new_tensor([len(input)])])
    return (ends - offsets).to(torch.float32)
