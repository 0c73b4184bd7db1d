"""A long tail has the sizes that the authors' logs show, a partition loses nothing, and a client is
tested on what it is trained on.
"""

from __future__ import annotations

import numpy as np
import pytest

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
        (5000, 10, 0.01, 12_406),
        (500, 100, 0.02, 12_608),
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


@pytest.mark.parametrize("seed", range(3))
def test_each_class_keeps_its_size(seed):
    labels = _balanced(5, 40)
    kept = long_tailed(labels, 0.1, seed)
    assert np.bincount(labels[kept]).tolist() == [40, 22, 12, 7, 4]  # 40 x 0.1^(i/4), rounded down
    assert (np.diff(kept) > 0).all()


def test_an_imbalance_of_one_keeps_a_set_as_it_is():
    labels = np.repeat([2, 0, 1], [3, 50, 7])
    assert np.array_equal(long_tailed(labels, 1, seed=0), np.arange(60))


def test_a_class_with_fewer_images_than_its_size_keeps_all():
    labels = np.repeat([0, 1, 2], [100, 5, 100])
    assert np.bincount(labels[long_tailed(labels, 0.25, seed=0)]).tolist() == [100, 5, 25]


def test_a_steep_tail_is_part_of_a_flat_one():
    labels = _balanced(10, 100)
    flat, steep = (set(long_tailed(labels, imbalance, seed=3)) for imbalance in (0.1, 0.02))
    assert steep < flat


def test_a_tail_is_drawn_from_its_seed_alone():
    labels = _balanced(4, 50)
    first = long_tailed(labels, 0.1, seed=0)
    assert np.array_equal(first, long_tailed(labels, 0.1, seed=0))
    assert not np.array_equal(first, long_tailed(labels, 0.1, seed=1))


# --- the partition


@pytest.mark.parametrize("alpha", [0.01, 0.5, 1, 100])
def test_every_row_has_one_client(alpha):
    labels = _balanced(7, 60)
    parts = partition(labels, 12, alpha, seed=0)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert all((np.diff(own) > 0).all() for own in parts)
    counts = class_counts(labels, parts, 7)
    assert counts.shape == (12, 7)
    assert counts.sum(0).tolist() == [60] * 7
    assert counts.sum(1).tolist() == [len(own) for own in parts]


def test_a_client_may_have_no_row():
    """Each class goes to one client where alpha is tiny: of fifty clients, 47 or more have
    nothing.
    """
    parts = partition(_balanced(3, 100), 50, 1e-6, seed=0)
    assert len(parts) == 50 and sum(len(own) == 0 for own in parts) >= 47
    assert all(len(own) for own in partition(_balanced(3, 100), 2, 100, seed=0))


def test_shares_have_dirichlets_mean_and_spread():
    """A client's share of a class has the mean 1/k and the variance (1/k)(1 - 1/k)/(k alpha +
    1).
    """
    classes, clients, alpha = 400, 4, 0.5
    labels = np.repeat(np.arange(classes), 1000)
    shares = class_counts(labels, partition(labels, clients, alpha, seed=0), classes) / 1000
    assert shares.mean(1) == pytest.approx(np.full(clients, 1 / clients), abs=0.05)
    assert shares.var() == pytest.approx(
        (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1), rel=0.1
    )


def test_rows_of_a_class_are_drawn_one_by_one():
    """Given p, the sizes are multinomial: with a huge alpha they scatter as coins do, and are not
    rounded shares.
    """
    labels = np.zeros(10_000, int)
    sizes = np.array([len(partition(labels, 2, 1e9, seed)[0]) for seed in range(200)])
    assert sizes.std() == pytest.approx(50, rel=0.2)  # the root of 10,000 / 4


def test_a_partition_is_drawn_from_its_seed_alone():
    labels = _balanced(5, 30)
    rows = [np.concatenate(partition(labels, 4, 0.5, seed)) for seed in (0, 0, 1)]
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


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


def test_a_client_without_a_training_image_has_no_test():
    tests = local_tests(np.array([[0, 0], [5, 5]]), _balanced(2, 10), seed=0)
    assert [len(rows) for rows in tests] == [0, 20]


def test_each_client_draws_its_own_test_from_the_seed():
    counts, test_labels = np.full((2, 2), 30), _balanced(2, 100)
    one, other = local_tests(counts, test_labels, seed=0)
    assert len(one) == len(other) == 100
    assert not np.array_equal(one, other)
    assert np.array_equal(
        np.stack([one, other]), np.stack(local_tests(counts, test_labels, seed=0))
    )


# Letter, alpha, imbalance, and the sizes of the groups in the authors' logs. Their draws differ
# from ours by a class at the borders.
LOGS = [
    ("a", 10, 40, 0.5, 0.02, (4, 3, 3)),
    ("b", 10, 40, 0.5, 0.01, (3, 3, 4)),
    ("c", 10, 40, 1, 0.02, (4, 3, 3)),
    ("d", 10, 40, 1, 0.01, (3, 3, 4)),
    ("e", 100, 20, 0.5, 0.02, (31, 31, 38)),
    ("f", 100, 20, 0.5, 0.01, (27, 26, 47)),
    ("g", 100, 20, 1, 0.02, (31, 30, 39)),
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


def test_equally_frequent_classes_stand_in_their_order():
    assert groups(np.ones((3, 20), int)) == {
        "head": tuple(range(15)),
        "middle": (15, 16, 17, 18),
        "tail": (19,),
    }


# --- what makes no sense


@pytest.mark.parametrize(
    ("call", "why"),
    [
        *(
            (lambda value=value: class_sizes(100, 10, value), f"imbalance {value}")
            for value in (0, -0.1, 1.01, float("nan"))
        ),
        (lambda: long_tailed(_balanced(3, 4), 2, 0), "imbalance 2"),
        (lambda: class_sizes(100, 1, 0.5), "two classes or more, not 1"),
        (
            lambda: local_tests(np.ones((2, 2), int), np.array([0, 0]), 0),
            "class 1 has training images and no test image",
        ),
        (lambda: groups(np.zeros((2, 2), int)), "no client has a test image"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(call, why):
    with pytest.raises(ValueError) as caught:
        call()
    assert why in str(caught.value) and "\n" not in str(caught.value)
