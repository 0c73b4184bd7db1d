"""Delta is its formula for any metrics; that it ignores units and the order of users follows from it."""

import pytest
from histories import history
from hypothesis import given
from hypothesis import strategies as st

from fedmuscle_lib import report

metrics = st.lists(st.floats(1, 50), min_size=6, max_size=6)


@given(metrics, metrics)
def test_delta_is_the_mean_relative_gain_of_the_users(local, other):
    table = report.delta([history("local", local), history("fedmuscle", other)])
    by_hand = 100 * sum(b / a - 1 for a, b in zip(local, other, strict=True)) / 6
    assert table.set_index("algorithm").delta["fedmuscle"] == pytest.approx(by_hand, abs=1e-9)
