"""Text generation, which the README's package lists and the paper's tables don't hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.tasks.base import Task

NO_TOKEN = -100


@dataclass(frozen=True)
class TextGeneration(Task):
    """Targets are the texts' own token ids, (b, l), ``NO_TOKEN`` where one has ended; each token is predicted from those before it.

    The metric is the perplexity, exp of the mean negative log-likelihood of a token over the whole evaluation set: not a percentage, and
    the lower the better.
    """

    metric: ClassVar[str] = "Perplexity"
    lower_is_better: ClassVar[bool] = True
    head: ClassVar[str] = "language model"
    evaluation_batch: ClassVar[int] = 32

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        total, tokens = self.count(outputs, targets)
        return total / tokens.clamp(min=1)

    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood, and tokens."""
        following = targets[:, 1:].flatten()
        total = F.cross_entropy(outputs[:, :-1].flatten(0, 1), following, ignore_index=NO_TOKEN, reduction="sum")
        return torch.stack([total, (following != NO_TOKEN).sum().to(total.dtype)])

    def score(self, counts: Tensor) -> float:
        total, tokens = counts.tolist()
        return math.exp(total / tokens)

    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """Every token as often as in the training texts, each that was never seen there as often as one that was seen once."""
        train, evaluation = (targets[:, 1:][targets[:, 1:] != NO_TOKEN] for targets in (train, evaluation))
        seen = torch.bincount(train, minlength=1 + int(max(train.max(), evaluation.max()))).clamp(min=1).double()
        return math.exp(-(seen / seen.sum()).log()[evaluation].mean().item())
