"""Partitions of a labelled set between clients, and each client's own test set.

Rows are indices into the set's labels. A draw depends on the seed and on what it is for, and on no
other draw: a class is divided alike whatever the other classes hold.

Letters: ``k`` clients, ``c`` classes, ``n`` samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmuscle_lib.core.randomness import derived_seed, numpy_generator

_ATTEMPTS = 100


def partition(labels: np.ndarray, clients: int, alpha: float, seed: int) -> tuple[np.ndarray, ...]:
    """Divide all rows between clients: for each class a p ~ Dir(alpha 1_k), and from p the client
    of each of its rows, independently.

    Returns:
        Each client's rows, ascending. There is no smallest size: a client may hold nothing.
    """
    owner = np.empty(len(labels), np.int64)
    for c in range(int(labels.max()) + 1):
        of_class, draws = labels == c, numpy_generator(seed, "partition", c)
        owner[of_class] = draws.choice(
            clients, of_class.sum(), p=draws.dirichlet(np.full(clients, alpha))
        )
    return tuple(np.flatnonzero(owner == k) for k in range(clients))


def balanced_partition(
    labels: np.ndarray, clients: int, alpha: float, least: int, *address: object
) -> tuple[np.ndarray, ...]:
    """Divide all rows between clients as CreamFL's authors do: by Dirichlet, and a client that has
    its share of all rows gets no more.

    For each class a p ~ Dir(alpha 1_k), in which clients that hold n / k rows or more count 0; the
    class's rows, shuffled, are cut by it. Partitions are drawn until each client has ``least``
    rows.

    Returns:
        Each client's rows, ascending.

    Raises:
        ValueError: no partition of a hundred gives every client so many.

    Source:
        https://github.com/FLAIR-THU/CreamFL at 264252c.
    """
    for attempt in range(_ATTEMPTS):
        draws = numpy_generator(*address, attempt)
        own: list[list[int]] = [[] for _ in range(clients)]
        for c in range(int(labels.max()) + 1):
            p = draws.dirichlet(np.full(clients, alpha)) * [
                len(rows) < len(labels) / clients for rows in own
            ]
            rows = draws.permutation(np.flatnonzero(labels == c))
            cuts = (
                (np.cumsum(p / p.sum())[:-1] * len(rows)).astype(int)
                if p.sum()
                else [0] * (clients - 1)
            )
            for held, new in zip(own, np.split(rows, cuts), strict=True):
                held.extend(new.tolist())
        if min(map(len, own)) >= least:
            return tuple(np.sort(np.array(rows, np.int64)) for rows in own)
    raise ValueError(
        f"{len(labels)} samples can't be divided between {clients} clients with {least} each"
    )


def shards(n: int, clients: int, each: int, *address: object) -> tuple[np.ndarray, ...]:
    """Divide ``n`` rows: cut them into ``clients * each`` shards of neighbours, and draw ``each``
    of them for every client.

    Returns:
        Each client's rows, ascending; the last client's also those that are left over by equal
        shards.

    Raises:
        ValueError: there are fewer rows than shards.

    Source:
        https://github.com/FLAIR-THU/CreamFL at 264252c, whose clients hold ten shards of
        Flickr30k's captions each.
    """
    size, count = n // (clients * each), clients * each
    if not size:
        raise ValueError(
            f"{n} samples can't be divided between {clients} clients with {each} shards each"
        )
    order = numpy_generator(*address).permutation(count).reshape(clients, each)
    own = [np.sort((drawn[:, None] * size + np.arange(size)).ravel()) for drawn in order]
    return *own[:-1], np.concatenate([own[-1], np.arange(count * size, n)])


def matched_partitions(
    train: np.ndarray, test: np.ndarray, clients: int, alpha: float, least: int, *address: object
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Divide a training and a test set between clients by :func:`partition`, with the same p of
    each class in both.

    Partitions are drawn until every client has ``least`` training rows and a test row, as in
    NIID-Bench (Li et al., 2022). The address alone decides the result.

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
    raise ValueError(
        f"{len(train)} training and {len(test)} test samples can't be divided between {clients}"
        f" users with {least} each"
    )


def class_counts(labels: np.ndarray, rows: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """Return the (k, c) number of each client's rows of each class."""
    return np.stack([np.bincount(labels[own], minlength=classes) for own in rows])


def local_tests(counts: np.ndarray, test_labels: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Draw for each client the rows of its own test set, ascending: floor(n_test n_kc / n) of each
    class, at most what the class has.

    The authors' code has 10,000 for n_test, CIFAR's. A class bounds it where a client holds so much
    of the class that its share of the whole test set exceeds the class's test images. A client has
    no row twice; clients overlap. A client with few images may have none.

    Args:
        counts: (k, c) training images of each client and class; n is their sum.
        test_labels: (n_test,) of the balanced test set.
    """
    of_class = [np.flatnonzero(test_labels == c) for c in range(counts.shape[1])]
    available = np.array([len(rows) for rows in of_class])
    tests = []
    for k, sizes in enumerate(np.minimum(len(test_labels) * counts // counts.sum(), available)):
        draws = numpy_generator(seed, "local test", k)
        tests.append(
            np.sort(
                np.concatenate(
                    [
                        draws.permutation(rows)[:size]
                        for rows, size in zip(of_class, sizes, strict=True)
                    ]
                )
            )
        )
    return tuple(tests)
