"""Single-label image classification: IC10 and IC100 of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.tasks.base import Classification


@dataclass(frozen=True)
class ImageClassification(Classification):
    """Targets are class indices, shape (b,); cross-entropy; top-1 accuracy in per cent."""

    n_classes: int
    metric: ClassVar[str] = "Accuracy"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    def score(self, outputs: Tensor, targets: Tensor) -> float:
        return 100 * (outputs.argmax(1) == targets).float().mean().item()

    @property
    def outcomes(self) -> int:
        return self.n_classes

    def decisions(self, outputs: Tensor) -> Tensor:
        """One decision between all classes: (n, 1, classes)."""
        return F.log_softmax(outputs, dim=-1).unsqueeze(1)

    def outputs(self, log_p: Tensor) -> Tensor:
        return log_p[:, 0]

    def certainty(self, log_p: Tensor) -> Tensor:
        """The largest probability."""
        return log_p[:, 0].exp().amax(-1)

    def alike(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        same = targets[:, None] == targets[None]
        return same, ~same
