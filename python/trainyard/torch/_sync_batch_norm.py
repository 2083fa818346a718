"""Batch normalization over the batches of all ranks."""
from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

import trainyard
from trainyard.torch._handles import synchronize
from trainyard.torch._operations import Sum, allreduce_async


def _summed(*vectors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
    """Each vector's sum over all ranks, in one operation."""
    lengths = [vector.numel() for vector in vectors]
    joined = torch.cat([vector.reshape(-1) for vector in vectors])
    return tuple(torch.split(synchronize(allreduce_async(joined, op=Sum)), lengths))


def _along_channels(vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A value for each channel, spread over a batch of shape (N, C, ...)."""
    shape = [1, -1] + [1] * (like.dim() - 2)
    return vector.view(shape)


class _Normalize(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """(x, weight, bias, eps) -> (normalized, mean, variance, count) over all ranks' batches.

    Sums are formed in float32 at least. Ranks may have batches of different lengths, also none.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Optional[torch.Tensor],
                bias: Optional[torch.Tensor], eps: float) -> Tuple[torch.Tensor, ...]:
        wide = torch.promote_types(x.dtype, torch.float32)
        values = x.to(wide)
        over = [at for at in range(x.dim()) if at != 1]
        mine = values.new_tensor([x.numel() // x.size(1)])
        total, count = _summed(values.sum(over), mine)
        mean = total / count
        # In two rounds: the difference of two large sums would lose what counts.
        centered = values - _along_channels(mean, x)
        variance = _summed((centered * centered).sum(over))[0] / count
        scale = torch.rsqrt(variance + eps)
        normal = centered * _along_channels(scale, x)
        ctx.save_for_backward(normal, scale, weight, count)
        ctx.has_bias = bias is not None
        result = normal if weight is None else normal * _along_channels(weight.to(wide), x)
        result = result if bias is None else result + _along_channels(bias.to(wide), x)
        ctx.mark_non_differentiable(mean, variance, count)
        return result.to(x.dtype), mean, variance, count

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Tuple[Optional[torch.Tensor], ...]:
        normal, scale, weight, count = ctx.saved_tensors
        wide = gradient.to(normal.dtype)
        over = [at for at in range(normal.dim()) if at != 1]
        by_bias = wide.sum(over)
        by_weight = (wide * normal).sum(over)
        sums, products = _summed(by_bias, by_weight)
        inner = wide - _along_channels(sums / count, normal) \
            - normal * _along_channels(products / count, normal)
        factor = scale if weight is None else scale * weight.to(scale.dtype)
        by_input = (inner * _along_channels(factor, normal)).to(gradient.dtype)
        # Those of weight and bias are this rank's: the optimizer sums them, as all others.
        return (by_input, None if weight is None else by_weight.to(weight.dtype),
                by_bias.to(gradient.dtype) if ctx.has_bias else None, None)


class SyncBatchNorm(_BatchNorm):  # type: ignore[misc, unused-ignore]
    """torch.nn.BatchNorm*d whose mean and variance are those of all ranks' batches together.

    Input (N, C, ...), on any device; the first dimension may differ between ranks. In training every
    forward and backward pass is an operation: all ranks must run them. The gradients of weight and
    bias are this rank's.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        from_batch = self.training or self.running_mean is None
        if not from_batch or trainyard.size() == 1:
            return self._alone(input, from_batch)
        result: torch.Tensor
        result, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats and self.running_mean is not None:
            self._track(mean, variance, float(count))
        return result

    def _factor(self) -> float:
        """The share of this batch in the running statistics."""
        batches: Any = self.num_batches_tracked
        batches.add_(1)
        return 1.0 / float(batches) if self.momentum is None else float(self.momentum)

    def _alone(self, input: torch.Tensor, from_batch: bool) -> torch.Tensor:
        tracks = self.training and self.track_running_stats and self.running_mean is not None
        factor = self._factor() if tracks else 0.0
        tracked = self.running_mean is not None and (not self.training or self.track_running_stats)
        return functional.batch_norm(
            input, self.running_mean if tracked else None, self.running_var if tracked else None,
            self.weight, self.bias, from_batch, factor, self.eps)

    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
        factor = self._factor()
        unbiased = variance * (count / max(count - 1.0, 1.0))
        statistics: Any = ((self.running_mean, mean), (self.running_var, unbiased))
        with torch.no_grad():
            for running, new in statistics:
                running.mul_(1 - factor).add_(new.to(running.dtype), alpha=factor)
