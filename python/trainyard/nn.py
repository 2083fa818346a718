"""Layers whose weights are embedding tables of the job (`training.tables`), for models of trainyard.torch.

    import trainyard as ty
    import trainyard.nn
    import trainyard.torch as tyt

    job = ty.job()
    net.words = ty.nn.EmbeddingBag(job, "words")
    optimizer = tyt.ServerOptimizer(net, job)
"""
from __future__ import annotations

from trainyard.torch._embedding import Embedding, EmbeddingBag

__all__ = ["Embedding", "EmbeddingBag"]
