"""Theorem 1, Figure 7 and Appendices L and S in numbers, against closed forms, autograd and torch's
own count of operations.
"""

import math

import pytest
import torch
from torch.nn.functional import normalize
from torch.utils.flop_counter import FlopCounterMode

from fedmuscle_lib import muscle_loss
from fedmuscle_lib.fedmuscle.objectives import pairwise
from fedmuscle_lib.muscle import make_reply
from fedmuscle_lib.report import theory


@pytest.fixture(scope="module")
def rows():
    return theory.bounds([8], [1, 2], [0.0, 0.8], samples=1024)


def of(rows, critic, **point):
    own = rows[rows.critic == critic]
    for name, value in point.items():
        own = own[own[name] == value]
    return own.iloc[0]


def test_one_other_model_makes_all_truths_one(rows):
    row = of(rows, theory.CRITICS["full"], varied="M", M=1)
    assert row.information == row.pairwise_sum == pytest.approx(
        -4 * math.log(0.75)
    ) and row.total_correlation == pytest.approx(row.information)
    assert row.limit == pytest.approx(row.information) and row.bound < math.log(32)


def test_the_full_ratio_claims_too_much_where_others_share_and_not_where_they_are_independent(rows):
    apart, alike = (
        of(rows, theory.CRITICS["full"], varied="overlap", overlap=overlap)
        for overlap in (0.0, 0.8)
    )
    assert apart.ci_high < 0 < alike.ci_low
    text = theory.bounds_in_words(
        rows[(rows.varied == "overlap") & (rows.critic == theory.CRITICS["full"])]
    )
    assert (
        "above the information at 1 of 2 points, below it at 1" in text
        and "B → ∞ it is above at 1" in text
    )


def test_models_that_agree_on_few_images_break_the_bound_of_the_papers_own_loss():
    few, many = theory.agreement([300, 5000], batches=5).itertuples()
    assert few.information == pytest.approx(math.log(300)) and few.ci_low > 0.5
    assert many.ci_high < 0


def test_the_middle_of_the_diagram_is_what_the_sum_over_pairs_counts_twice():
    worlds = theory.venn(0.6, d=3).set_index("world")
    assert worlds.all_three.to_list() == pytest.approx(
        (worlds.pairwise_sum - worlds.whole).to_list()
    )
    assert worlds.whole.to_list() == pytest.approx((worlds.i12 + worlds.i13_given_2).to_list())
    assert worlds.whole.to_list() == pytest.approx(
        (worlds.i12_given_3 + worlds.i13_given_2 + worlds.all_three).to_list()
    )
    assert worlds.all_three["shared"] > 0 > worlds.all_three["independent"]
    assert (
        worlds.all_three["the sum is the whole"] == 0 and worlds.overlap["the sum is the whole"] > 0
    )
    assert worlds.whole["independent"] == pytest.approx(-1.5 * math.log(1 - 2 * 0.36))


# --- Appendix S


@pytest.mark.parametrize("m", [1, 3])
def test_the_exact_gradient_is_that_of_the_muscle_loss(m):
    u = normalize(
        torch.randn(m + 1, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(m)),
        dim=-1,
    )
    anchor = u[0].clone().requires_grad_()
    value = muscle_loss(anchor, u[1:], 0.2, 0.15)
    value.backward()
    loss, largest, exact, _ = theory.pulls(u, 0.2)
    assert loss.mean().item() == pytest.approx(value.item())
    torch.testing.assert_close(exact / 6, anchor.grad)
    assert (largest <= loss).all() and (loss - largest <= m * math.log(6)).all()


def test_with_one_other_the_largest_term_is_the_most_similar_sample():
    z, x = u = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, _, _, hardest = theory.pulls(u, 0.5)
    torch.testing.assert_close(hardest, (x[(z @ x.T).argmax(1)] - x) / 0.5)


def test_low_temperatures_keep_the_direction_and_a_centred_public_set_leaves_nothing_of_the_means():
    low, high, higher = theory.linear([0.02, 1e4, 1e5], [0.0], batches=32).itertuples()
    assert low.cosine_29 > 0.99 > 0.9 > high.cosine_29
    assert max(low.norm_31, high.norm_31) < 0.05
    assert high.norm / higher.norm == pytest.approx(
        10, rel=1e-3
    )  # a regulariser that goes to 0 like 1 / tau


# --- Appendix L


def counted(loss, anchor):
    with FlopCounterMode(display=False) as counter:
        loss(anchor.requires_grad_()).backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_matrix_products_are_those_that_torch_counts(m):
    u = normalize(torch.randn(m + 1, 4, 8), dim=-1)
    (row,) = theory.operations([m], b=4, d=8).itertuples()
    assert row.library == counted(lambda z: muscle_loss(z, u[1:]), u[0].clone())
    assert row.equation_5 == counted(make_reply("dense", u[0], u[1:]).loss, u[0].clone())
    assert row.pairwise == counted(lambda z: pairwise(z, u[1:]), u[0].clone())
