"""Makes a long-tailed federation of a balanced set: who holds which picture, each client's test set, and groups of classes.

Rows are indices into the set's labels. A draw depends on the seed and on what it is for, and on no other draw: with one seed, the rows of
a steep tail are among those of a flat one, and a class is divided alike whatever the other classes hold.

Letters: ``k`` clients, ``c`` classes, ``n`` samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmuscle_lib.core.randomness import derived_seed
from fedmuscle_lib.data.long_tail import class_sizes

HEAD, MIDDLE = 0.75, 0.95  # shares of the local test pictures at which the head and the middle end


def long_tailed(labels: np.ndarray, imbalance: float, seed: int) -> np.ndarray:
    """Draw the rows of a long-tailed set, ascending.

    The largest class of ``labels`` sets ``class_sizes``; a class that has fewer pictures than its size keeps all. An imbalance of 1
    therefore keeps every row, also of a set that is long-tailed already.

    Args:
        labels: (n,) from 0 to c - 1, each at least once.

    Raises:
        ValueError: the imbalance is outside (0, 1], or a label is no class's, or a class has no row.
    """
    counts = _counts(labels)
    if empty := np.flatnonzero(counts == 0).tolist():
        raise ValueError(f"class {empty[0]} has no picture, the largest label is {len(counts) - 1}")
    sizes = class_sizes(int(counts.max()), len(counts), imbalance)
    kept = [_rng(seed, "long tail", c).permutation(np.flatnonzero(labels == c))[:size] for c, size in enumerate(sizes)]
    return np.sort(np.concatenate(kept))


@dataclass(frozen=True)
class Partition:
    """Who holds which row.

    Attributes:
        rows: for each client its rows, ascending; disjoint, and together all of them.
    """

    rows: tuple[np.ndarray, ...]

    @property
    def empty(self) -> tuple[int, ...]:
        """The clients without a row."""
        return tuple(k for k, own in enumerate(self.rows) if not len(own))

    def counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Return the (k, c) number of each client's rows of each class; raises ValueError if a label is no class's."""
        _counts(labels, classes)
        return np.stack([np.bincount(labels[own], minlength=classes) for own in self.rows])


def partition(labels: np.ndarray, clients: int, alpha: float, seed: int) -> Partition:
    """Divide all rows between clients: for each class a p ~ Dir(alpha 1_k), and from p the client of each of its rows, independently.

    There is no smallest size: a client may hold nothing, and ``Partition.empty`` names it.

    Raises:
        ValueError: alpha is not a positive number, there is no client or fewer rows than clients, or a label is no class's.
    """
    if not 0 < alpha < np.inf:
        raise ValueError(f"alpha {alpha}: Dirichlet's concentration must be a positive number")
    if not 0 < clients <= len(labels):
        raise ValueError(f"{clients} clients for {len(labels)} samples: there must be a client, and no more clients than samples")
    owner = np.empty(len(labels), np.int64)
    for c in range(len(_counts(labels))):
        of_class, rng = labels == c, _rng(seed, "partition", c)
        owner[of_class] = rng.choice(clients, of_class.sum(), p=rng.dirichlet(np.full(clients, alpha)))
    return Partition(tuple(np.flatnonzero(owner == k) for k in range(clients)))


def local_test_counts(counts: np.ndarray, test_labels: np.ndarray) -> np.ndarray:
    """Return how many test pictures of each class a client is tested on, (k, c): floor(n_test n_kc / n), at most what the class has.

    The authors' code has 10,000 for n_test, CIFAR's. It is bounded by the class where a client holds so much of a class that
    its share of the whole test set exceeds the test pictures of this class.

    Args:
        counts: (k, c) training pictures of each client and class; n is their sum.
        test_labels: (n_test,) of the balanced test set.

    Raises:
        ValueError: no client has a training picture, a test label is no class's, or a class that clients hold has no test picture.
    """
    available, n = _counts(test_labels, counts.shape[1]), counts.sum()
    if not n:
        raise ValueError("no client has a training picture")
    if untested := np.flatnonzero((available == 0) & counts.any(0)).tolist():
        raise ValueError(f"class {untested[0]} has training pictures and no test picture")
    return np.minimum(len(test_labels) * counts // n, available)


def local_tests(counts: np.ndarray, test_labels: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Draw for each client the rows of its own test set, ascending, as many of each class as ``local_test_counts`` says.

    A client has no row twice; clients overlap. A client with few pictures may have none.

    Raises:
        ValueError: as ``local_test_counts``.
    """
    of_class = [np.flatnonzero(test_labels == c) for c in range(counts.shape[1])]
    tests = []
    for k, sizes in enumerate(local_test_counts(counts, test_labels)):
        rng = _rng(seed, "local test", k)
        tests.append(np.sort(np.concatenate([rng.permutation(rows)[:size] for rows, size in zip(of_class, sizes, strict=True)])))
    return tuple(tests)


def groups(counts: np.ndarray) -> dict[str, tuple[int, ...]]:
    """Divide classes into "head", "middle" and "tail" by how many local test pictures all clients have of them, frequent ones first.

    From the most frequent class down, the head ends with the class that reaches 75 % of all local test pictures, the middle with the one
    that reaches 95 %; the tail is the rest, with the classes that nobody is tested on.

    Args:
        counts: (k, c) of ``local_test_counts``.

    Raises:
        ValueError: nobody is tested on anything.
    """
    total = counts.sum(0)
    if not total.sum():
        raise ValueError("no client has a test picture")
    order = np.argsort(-total, kind="stable")
    reached = np.cumsum(total[order])
    head, middle = (int(np.argmax(reached >= share * reached[-1])) + 1 for share in (HEAD, MIDDLE))
    ranked = tuple(order.tolist())
    return {"head": ranked[:head], "middle": ranked[head:middle], "tail": ranked[middle:]}


def _counts(labels: np.ndarray, classes: int | None = None) -> np.ndarray:
    """Return the (c,) number of each label; raises ValueError unless labels are (n,) integers from 0, below ``classes`` if given."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"labels must be a row of integers, these are {labels.dtype} {labels.shape}")
    known = classes if classes is not None else int(labels.max(initial=-1)) + 1
    if unknown := labels[(labels < 0) | (labels >= known)].tolist():
        raise ValueError(f"label {unknown[0]} is no class's: classes are 0 to {known - 1}")
    return np.bincount(labels, minlength=known)


def _rng(seed: int, *address: object) -> np.random.Generator:
    return np.random.default_rng(derived_seed(seed, *address))
