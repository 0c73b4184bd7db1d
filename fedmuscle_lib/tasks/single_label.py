"""Classification into classes that exclude each other: of pictures, IC10 and IC100 of the paper, and of texts, TC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.tasks.base import Classification


@dataclass(frozen=True)
class SingleLabelClassification(Classification):
    """Targets are class indices, shape (b,); cross-entropy; top-1 accuracy in per cent."""

    n_classes: int
    metric: ClassVar[str] = "Accuracy"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Hits, and samples."""
        return torch.stack([(outputs.argmax(1) == targets).sum(), torch.tensor(len(targets), device=outputs.device)]).double()

    def score(self, counts: Tensor) -> float:
        hits, samples = counts.tolist()
        return 100 * hits / samples

    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """Always the training set's most frequent class, the first of those that are."""
        majority = F.one_hot(train, self.n_classes).sum(0).argmax()
        return 100 * (evaluation == majority).double().mean().item()

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


class ImageClassification(SingleLabelClassification):
    """Reads pictures; the head is two layers."""


class TextClassification(SingleLabelClassification):
    """Reads texts; the head is one layer."""

    head: ClassVar[str] = "linear"
