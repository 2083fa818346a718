#!/usr/bin/env python3
"""Writes a TorchScript module that Trainyard trains: a small convolutional network for 28x28 images.

    python3 export.py model.pt

Needs PyTorch, of the version that `trainyard-runtime-torch version` names or an older one.
"""
import sys
from typing import Dict

import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self, classes: int = 10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.dropout = nn.Dropout(0.25)
        self.output = nn.Linear(32 * 7 * 7, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.output(self.dropout(self.features(images).flatten(1)))

    # What Trainyard calls. images: float32 [samples, channels, height, width] in [0, 1]; labels: int64
    # [samples]. The loss is the mean over the batch.
    @torch.jit.export
    def loss(self, batch: Dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(self.forward(batch["images"]), batch["labels"])

    # For evaluation; optional. The module is in eval mode.
    @torch.jit.export
    def metrics(self, batch: Dict[str, Tensor]) -> Dict[str, Tensor]:
        logits = self.forward(batch["images"])
        return {
            "accuracy": logits.argmax(1).eq(batch["labels"]).float().mean(),
            "loss": nn.functional.cross_entropy(logits, batch["labels"]),
        }


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: export.py FILE")
    torch.manual_seed(1)
    torch.jit.script(Net()).save(sys.argv[1])


if __name__ == "__main__":
    main()
