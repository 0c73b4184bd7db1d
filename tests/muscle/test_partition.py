"""Who gets which sample: disjoint, of the sizes that were said, even or as uneven as asked for, and
the same for a seed.
"""

from __future__ import annotations

import numpy as np
import pytest

from data_prep.datasets.partition import SIZES, Part, divide, division, fit
from data_prep.io.entry import SourceError

LABELS, TEST_LABELS = np.arange(5000) % 10, np.arange(4000) % 10


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _counts(labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.bincount(labels[rows], minlength=10)


@pytest.mark.parametrize("alpha", [None, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_parts_are_disjoint_and_of_the_sizes_asked_for(alpha, seed):
    options = {
        "clients": 3,
        "train_size": 50,
        "pool": 300,
        "val": 100,
        "test": 1000,
        "public": 700,
        "alpha": alpha,
    }
    parts = division("IC10", LABELS, TEST_LABELS, options, _rng(seed))
    drawn = np.concatenate([*parts.train, *parts.val, parts.public])
    assert len(np.unique(drawn)) == len(drawn) == 3 * 300 + 3 * 100 + 700
    assert [len(rows) for rows in parts.train] == [300] * 3
    test = np.concatenate(parts.test)
    assert len(np.unique(test)) == len(test) == 3000
    assert all(line["got"] == line["asked"] for line in parts.sizes)


@pytest.mark.parametrize("seed", range(5))
def test_dirichlet_parts_are_uneven_and_a_users_splits_alike(seed):
    options = {"clients": 3, "pool": 300, "val": 300, "test": 300, "alpha": 0.1}
    parts = division("IC10", LABELS, TEST_LABELS, options, _rng(seed))
    train, val, test = (
        np.array([_counts(labels, rows) for rows in users])
        for labels, users in ((LABELS, parts.train), (LABELS, parts.val), (TEST_LABELS, parts.test))
    )
    assert train.max(1).min() > 50  # even would be 30 of each class
    for other in (val, test):
        assert np.corrcoef(train.ravel(), other.ravel())[0, 1] > 0.9
    assert (
        abs(train[0] - train[1]).sum() + abs(train[0] - train[2]).sum()
    ) / 4 > 100  # and users differ


def test_a_scarce_class_is_shared():
    labels = np.array([0] * 7 + [1] * 100)
    first, second = divide(labels, [40, 40], np.full((2, 2), 0.5), _rng())
    assert sorted([(labels[first] == 0).sum(), (labels[second] == 0).sum()]) == [3, 4]
    with pytest.raises(SourceError, match="108 samples were asked for, there are 107"):
        divide(labels, [54, 54], np.full((2, 2), 0.5), _rng())


def test_sizes_are_appendix_gs():
    stated = {
        "IC10": (50, 4000),
        "IC100": (100, 2000),
        "MLC": (200, 1000),
        "SS": (1000, 3000),
        "TC": (100, 5000),
    }
    assert {task: (SIZES[task].local, SIZES[task].test) for task in stated} == stated
    assert {task: SIZES[task].users for task in stated} == {
        "IC10": 1,
        "IC100": 2,
        "MLC": 3,
        "SS": 2,
        "TC": 2,
    }


@pytest.mark.parametrize("available", [60, 61, 100, 333, 1000, 5000])
def test_a_small_archive_scales_down_what_it_can(available):
    parts = [Part("train", 200, 3, 20), Part("val", 50, 3, explicit=True), Part("public", 500)]
    train, val, public = fit(parts, available)
    assert 3 * train + 3 * val + public <= available
    assert 20 <= train <= 200
    assert val == min(
        50, (available - 60) // 3
    )  # what was asked for explicitly comes before the defaults
    if available >= 3 * 200 + 3 * 50 + 500:
        assert (train, val, public) == (200, 50, 500)
    elif val == 50:
        assert abs((train - 20) / 180 - public / 500) < 0.02


def test_a_public_set_does_not_crowd_out_the_users():
    parts = [Part("train", 60, 2, 30), Part("val", 15, 2), Part("public", 5000, first_share=0.5)]
    train, val, public = fit(parts, 190)
    assert train > 45 and val > 8 and public > 50
    assert fit(parts, 5000) == [60, 15, 4850]  # and has what nobody else asks for


def test_too_small_an_archive_is_said():
    with pytest.raises(
        SourceError, match=r"has 59 samples for 3 x 20 for train: 60 are needed; --train-size"
    ):
        fit([Part("train", 200, 3, 20), Part("public", 500)], 59)
    with pytest.raises(SourceError, match="--pool 30 is smaller than a local training set of 50"):
        division("IC10", LABELS, TEST_LABELS, {"pool": 30}, _rng())
    with pytest.raises(SourceError, match="at least one user"):
        division("IC10", LABELS, TEST_LABELS, {"test": -1}, _rng())
