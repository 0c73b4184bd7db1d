"""Samples of one user, and the draw of its local training set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedmuscle_lib.core.randomness import generator

MOSTLY = 0.5  # a larger `share_in` of test samples is remarked on


@dataclass(frozen=True)
class Samples:
    """Samples that a user learns from.

    Attributes:
        inputs: (n, 3, h, w) uint8 pixels, or (n, l) int64 token ids.
        targets: n rows; the task says what they are.
        names: of the classes, where the user's file has them.
    """

    inputs: Tensor
    targets: Tensor
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: str) -> Samples:
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def take(self, rows: Tensor) -> Samples:
        return replace(self, inputs=self.inputs[rows], targets=self.targets[rows])


def draw_local(samples: Samples, n: int, *address: object, balanced: bool = True) -> Samples:
    """Draw ``n`` samples from a user's pool; the address alone decides which.

    If targets are labels, an integer a sample, a balanced draw is as even over the classes as the
    pool allows.
    """
    order = torch.randperm(len(samples), generator=generator("local data", *address))
    if balanced and samples.targets.ndim == 1 and not samples.targets.is_floating_point():
        order = order[
            torch.argsort(ranks(samples.targets[order]), stable=True)
        ]  # which goes round the classes
    return samples.take(order[:n])


def ranks(labels: Tensor) -> Tensor:
    """Return how many samples of its class stand before each sample, (n,)."""
    by_class = torch.argsort(labels, stable=True)
    first = torch.searchsorted(labels[by_class], labels[by_class])
    rank = torch.empty_like(by_class)
    rank[by_class] = torch.arange(len(labels)) - first
    return rank


def share_in(samples: Tensor, others: Tensor, filler: int = 0) -> float:
    """The share of samples that are also among others, read alike; 0 if they are read otherwise.

    Args:
        filler: what stands behind a text's end, (n, l).
    """
    known = set(_hashes(others, filler))
    found = [each in known for each in _hashes(samples, filler)]
    return sum(found) / max(1, len(found))


def _hashes(samples: Tensor, filler: int) -> Iterator[int]:
    for row in samples.cpu():
        yield hash((row if row.ndim > 1 else row[row != filler]).numpy().tobytes())
