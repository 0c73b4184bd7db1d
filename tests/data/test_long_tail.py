"""A long tail has the sizes that the authors' logs show, a partition loses nothing, and a client is
tested on what it is trained on.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuscle_lib.data.long_tail import class_sizes, groups, long_tailed
from fedmuscle_lib.data.partition import class_counts, local_tests, partition


def _balanced(classes: int, each: int) -> np.ndarray:
    """Labels in a random order."""
    return np.random.RandomState(0).permutation(np.repeat(np.arange(classes), each))


# --- the long tail


@pytest.mark.parametrize(
    ("n_max", "classes", "imbalance", "total"),
    [
        (5000, 10, 0.02, 13_996),
        (500, 100, 0.01, 10_847),
    ],
)
def test_cifars_totals_are_those_of_the_authors_logs(n_max, classes, imbalance, total):
    sizes = class_sizes(n_max, classes, imbalance)
    assert sizes.sum() == total
    assert (sizes[0], sizes[-1]) == (n_max, n_max * imbalance)
    assert (np.diff(sizes) <= 0).all()
    kept = long_tailed(_balanced(classes, n_max), imbalance, seed=0)
    assert len(kept) == len(set(kept)) == total


def test_a_steep_tail_is_part_of_a_flat_one():
    labels = _balanced(10, 100)
    flat, steep = (set(long_tailed(labels, imbalance, seed=3)) for imbalance in (0.1, 0.02))
    assert steep < flat


# --- the partition


@given(st.floats(0.01, 100), st.integers(1, 12), st.integers(0, 9))
def test_every_row_has_one_client_and_the_seed_alone_decides(alpha, clients, seed):
    labels = _balanced(7, 60)
    parts = partition(labels, clients, alpha, seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert all((np.diff(own) > 0).all() for own in parts)
    counts = class_counts(labels, parts, 7)
    assert counts.shape == (clients, 7) and counts.sum(0).tolist() == [60] * 7
    again = partition(labels, clients, alpha, seed)
    assert all(map(np.array_equal, parts, again))


# --- local tests and groups


def test_a_client_is_tested_on_what_it_is_trained_on():
    counts = np.array([[60, 3, 0], [20, 0, 1], [6, 9, 1]])  # of 100
    test_labels = _balanced(3, 30)
    expected = [
        [30, 2, 0],
        [18, 0, 0],
        [5, 8, 0],
    ]  # floor(0.9 n): 54 pictures of a class that has 30 are all 30
    tests = local_tests(counts, test_labels, seed=0)
    for rows, sizes in zip(tests, expected, strict=True):
        assert (np.diff(rows) > 0).all(), "ascending, none twice"
        assert np.bincount(test_labels[rows], minlength=3).tolist() == sizes
    assert set(tests[0]) & set(tests[1]), "clients overlap"


# Letter, alpha, imbalance, and the sizes of the groups in the authors' logs. Their draws differ
# from ours by a class at the borders.
LOGS = [
    ("a", 10, 40, 0.5, 0.02, (4, 3, 3)),
    ("h", 100, 20, 1, 0.01, (27, 25, 48)),
]


@pytest.mark.parametrize(
    ("letter", "classes", "clients", "alpha", "imbalance", "logged"),
    LOGS,
    ids=[row[0] for row in LOGS],
)
def test_groups_are_as_large_as_in_the_authors_logs(
    letter, classes, clients, alpha, imbalance, logged
):
    labels = _balanced(classes, 50_000 // classes)
    labels = labels[long_tailed(labels, imbalance, seed=0)]
    counts, test_labels = (
        class_counts(labels, partition(labels, clients, alpha, seed=0), classes),
        _balanced(classes, 10_000 // classes),
    )
    found = groups(class_counts(test_labels, local_tests(counts, test_labels, seed=0), classes))
    assert [len(found[name]) for name in ("head", "middle", "tail")] == pytest.approx(
        logged, abs=0 if classes == 10 else 1
    )
    assert sorted(c for group in found.values() for c in group) == list(range(classes))


def test_the_head_ends_with_the_class_that_crosses_three_quarters():
    counts = np.array(
        [[1, 0, 40, 9, 0], [3, 0, 30, 16, 1]]
    )  # sums 4, 0, 70, 25, 1: 70, 95, 99 and 100 per cent
    assert groups(counts) == {"head": (2, 3), "middle": (), "tail": (0, 4, 1)}
    assert groups(np.array([[50, 25, 15, 6, 4]])) == {
        "head": (0, 1),
        "middle": (2, 3),
        "tail": (4,),
    }
    assert groups(np.array([[97, 2, 1]])) == {"head": (0,), "middle": (), "tail": (1, 2)}
