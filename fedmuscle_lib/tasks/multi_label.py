"""Multi-label image classification: MLC of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.tasks.base import Classification


@dataclass(frozen=True)
class MultiLabelClassification(Classification):
    """Targets are multi-hot, shape (b, classes); independent sigmoids; micro-averaged F1 in per cent.

    The paper does not state the decision threshold; ours is a probability of 0.5.
    """

    metric: ClassVar[str] = "micro-F1"
    outcomes: ClassVar[int] = 2

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets)

    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Classes that were rightly found, and those that were wrongly found or missed."""
        predicted, actual = outputs > 0, targets > 0.5
        return torch.stack([(predicted & actual).sum(), (predicted ^ actual).sum()]).double()

    def score(self, counts: Tensor) -> float:
        hits, wrong = counts.tolist()
        return 100 * 2 * hits / max(1, 2 * hits + wrong)

    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """Every class always present: what is never found can't be F1's best."""
        return self.score(self.count(torch.ones_like(evaluation), evaluation))

    def decisions(self, outputs: Tensor) -> Tensor:
        """A decision a class between absent and present: (n, classes, 2)."""
        return torch.stack([F.logsigmoid(-outputs), F.logsigmoid(outputs)], dim=-1)

    def outputs(self, log_p: Tensor) -> Tensor:
        return log_p[..., 1] - log_p[..., 0]

    def certainty(self, log_p: Tensor) -> Tensor:
        """The largest probability of a class to be present: that all are absent is sure of most pictures, and says little."""
        return log_p[..., 1].exp().amax(-1)

    def alike(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Same: at least half of the classes of either in common (Jaccard index 0.5); nothing in common: no class."""
        common = targets @ targets.T
        counts = targets.sum(1)
        union = counts[:, None] + counts[None] - common
        same = common >= 0.5 * union  # two samples without any class are alike
        return same, (common == 0) & (union > 0)
