"""The model of a job as arrays of the buffer protocol."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from trainyard._errors import InvalidArgument
from trainyard._job import Job
from trainyard._session import Outcome, Session, Turn, Variable


class Arrays:
    """The variables of a model as arrays of the buffer protocol (numpy's, array.array, bytearray with a cast): for
    programs that compute without torch.

        arrays = ty.Arrays(job, {"weights": weights, "bias": bias})
        for batch in job.steps(loader):
            ...
            arrays.step({"weights": gradient, "bias": bias_gradient}, loss_sum)

    They are float32, C-contiguous and writable; the job writes the weights of each step into them.
    """

    own_update = False
    has_state = False

    def __init__(self, job: Job, arrays: Dict[str, Any]) -> None:
        """Raises:
            InvalidArgument: an array is of another type, or cannot be written.
        """
        self._job = job
        self._names = list(arrays)
        self._own = [_floats(array, name, writable=True) for name, array in arrays.items()]
        self._shapes = [memoryview(array).shape or () for array in arrays.values()]
        self._session = job.attach(self)

    def variables(self) -> List[Variable]:
        return [Variable(name, tuple(shape)) for name, shape in zip(self._names, self._shapes)]

    def begin(self, session: Session) -> None:
        for at, own in enumerate(self._own):
            session.value(at)[:] = own

    def arrived(self, turn: Turn) -> None:
        for at, own in enumerate(self._own):
            own[:] = self._session.value(at)

    def ready(self, turn: Turn) -> None:
        pass

    def reading(self, first: int) -> None:
        pass

    def save(self) -> bytes:
        return b""

    def load(self, saved: bytes) -> None:
        pass

    def stand(self, turn: Turn) -> bool:
        self._session.finish(0.0, 0)
        return True

    def step(self, gradients: Dict[str, Any], loss_sum: Any, hits: Optional[Any] = None) -> Outcome:
        """Hands over the gradients, and waits for the update.

        Args:
            gradients: by name, float32, of all variables: the SUMS over this worker's samples of the step.
            loss_sum: over the same.
            hits: how many of the same were told right, a whole number; where all workers say so, the job records the
                share as ``training_accuracy``.

        Raises:
            InvalidArgument: one is missing, or of another type or size; more hits than samples.
        """
        turn = self._job.turn()
        unknown = sorted(set(gradients) ^ set(self._names))
        if unknown:
            raise InvalidArgument(f"step {turn.step}: gradients of {', '.join(self._names)} are needed; missing or "
                                  f"unknown: {', '.join(unknown)}")
        for at, name in enumerate(self._names):
            given, place = _floats(gradients[name], f"the gradient of {name}"), self._session.gradient(at)
            if len(given) != len(place):
                raise InvalidArgument(f"the gradient of {name} has {len(given)} elements, not {len(place)}")
            place[:] = given
            self._session.push(at)
        if hits is not None:
            self._session.count_hits(int(hits))
        outcome = self._session.finish(float(loss_sum), len(turn.samples))
        self._job.stepped(outcome)
        return outcome


def _floats(array: Any, what: str, writable: bool = False) -> memoryview[float]:
    """The elements, flat."""
    try:
        view = memoryview(array)
    except TypeError:
        raise InvalidArgument(f"{what}: {type(array).__name__} has not the buffer protocol") from None
    if view.format != "f" or not view.c_contiguous or (writable and view.readonly):
        raise InvalidArgument(f"{what}: float32, C-contiguous{' and writable' if writable else ''} elements are needed, "
                              f"not format {view.format!r}")
    return view.cast("B").cast("f")
