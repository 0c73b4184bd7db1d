"""Properties of Delta: how it changes where metrics change."""

from __future__ import annotations

import pytest
from histories import history
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmuscle_lib import report

few = settings(max_examples=15)  # each builds tables of runs
metrics = st.lists(st.floats(1, 50), min_size=6, max_size=6)


def delta(local: list[float], other: list[float], **options) -> float:
    table = report.delta([history("local", local, **options), history("fedmuscle", other, **options)])
    return table.set_index("algorithm").delta["fedmuscle"]


@few
@given(metrics)
def test_delta_over_itself_is_zero(local):
    assert delta(local, local) == 0


@few
@given(metrics, metrics, st.floats(0.1, 2))
def test_delta_does_not_see_the_unit_of_a_metric(local, other, unit):
    assert delta([unit * x for x in local], [unit * x for x in other]) == pytest.approx(delta(local, other), abs=1e-9)


@few
@given(metrics, st.floats(0.1, 2))
def test_every_metric_scaled_is_that_many_per_cent(local, factor):
    assert delta(local, [factor * x for x in local]) == pytest.approx(100 * (factor - 1), abs=1e-9)


@few
@given(metrics, metrics, st.randoms(use_true_random=False))
def test_users_weigh_alike(local, other, random):
    order = random.sample(range(6), 6)
    swapped = delta([local[i] for i in order], [other[i] for i in order])
    assert swapped == pytest.approx(delta(local, other), abs=1e-9)


@few
@given(metrics, metrics)
def test_delta_is_the_mean_relative_gain_of_the_users(local, other):
    by_hand = 100 * sum(b / a - 1 for a, b in zip(local, other, strict=True)) / 6
    assert delta(local, other) == pytest.approx(by_hand, abs=1e-9)
