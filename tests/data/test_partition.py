"""A training and a test set that are divided alike between clients, as skewed as alpha says."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedmuscle_lib.data.partition import class_counts, matched_partitions

TRAIN, TEST = np.tile(np.arange(10), 300), np.tile(np.arange(10), 200)


def divided(alpha=0.1, least=100, clients=3, address=(0,)):
    return matched_partitions(TRAIN, TEST, clients, alpha, least, *address)


@given(st.integers(1, 4), st.floats(0.05, 100), st.integers(0, 300), st.integers(0, 2**32))
def test_every_row_goes_to_one_client_and_every_client_has_enough(clients, alpha, least, seed):
    for labels, parts in zip((TRAIN, TEST), divided(alpha, least, clients, (seed,)), strict=True):
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
        assert min(map(len, parts)) >= (least if labels is TRAIN else 1)


def test_skew_grows_as_alpha_falls():
    def largest_share(alpha):
        draws = [class_counts(TRAIN, divided(alpha, address=(seed,))[0], 10) for seed in range(20)]
        return np.mean([counts.max(0) / counts.sum(0) for counts in draws])

    shares = [largest_share(alpha) for alpha in (100, 1, 0.1)]
    assert shares == sorted(shares) and shares[0] < 0.4 < 0.85 < shares[-1]
