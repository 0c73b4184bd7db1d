"""Semantic segmentation: SS of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.tasks.base import Task

BACKGROUND, IGNORED = 0, 255


@dataclass(frozen=True)
class SemanticSegmentation(Task):
    """Targets are class indices of pixels, (b, h, w); cross-entropy; mean intersection over union in per cent.

    The paper does not say how its mIoU counts. Ours: background is class 0 and counts as one; pixels that are ``IGNORED`` (of crowds)
    count nowhere; intersections and unions are summed over the whole evaluation set; a class that is neither there nor predicted
    anywhere is left out of the mean. Outputs may be coarser than the targets and are enlarged to them.
    """

    metric: ClassVar[str] = "mIoU"
    head: ClassVar[str] = "decoder"
    evaluation_batch: ClassVar[int] = 32

    def n_outputs(self, classes: tuple[int, ...]) -> int:
        return 1 + len(classes)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        known = (targets != IGNORED).sum().clamp(min=1)
        return F.cross_entropy(_enlarged(outputs, targets), targets, ignore_index=IGNORED, reduction="sum") / known

    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Pixels by class and predicted class, (classes, classes)."""
        n = outputs.shape[1]
        known = targets != IGNORED
        predicted = _enlarged(outputs, targets).argmax(1)[known]
        return torch.bincount(targets[known] * n + predicted, minlength=n * n).reshape(n, n).double()

    def score(self, counts: Tensor) -> float:
        union = counts.sum(0) + counts.sum(1) - counts.diagonal()
        seen = union > 0
        return 100 * (counts.diagonal()[seen] / union[seen]).mean().item()

    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """Background everywhere."""
        classes = 1 + max(int(targets[targets != IGNORED].max()) for targets in (train, evaluation))
        counts = torch.bincount(evaluation[evaluation != IGNORED], minlength=classes)
        return self.score(F.pad(counts.double().unsqueeze(1), (BACKGROUND, classes - 1 - BACKGROUND)))


def _enlarged(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.interpolate(outputs, size=targets.shape[-2:], mode="bilinear", align_corners=False)
