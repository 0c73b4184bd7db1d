"""Multi-label image classification: MLC of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.tasks.base import Task


@dataclass(frozen=True)
class MultiLabelClassification(Task):
    """Targets are multi-hot, shape (b, classes); independent sigmoids; micro-averaged F1 in per cent.

    The paper does not state the decision threshold; ours is a probability of 0.5.
    """

    metric: ClassVar[str] = "micro-F1"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets)

    def score(self, outputs: Tensor, targets: Tensor) -> float:
        predicted, actual = outputs > 0, targets > 0.5
        hits = (predicted & actual).sum().item()
        wrong = (predicted ^ actual).sum().item()
        return 100 * 2 * hits / max(1, 2 * hits + wrong)
