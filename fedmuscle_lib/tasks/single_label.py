"""Classification into mutually exclusive classes: of images, the paper's IC10, IC100, ICF and ICC,
and of texts, TC.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.data.encodings import NO_WORD, Modality, Pixels, Tokens, Words
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.tasks.task import Classification, Head


@dataclass(frozen=True)
class SingleLabelClassification(Classification):
    """Targets are class indices, shape (b,); cross-entropy; top-1 accuracy in per cent."""

    n_classes: int
    metric: ClassVar[str] = "Accuracy"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Correct predictions, and samples."""
        hits = (outputs.argmax(1) == targets).sum().item()
        return torch.tensor([hits, len(targets)], dtype=torch.float64)

    def score(self, counts: Tensor) -> float:
        hits, samples = counts.tolist()
        return 100 * hits / samples

    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """Predict the training set's most frequent class; the first of them, if there are
        several.
        """
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
    """Of images; the head is two layers."""

    def _read(self, path: Path, images: Path, encoding: Pixels) -> tuple[Samples, tuple[int, ...]]:
        content = Pickled(path, "data", "labels")
        pixels = content.images()
        labels = content.labels(len(pixels), self.n_classes)
        return Samples(encoding.resize(pixels), labels), tuple(range(self.n_classes))


class TextClassification(SingleLabelClassification):
    """Of texts; the head is one layer."""

    reads: ClassVar[Modality] = "texts"
    head: ClassVar[Head] = "linear"

    def _read(
        self, path: Path, images: Path, encoding: Tokens | Words
    ) -> tuple[Samples, tuple[int, ...]]:
        content = Pickled(path, "texts", "labels")
        texts = content.texts()
        labels = content.labels(len(texts), self.n_classes)
        return Samples(encoding.encode(texts), labels), tuple(range(self.n_classes))

    def by_words(self, train: Samples, evaluation: Samples) -> float:
        """The metric of logistic regression on TF-IDF, what the words alone say; both are
        scikit-learn's, as they are by default.

        Args:
            train, evaluation: inputs are ``Words``.
        """
        from sklearn.feature_extraction.text import (
            TfidfVectorizer,
        )  # a second that no other task need wait for
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        texts, unseen = (
            [row[row != NO_WORD].tolist() for row in samples.inputs]
            for samples in (train, evaluation)
        )
        if len(train.targets.unique()) < 2 or not any(texts):
            return self.trivial(train.targets, evaluation.targets)
        classifier = make_pipeline(
            TfidfVectorizer(analyzer=list), LogisticRegression(max_iter=1000)
        )
        return 100 * classifier.fit(texts, train.targets.numpy()).score(
            unseen, evaluation.targets.numpy()
        )
