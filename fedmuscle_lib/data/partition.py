"""Partitions of a labelled set between clients, and each client's own test set.

Rows are indices into the set's labels. A draw depends on the seed and on what it is for, and on no other draw: a class is divided alike
whatever the other classes hold.

Letters: ``k`` clients, ``c`` classes, ``n`` samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmuscle_lib.core.randomness import derived_seed

_ATTEMPTS = 100


def partition(labels: np.ndarray, clients: int, alpha: float, seed: int) -> tuple[np.ndarray, ...]:
    """Divide all rows between clients: for each class a p ~ Dir(alpha 1_k), and from p the client of each of its rows, independently.

    Returns:
        Each client's rows, ascending. There is no smallest size: a client may hold nothing.
    """
    owner = np.empty(len(labels), np.int64)
    for c in range(int(labels.max()) + 1):
        of_class, draws = labels == c, np.random.default_rng(derived_seed(seed, "partition", c))
        owner[of_class] = draws.choice(clients, of_class.sum(), p=draws.dirichlet(np.full(clients, alpha)))
    return tuple(np.flatnonzero(owner == k) for k in range(clients))


def matched_partitions(
    train: np.ndarray, test: np.ndarray, clients: int, alpha: float, least: int, *address: object
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Divide a training and a test set between clients by :func:`partition`, with the same p of each class in both.

    Partitions are drawn until every client has ``least`` training rows and a test row, as in NIID-Bench (Li et al., 2022). The address
    alone decides the result.

    Args:
        train, test: labels.

    Raises:
        ValueError: no partition of a hundred gives every client so many.
    """
    for attempt in range(_ATTEMPTS):
        seed = derived_seed(*address, attempt)  # of which a class's p follows, whatever rows it has
        own, tests = (partition(labels, clients, alpha, seed) for labels in (train, test))
        if min(map(len, own)) >= least and min(map(len, tests)):
            return own, tests
    raise ValueError(f"{len(train)} training and {len(test)} test samples can't be divided between {clients} users with {least} each")


def class_counts(labels: np.ndarray, rows: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """Return the (k, c) number of each client's rows of each class."""
    return np.stack([np.bincount(labels[own], minlength=classes) for own in rows])


def local_tests(counts: np.ndarray, test_labels: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Draw for each client the rows of its own test set, ascending: floor(n_test n_kc / n) of each class, at most what the class has.

    The authors' code has 10,000 for n_test, CIFAR's. A class bounds it where a client holds so much of the class that its share of the
    whole test set exceeds the class's test images. A client has no row twice; clients overlap. A client with few images may have none.

    Args:
        counts: (k, c) training images of each client and class; n is their sum.
        test_labels: (n_test,) of the balanced test set.

    Raises:
        ValueError: a class that clients hold has no test image.
    """
    of_class = [np.flatnonzero(test_labels == c) for c in range(counts.shape[1])]
    available = np.array([len(rows) for rows in of_class])
    if untested := np.flatnonzero((available == 0) & counts.any(0)).tolist():
        raise ValueError(f"class {untested[0]} has training images and no test image")
    tests = []
    for k, sizes in enumerate(np.minimum(len(test_labels) * counts // counts.sum(), available)):
        draws = np.random.default_rng(derived_seed(seed, "local test", k))
        tests.append(np.sort(np.concatenate([draws.permutation(rows)[:size] for rows, size in zip(of_class, sizes, strict=True)])))
    return tuple(tests)
