"""Long tails: how many samples the classes keep, whatever the federation, and a user's own samples thinned to such sizes.

Letters: ``c`` classes, ``n`` samples.
"""

from __future__ import annotations

import numpy as np
import torch

from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.data.samples import Samples, ranks


def class_sizes(n_max: int, classes: int, imbalance: float) -> np.ndarray:
    """Return the (c,) sizes of a long tail, int(n_max * imbalance^(i / (c - 1))): from ``n_max`` down to ``imbalance`` times as many.

    Raises:
        ValueError: the imbalance, smallest over largest class, is outside (0, 1]; or there are fewer than two classes.

    Source:
        Cao et al. (2019); FedLoGe's federations are made so too.
    """
    if not 0 < imbalance <= 1:
        raise ValueError(f"imbalance {imbalance}: the smallest class over the largest must be above 0 and at most 1")
    if classes < 2:
        raise ValueError(f"a long tail needs two classes or more, not {classes}")
    return np.array([int(n_max * imbalance ** (i / (classes - 1))) for i in range(classes)])


def keep_long_tail(samples: Samples, classes: int, imbalance: float, *address: object) -> Samples:
    """Thin samples out to a long tail over their classes, in an order of the classes that the address alone decides.

    The largest class sets ``class_sizes``. A class keeps the first of its samples, at least one of those that it has, so that none runs
    empty: where the largest class has fewer than 1 / imbalance samples, the tail ends in classes of one. A class that has fewer than its
    size keeps all. A steep tail is part of a flat one of the same address.

    Args:
        samples: targets are labels, (n,).
        classes: c, of the task; some may have no sample.

    Raises:
        ValueError: as ``class_sizes``.
    """
    labels = samples.targets
    sizes = class_sizes(int(labels.bincount(minlength=classes).max()), classes, imbalance)
    allowed = torch.empty(classes, dtype=torch.int64)
    allowed[torch.randperm(classes, generator=generator("long tail", *address))] = torch.from_numpy(sizes).clamp(min=1)
    return samples.take((ranks(labels) < allowed[labels]).nonzero().flatten())
