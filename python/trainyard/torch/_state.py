"""State: a torch model with an optimizer of its own, whose gradients the job sums; strategy AllReduce."""
from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Optional, Union

import torch

from trainyard._errors import InvalidArgument
from trainyard._job import Job
from trainyard._session import Session, Turn
from trainyard.torch._program_model import ProgramModel, copy_into


class State(ProgramModel):
    """Model, optimizer, scheduler and whatever else makes the next step, which no worker loses alone.

        job = ty.job()
        state = tyt.State(job, net, optimizer, scheduler)
        for x, y in job.steps(loader):
            optimizer.zero_grad()
            loss = cross_entropy(net(x), y)
            loss.backward()                       # each gradient leaves as it is there
            state.step(loss)                      # optimizer.step() and scheduler.step()

    or, for who has more to do there:

            with state.commit(loss) as complete:  # all workers' gradients are in, or the batch comes again
                if complete:
                    optimizer.step()
                    scheduler.step()

    Within commit() gradients are the means over all workers' samples, clipped where the job clips, with the same bits in
    all workers. A worker that joins gets model and state from another one; when all have died they come from the newest
    checkpoint. The job's `optimizer` is not used.

    The loss is the MEAN over the step's batch; for several backward passes a step see ServerOptimizer, as for random
    numbers. Nothing but what commit() encloses may change model, optimizer or scheduler.

    Attributes:
        values: what else is to go with the model, by name; can be pickled.
    """

    own_update = True
    has_state = True

    def __init__(self, job: Job, net: torch.nn.Module, *parts: Any, keyed_random: bool = True) -> None:
        """Before job.steps().

        Args:
            parts: optimizer, scheduler, scaler: with state_dict() and load_state_dict().

        Raises:
            InvalidArgument: as of ServerOptimizer; a part has no state.
        """
        for part in parts:
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise InvalidArgument(f"State: a {type(part).__name__} has no state_dict() and load_state_dict(); what is "
                                      "to be kept besides goes into `values`")
        super().__init__(net, job, keyed_random)
        self._parts: List[Any] = list(parts)
        self.values: Dict[str, Any] = {}

    def begin(self, session: Session) -> None:
        super().begin(session)
        for (_, parameter), value in zip(self._trained, self._values):
            # The optimizer then writes the next version where it has to be.
            if parameter.dtype == torch.float32 and parameter.device.type == "cpu":
                parameter.data = value

    def stand(self, turn: Turn) -> bool:
        """A step without samples for this worker, which makes the same update: the loop's body knows how."""
        return False

    @contextlib.contextmanager
    def commit(self, loss: Union[torch.Tensor, float],
               hits: Optional[Union[torch.Tensor, int]] = None) -> Iterator[bool]:
        """Waits until the gradients of all workers are in; at the end of the block the step is taken.

        Args:
            loss: the mean over the step's batch.
            hits: as of ServerOptimizer.step().

        Yields:
            Whether the step is to be taken. Otherwise nothing may change, and the same batch comes again.
        """
        samples = self.leave_all()
        if hits is not None:
            self._session.count_hits(int(hits) if samples else 0)
        outcome = self._session.sum(float(loss) * samples if samples else 0.0, samples)
        if not outcome.complete:
            yield False
            self._job.stepped(outcome)
            return
        for (_, parameter), mean in zip(self._trained, self._gradients):
            same = parameter.dtype == torch.float32 and parameter.device.type == "cpu"
            parameter.grad = mean if same else mean.to(parameter.device, parameter.dtype)
        yield True
        copy_into(self._values, self._trained)
        copy_into(self._kept_values, self._kept)
        self._job.stepped(self._session.commit())

    def step(self, loss: Union[torch.Tensor, float], hits: Optional[Union[torch.Tensor, int]] = None) -> bool:
        """commit() around the step() of each part that has one, in their order. Whether the step was taken."""
        with self.commit(loss, hits) as complete:
            for part in self._parts if complete else ():
                if hasattr(part, "step"):
                    part.step()
        return complete

    def state(self) -> Dict[str, Any]:
        """What goes with the weights."""
        return {**super().state(), "parts": [part.state_dict() for part in self._parts], "values": self.values}

    def set_state(self, state: Dict[str, Any]) -> None:
        super().set_state(state)
        for part, saved in zip(self._parts, state["parts"]):
            part.load_state_dict(saved)
        self.values = state["values"]
