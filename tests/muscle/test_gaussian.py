"""Gaussian models: their information against closed forms, and Theorem 1's bound against losses
that are computed otherwise.
"""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from fedmuscle_lib import muscle_loss
from fedmuscle_lib.muscle.gaussian import (
    bound,
    correlated,
    critics,
    draw,
    limit,
    mutual_information,
    total_correlation,
)

ALIKE = correlated(3, 0.5, 0.5)


def mean_bound(critic, u, b):
    return sum(bound(critic, batch) for batch in u.split(b, dim=1)) / (u.shape[1] // b)


@pytest.mark.parametrize("r", [0.0, 0.3, -0.9])
def test_the_information_of_a_pair_is_that_of_its_correlation(r):
    assert mutual_information(correlated(1, r, 0.0), [0], [1], d=5) == pytest.approx(
        -2.5 * math.log(1 - r * r)
    )


def test_information_obeys_the_chain_rule_and_the_total_correlation_adds_up():
    def i(*groups):
        return mutual_information(ALIKE, *groups, d=3)

    assert i([0], [1, 2, 3]) == pytest.approx(i([0], [1]) + i([0], [2], [1]) + i([0], [3], [1, 2]))
    assert total_correlation(ALIKE, d=3) == pytest.approx(
        i([0], [1, 2, 3]) + i([1], [2, 3]) + i([2], [3])
    )


@pytest.mark.parametrize(
    ("m", "with_anchor", "among"),
    [(1, 1.0, 0.0), (4, 0.5, 0.0), (3, 0.0, -0.5), (1, 0.5, 1.0), (3, float("nan"), 0.0)],
)
def test_correlations_that_no_models_have_are_refused(m, with_anchor, among):
    with pytest.raises(ValueError, match=f"{m} others"):
        correlated(m, with_anchor, among)


def test_with_one_other_the_bound_is_that_of_infonce():
    r, covariance = 0.6, correlated(1, 0.6, 0.0)
    z, x = u = draw(covariance, 32, 4)
    log_ratio = (r * z @ x.T - r * r / 2 * (z.square().sum(1)[:, None] + x.square().sum(1))) / (
        1 - r * r
    )
    for critic in critics(covariance).values():
        assert bound(critic, u) == pytest.approx(
            math.log(32) - cross_entropy(log_ratio, torch.arange(32)).item()
        )


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_muscle_loss_is_a_critic(m):
    critic = torch.full((m + 1, m + 1), 1 / 0.15 - 1 / 0.2, dtype=torch.float64)
    critic[0], critic[:, 0] = -1 / 0.2, -1 / 0.2
    critic.fill_diagonal_(0)
    u = normalize(draw(correlated(m, 0.5, 0.5), 8, 5), dim=-1)
    assert bound(critic, u) == pytest.approx(
        m * math.log(8) - muscle_loss(u[0], u[1:], 0.2, 0.15).item()
    )


def test_the_bound_tends_to_its_limit():
    covariance, u = correlated(2, 0.5, 0.5), draw(correlated(2, 0.5, 0.5), 8192, 2)
    for critic in critics(covariance).values():
        assert mean_bound(critic, u, 512) == pytest.approx(limit(critic, covariance, d=2), abs=0.03)


def test_the_full_ratio_tends_to_the_total_correlation_and_the_theorems_critic_to_more_than_the_information():
    information, found = mutual_information(ALIKE, [0], [1, 2, 3]), critics(ALIKE)
    assert limit(found["full"], ALIKE) == pytest.approx(total_correlation(ALIKE))
    assert information + 0.01 < limit(found["theorem"], ALIKE) < total_correlation(ALIKE)


@pytest.mark.parametrize("seed", range(3))
def test_any_critic_keeps_the_bound_if_the_others_are_independent(seed):
    covariance = correlated(2, 0.6, 0.0)
    information, noise = (
        mutual_information(covariance, [0], [1, 2], d=2),
        torch.randn(3, 3, generator=torch.Generator().manual_seed(seed)),
    )
    critic, u = (
        critics(covariance)["theorem"] + 0.3 * (noise + noise.T).double(),
        draw(covariance, 2048, 2),
    )
    assert all(mean_bound(critic, u, b) < information for b in (4, 32))
