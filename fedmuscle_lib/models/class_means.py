"""Few-shot accuracy: how well frozen features tell classes apart of which a training set has one
image or a few.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from fedmuscle_lib.data.samples import Samples, draw_local

DRAWS = 20  # training sets


def few_shot(pool: Samples, test: Samples, n: int) -> float:
    """Accuracy in per cent of the nearest class mean: the mean over 20 training sets of ``n``
    samples, drawn from the pool as a user's are.

    Features are centred on the training set's mean and of unit norm. Nothing is trained and nothing
    has to be chosen.

    Args:
        pool, test: inputs are features, (samples, width), and targets labels.

    Raises:
        DataError: the pool is smaller than ``n``.
    """
    accuracies = [nearest_class_mean(train, test) for train in draws(pool, n)]
    return sum(accuracies) / len(accuracies)


def draws(pool: Samples, n: int) -> Iterator[Samples]:
    """The 20 training sets of ``n`` samples each."""
    return (draw_local(pool, n, "worth", seed) for seed in range(DRAWS))


def nearest_class_mean(train: Samples, test: Samples) -> float:
    """Accuracy in per cent on ``test`` of the class whose mean in ``train`` is nearest."""
    centre = train.inputs.mean(0)
    x, y = (F.normalize(samples.inputs - centre, dim=1) for samples in (train, test))
    classes = train.targets.unique()
    means = torch.stack([x[train.targets == c].mean(0) for c in classes])
    return 100 * (classes[torch.cdist(y, means).argmin(1)] == test.targets).double().mean().item()
