"""ServerOptimizer: a torch model whose update the job makes, on its parameter servers or in its ring."""
from __future__ import annotations

from typing import Optional, Union

import torch

from trainyard._job import Job
from trainyard._session import Outcome, Turn
from trainyard.torch._program_model import ProgramModel, copy_into


class ServerOptimizer(ProgramModel):
    """In the place of a torch optimizer: the job's `optimizer`, with its learning rate, clipping and schedule, makes the
    update.

        job = ty.job()
        optimizer = tyt.ServerOptimizer(net, job)
        for x, y in job.steps(loader):
            optimizer.zero_grad()
            loss = cross_entropy(net(x), y)
            loss.backward()                   # each gradient leaves as it is there
            optimizer.step(loss)

    Rows that EmbeddingBag and Embedding (trainyard.nn) of the model have looked up get their gradients as well.

    The loss is the MEAN over the step's batch. For several backward passes a step (gradient accumulation, or to change
    gradients before they leave) all passes but the last, or all of them, go into `no_sync()`.

    Trained are the parameters that require a gradient, as float32 whatever type they have here. Everything else of
    `net.state_dict()` is worker-0's with checkpoints, and this worker's own while it trains. At the start of each step
    torch's random numbers are seeded by the place of its samples (and torch.initial_seed()), so that a step that is taken
    again is the same step. What the processes of a loader draw has seeds of their own.
    """

    def __init__(self, net: torch.nn.Module, job: Job, keyed_random: bool = True) -> None:
        """Before job.steps().

        Args:
            keyed_random: whether random numbers are seeded as above.

        Raises:
            InvalidArgument: nothing to train, an empty or sparse parameter, a type that does not travel.
        """
        super().__init__(net, job, keyed_random)

    def stand(self, turn: Turn) -> bool:
        """A step without samples for this worker."""
        self._left = []
        self._session.finish(0.0, 0)
        return True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As of torch's optimizers."""
        for _, parameter in self._trained:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = torch.zeros_like(parameter.grad)
        for lookup in self._lookups:
            lookup.zero_grad_rows()

    def step(self, loss: Union[torch.Tensor, float], hits: Optional[Union[torch.Tensor, int]] = None) -> Outcome:
        """Waits until the update is made; the new weights come with the next batch.

        Args:
            loss: the mean over the step's batch. Parameters that got no gradient count as with zeros.
            hits: how many of the batch were told right in this pass; where all workers say so, the job records the
                share as ``training_accuracy``.

        Returns:
            Whether the step counts; otherwise the same batch comes again.
        """
        samples = self.leave_all()
        copy_into(self._kept_values, self._kept)
        if hits is not None:
            self._session.count_hits(int(hits))
        outcome = self._session.finish(float(loss) * samples, samples)
        self._job.stepped(outcome)
        return outcome
