"""torch.distributed.ReduceOp as the library's reductions."""
from __future__ import annotations

from typing import Any, NamedTuple

from trainyard import InvalidArgument, Reduction


class Reducing(NamedTuple):
    """How values become one: postscale is always 1 for torch."""

    reduction: Reduction
    prescale: float = 1.0

    @property
    def linear(self) -> bool:
        """Whether it may be done to the parts of complex numbers."""
        return self.reduction in (Reduction.SUM, Reduction.AVERAGE)


_NAMES = {
    "SUM": Reduction.SUM,
    "AVG": Reduction.AVERAGE,
    "PRODUCT": Reduction.PRODUCT,
    "MIN": Reduction.MIN,
    "MAX": Reduction.MAX,
    "BAND": Reduction.BIT_AND,
    "BOR": Reduction.BIT_OR,
    "BXOR": Reduction.BIT_XOR,
}


def reducing_of(given: Any) -> Reducing:
    """From options with `reduceOp`, a ReduceOp, one of its members, or None for the sum.

    Raises:
        InvalidArgument: the library has no such reduction.
    """
    op = getattr(given, "reduceOp", given)
    if op is None:
        return Reducing(Reduction.SUM)
    name = getattr(getattr(op, "op", op), "name", str(op))
    if name == "PREMUL_SUM":
        return Reducing(Reduction.SUM, _factor(op))
    if name not in _NAMES:
        raise InvalidArgument(f"ReduceOp.{name} is not among {', '.join(_NAMES)}, PREMUL_SUM")
    return Reducing(_NAMES[name])


def _factor(op: Any) -> float:
    try:
        # Before torch 2.15 only a pickled one tells it, and before 2.0 that neither.
        factor = op.factor if hasattr(op, "factor") else op.__getstate__()[1]
        return float(factor)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgument("ReduceOp.PREMUL_SUM: this version of torch does not tell its factor, or it is not one "
                              "number") from None


__all__ = ["Reducing", "reducing_of"]
