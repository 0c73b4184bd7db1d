"""Multi-label image classification: MLC of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.data.coco import Instances
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.tasks.task import Classification


@dataclass(frozen=True)
class MultiLabelClassification(Classification):
    """Targets are multi-hot, shape (b, classes); independent sigmoids; micro-averaged F1 in per
    cent.

    The paper does not state the decision threshold; ours is a probability of 0.5.
    """

    suffix: ClassVar[str] = ".json"
    metric: ClassVar[str] = "micro-F1"
    outcomes: ClassVar[int] = 2

    def _read(self, path: Path, images: Path, encoding: Pixels) -> tuple[Samples, tuple[int, ...]]:
        """An image has the categories of its annotations."""
        coco = Instances(path)
        targets = torch.zeros(len(coco.images), len(coco.classes))
        for row, image in enumerate(coco.images):
            for annotation in coco.annotations(image):
                targets[row, coco.column(annotation)] = 1
        return Samples(coco.load(images, encoding), targets, coco.names), coco.classes

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets)

    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """True positives, and false positives and negatives together."""
        predicted, actual = outputs > 0, targets > 0.5
        return torch.stack([(predicted & actual).sum(), (predicted ^ actual).sum()]).cpu().double()

    def score(self, counts: Tensor) -> float:
        hits, wrong = counts.tolist()
        return 100 * 2 * hits / max(1, 2 * hits + wrong)

    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """Predict every class; predicting none scores 0."""
        return self.score(self.count(torch.ones_like(evaluation), evaluation))

    def decisions(self, outputs: Tensor) -> Tensor:
        """One decision a class, between absent and present: (n, classes, 2)."""
        return torch.stack([F.logsigmoid(-outputs), F.logsigmoid(outputs)], dim=-1)

    def outputs(self, log_p: Tensor) -> Tensor:
        return log_p[..., 1] - log_p[..., 0]

    def certainty(self, log_p: Tensor) -> Tensor:
        """The largest probability that a class is present.

        Absence is trivially certain for most images, so only presence is used.
        """
        return log_p[..., 1].exp().amax(-1)

    def alike(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Same label: a Jaccard index of at least 0.5.

        Nothing in common: no class that both have.
        """
        common = targets @ targets.T
        counts = targets.sum(1)
        union = counts[:, None] + counts[None] - common
        same = common >= 0.5 * union  # two samples without any class are alike
        return same, (common == 0) & (union > 0)
