"""Semantic segmentation: SS of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.data.coco import Annotation, Instances
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.tasks.task import Head, Task

BACKGROUND, IGNORED = 0, 255


@dataclass(frozen=True)
class SemanticSegmentation(Task):
    """Targets are class indices of pixels, (b, h, w); cross-entropy; mean intersection over union
    in per cent.

    The paper does not define its mIoU. Ours: background is class 0 and counts as a class;
        ``IGNORED`` pixels (crowds) count nowhere;
    intersections and unions are summed over the whole evaluation set; the mean leaves out a class
    that is neither present nor predicted anywhere. Outputs may be coarser than the targets; they
    are enlarged to them.
    """

    suffix: ClassVar[str] = ".json"
    metric: ClassVar[str] = "mIoU"
    head: ClassVar[Head] = "decoder"
    evaluation_batch: ClassVar[int] = 32

    def _read(self, path: Path, images: Path, encoding: Pixels) -> tuple[Samples, tuple[int, ...]]:
        """A pixel has the category of the smallest object that covers it.

        A pixel that only a crowd covers is ignored.
        """
        coco, size = Instances(path), (encoding.size, encoding.size)
        targets = torch.full((len(coco.images), *size), BACKGROUND)
        for row, image in enumerate(coco.images):
            scene = np.full(coco.shape(image), BACKGROUND, np.uint8)
            for annotation in sorted(coco.annotations(image), key=_painted):
                column = coco.column(annotation)
                scene[coco.mask(annotation)] = (
                    IGNORED if annotation.get("iscrowd", 0) else 1 + column
                )
            targets[row] = F.interpolate(
                torch.from_numpy(scene)[None, None].float(), size=size, mode="nearest"
            )[0, 0].long()
        return Samples(coco.load(images, encoding), targets, coco.names), coco.classes

    def n_outputs(self, classes: tuple[int, ...]) -> int:
        return 1 + len(classes)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        known = (targets != IGNORED).sum().clamp(min=1)
        return (
            F.cross_entropy(
                _enlarged(outputs, targets), targets, ignore_index=IGNORED, reduction="sum"
            )
            / known
        )

    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Pixels by class and predicted class, (classes, classes)."""
        n = outputs.shape[1]
        known = targets != IGNORED
        predicted = _enlarged(outputs, targets).argmax(1)[known]
        return (
            torch.bincount(targets[known] * n + predicted, minlength=n * n)
            .reshape(n, n)
            .cpu()
            .double()
        )

    def score(self, counts: Tensor) -> float:
        union = counts.sum(0) + counts.sum(1) - counts.diagonal()
        seen = union > 0
        return 100 * (counts.diagonal()[seen] / union[seen]).mean().item()

    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """Predict background everywhere."""
        classes = 1 + int(
            torch.cat([targets[targets != IGNORED] for targets in (train, evaluation)]).max()
        )
        counts = torch.bincount(evaluation[evaluation != IGNORED], minlength=classes)
        return self.score(
            F.pad(counts.double().unsqueeze(1), (BACKGROUND, classes - 1 - BACKGROUND))
        )


def _painted(annotation: Annotation) -> tuple[bool, float]:
    """The order in which objects are painted over each other: crowds first, then objects from large
    to small.
    """
    return not annotation.get("iscrowd", 0), -annotation.get("area", 0)


def _enlarged(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.interpolate(outputs, size=targets.shape[-2:], mode="bilinear", align_corners=False)
