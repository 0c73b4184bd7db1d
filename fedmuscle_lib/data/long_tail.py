"""Long tails: how many samples the classes keep, which these are, and the groups of frequent and
rare classes.

Letters: ``k`` clients, ``c`` classes, ``n`` samples.
"""

from __future__ import annotations

import numpy as np

from fedmuscle_lib.core.randomness import numpy_generator

HEAD, MIDDLE = 0.75, 0.95  # shares of the samples at which the head and the middle end


def class_sizes(n_max: int, classes: int, imbalance: float) -> np.ndarray:
    """Return the (c,) sizes of a long tail, int(n_max * imbalance^(i / (c - 1))): from ``n_max``
    down to ``imbalance`` times as many.

    Source:
        Cao et al. (2019); FedLoGe's federations are made so too.
    """
    return np.array([int(n_max * imbalance ** (i / (classes - 1))) for i in range(classes)])


def long_tailed(labels: np.ndarray, imbalance: float, seed: int) -> np.ndarray:
    """Draw the rows of a long-tailed set, ascending; its classes are frequent in the order of their
    labels.

    The largest class sets ``class_sizes``. A class that has fewer samples than its size keeps all,
    so an imbalance of 1 keeps every row, also of a set that is long-tailed already. With one seed,
    the rows of a steep tail are among those of a flat one.

    Args:
        labels: (n,) from 0 to c - 1, each at least once; c is at least 2.
        imbalance: smallest over largest class, above 0 and at most 1.
    """
    counts = np.bincount(labels)
    sizes = class_sizes(int(counts.max()), len(counts), imbalance)
    draws = (numpy_generator(seed, "long tail", c) for c in range(len(counts)))
    kept = [
        own.permutation(np.flatnonzero(labels == c))[:size]
        for c, (own, size) in enumerate(zip(draws, sizes, strict=True))
    ]
    return np.sort(np.concatenate(kept))


def groups(counts: np.ndarray) -> dict[str, tuple[int, ...]]:
    """Divide classes into "head", "middle" and "tail" by how many samples all clients have of them,
    frequent ones first.

    From the most frequent class down, the head ends with the class that reaches 75 % of all
    samples, the middle with the one that reaches 95 %; the tail is the rest, with the classes that
    nobody has.

    Args:
        counts: (k, c); FedLoGe's are of local tests.
    """
    total = counts.sum(0)
    order = np.argsort(-total, kind="stable")
    reached = np.cumsum(total[order])
    head, middle = (int(np.argmax(reached >= share * reached[-1])) + 1 for share in (HEAD, MIDDLE))
    ranked = tuple(order.tolist())
    return {"head": ranked[:head], "middle": ranked[head:middle], "tail": ranked[middle:]}
