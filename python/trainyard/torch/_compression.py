"""How gradients travel: as they are, or in 16 bits.

A compressor is a class with two static methods, so that scripts may bring one of their own.
"""
from __future__ import annotations

from typing import Any, Optional, Tuple

import torch


class Compressor:
    """What `compression=` takes. Tensors keep their shape; types may change on the way."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """The tensor to send and what `decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The tensor that came back, of the type that went in."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Everything travels as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Floating point travels as `wire_type`; everything else as it is."""

    wire_type: torch.dtype = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        sent = tensor.to(cls.wire_type) if tensor.dtype.is_floating_point else tensor
        return sent, tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Optional[torch.dtype]) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """IEEE half precision: 11 bits of mantissa, overflows above 65504."""

    wire_type = torch.float16


class BF16Compressor(_CastCompressor):
    """bfloat16: the range of float32 with 8 bits of mantissa."""

    wire_type = torch.bfloat16


class Compression:
    """The compressors by name: `compression=Compression.fp16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
