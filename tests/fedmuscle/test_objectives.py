"""What the Muscle loss is compared with, against closed forms and definitions."""

from __future__ import annotations

import math

import pytest
import torch
from representations import members
from torch import Tensor

from fedmuscle_lib.fedmuscle.objectives import (
    cka,
    divergence,
    divergence_penalty,
    gramian,
    hard_label_loss,
    info_nce,
    inverse_counts,
    nt_xent,
    pairwise,
    sage_target,
    supervised_contrast,
    volumes,
)
from fedmuscle_lib.muscle import muscle_loss


def gradient(loss, anchor: Tensor, *args, **kwargs) -> Tensor:
    anchor = anchor.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(anchor, *args, **kwargs), anchor)[0]


def test_infonce_is_equation_1():
    anchor, others = members(1, 5, 4)
    weights = [[math.exp(float(z @ other) / 0.3) for other in others[0]] for z in anchor]
    expected = sum(-math.log(row[i] / sum(row)) for i, row in enumerate(weights)) / 5
    assert info_nce(anchor, others[0], 0.3).item() == pytest.approx(expected, rel=1e-12)


def test_pairwise_is_a_sum_over_members():
    anchor, others = members(3, 6, 8)
    assert pairwise(anchor, others).item() == pytest.approx(
        sum(info_nce(anchor, other).item() for other in others), rel=1e-12
    )


@pytest.mark.parametrize("loss", [pairwise, gramian])
def test_gradients_are_derivatives(loss):
    anchor, others = members(2, 4, 6)
    assert torch.autograd.gradcheck(lambda z: loss(z, others, 0.5), anchor.requires_grad_())


# --- Gramian


@pytest.mark.parametrize("m", [1, 2, 3])
def test_volume_is_the_root_of_the_gram_determinant(m):
    """To the 1e-8 under the root that keeps its gradient finite."""
    anchor, others = members(m, 5, 8)
    ours = volumes(anchor, others)
    for i in range(5):
        for j in range(5):
            z = torch.cat([anchor[i : i + 1], others[:, j]])  # (m+1, d)
            assert ours[i, j].item() == pytest.approx(
                torch.linalg.det(z @ z.T).sqrt().item(), abs=1e-6
            )


def test_gramian_is_its_definition():
    """Appendix L's formula, from determinants."""
    anchor, others = members(2, 5, 8)
    z = torch.stack(
        [
            torch.stack([torch.cat([anchor[i : i + 1], others[:, j]]) for j in range(5)])
            for i in range(5)
        ]
    )  # (b, b, m+1, d)
    p = torch.softmax(-torch.linalg.det(z @ z.mT).sqrt() / 0.07, dim=1)
    assert gramian(anchor, others).item() == pytest.approx(
        -p.diagonal().log().mean().item(), rel=1e-6
    )


@pytest.mark.parametrize("m, d", [(4, 4), (5, 4), (7, 3)])
def test_gramian_is_constant_when_vectors_exceed_dimensions_and_muscle_is_not(m, d):
    """Appendix L, "well-definedness": m + 1 vectors in fewer dimensions span no volume."""
    anchor, others = members(m, 4, d)
    assert gramian(anchor, others).item() == pytest.approx(math.log(4), abs=1e-3)
    assert gradient(gramian, anchor, others).abs().max() < 1e-3
    assert gradient(muscle_loss, anchor, others).abs().max() > 1e-2


def test_gramian_has_a_finite_gradient_inside_the_span():
    """Where the anchor equals one of the others, and where the others are collinear."""
    anchor, others = members(2, 4, 8)
    aligned = others.clone()
    aligned[0] = anchor
    collinear = torch.stack([others[0], others[0]])
    for case in (aligned, collinear):
        assert gradient(gramian, anchor, case).isfinite().all()
    assert gramian(anchor, collinear).item() == pytest.approx(math.log(4), rel=1e-6)


# --- NT-Xent


def test_nt_xent_is_the_definition_in_loops_also_for_a_short_batch():
    first, second = members(1, 5, 4)[0], members(1, 5, 4, seed=1)[0]
    z = torch.cat([first, second])
    expected = []
    for i in range(10):
        weights = [0.0 if k == i else math.exp(float(z[i] @ z[k]) / 0.3) for k in range(10)]
        expected.append(-math.log(weights[(i + 5) % 10] / sum(weights)))
    assert nt_xent(first, second, 0.3).item() == pytest.approx(sum(expected) / 10, rel=1e-12)
    assert nt_xent(second, first, 0.3).item() == pytest.approx(sum(expected) / 10, rel=1e-12)


# --- relaxed contrast


def pair_with_cosine(cosine: float) -> Tensor:
    return torch.tensor([[1.0, 0.0], [cosine, math.sqrt(1 - cosine**2)]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("cosine", "penalty"), [(1.0, math.log(2)), (0.9, math.log1p(math.exp(-2))), (0.5, 0.0)]
)
def test_divergence_penalty_of_two_samples_of_a_class(cosine, penalty):
    same = torch.ones(2, 2, dtype=torch.bool)
    assert divergence_penalty(3 * pair_with_cosine(cosine), same).item() == pytest.approx(
        penalty, abs=1e-6
    )


def test_supervised_contrast_takes_the_least_similar_positive():
    features = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6], [-1.0, 0.0]], dtype=torch.float64)
    label = torch.tensor([0, 0, 0, 1])
    same = label[:, None] == label
    expected = 0.0
    for i in range(4):
        s = features @ features[i]
        positive = s[same[i]].min().item()
        negatives = s[~same[i]].topk(min(2, int((~same[i]).sum()))).values.tolist()
        weights = [math.exp(v / 0.2) for v in (positive, *negatives)]
        expected -= math.log(weights[0] / sum(weights)) / 4
    assert supervised_contrast(features, same, ~same, tau=0.2).item() == pytest.approx(
        expected, rel=1e-5
    )


# --- centred kernel alignment


def gram(z: Tensor) -> Tensor:
    return z @ z.T


def test_cka_ignores_rotation_scale_and_shift_but_not_a_linear_map():
    z = torch.randn(40, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rotation = torch.linalg.qr(
        torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    )[0]
    for other in (z, z @ rotation, 3 * z, z + 2):
        assert cka(gram(z), gram(other)).item() == pytest.approx(1, abs=1e-9)
    stretched = z * torch.tensor([10, 1, 1, 1, 1, 0.1], dtype=torch.float64)
    assert cka(gram(z), gram(stretched)).item() < 0.9


@pytest.mark.parametrize(("n", "biased"), [(32, 0.89), (128, 0.67), (1000, 0.20)])
def test_cka_of_independent_features_is_high_for_few_samples(n, biased):
    generator = torch.Generator().manual_seed(0)
    k, l = (gram(torch.randn(n, 256, generator=generator, dtype=torch.float64)) for _ in range(2))
    assert cka(k, l).item() == pytest.approx(biased, abs=0.02)


def test_cka_of_constant_representations_is_zero_with_a_finite_gradient():
    z = torch.ones(8, 3, requires_grad=True)
    value = cka(gram(z), gram(torch.randn(8, 3, generator=torch.Generator().manual_seed(0))))
    value.backward()
    assert value.item() == 0 and torch.isfinite(z.grad).all()


# --- made-up labels


def decisions(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).log_softmax(-1)


def test_divergence_divides_by_all_decisions_masked_or_not():
    log_p, q = decisions(4, 2, 3), decisions(4, 2, 3, seed=1).exp()
    mask = torch.zeros(4, 2)
    mask[1, 0] = 1
    alone = float((q[1, 0] * (q[1, 0].log() - log_p[1, 0])).sum())
    assert divergence(log_p, q, mask).item() == pytest.approx(alone / 8)
    assert divergence(log_p, q, torch.zeros(4, 2)).item() == 0


def test_divergence_from_a_hard_label_is_cross_entropy():
    log_p = decisions(5, 1, 4)
    labels = torch.tensor([[0], [3], [1], [1], [2]])
    expected = torch.nn.functional.nll_loss(log_p[:, 0], labels[:, 0])
    q = torch.nn.functional.one_hot(labels, 4).double()
    torch.testing.assert_close(divergence(log_p, q), expected)
    torch.testing.assert_close(hard_label_loss(log_p, labels), expected)


def test_hard_label_loss_ignores_abstentions_and_is_zero_without_labels():
    log_p = decisions(4, 2, 3).requires_grad_()
    labels = torch.full((4, 2), -1)
    assert hard_label_loss(log_p, labels).item() == 0
    labels[2, 1] = 0
    assert hard_label_loss(log_p, labels).item() == pytest.approx(-log_p[2, 1, 0].item())


def test_inverse_counts_give_every_outcome_of_a_decision_the_same_weight():
    labels = torch.tensor([[0, 1], [0, -1], [0, 1], [1, 1]])
    weights = inverse_counts(labels, 3)
    torch.testing.assert_close(weights, torch.tensor([[1 / 3, 1, 1], [1, 1 / 3, 1]]))
    log_p = decisions(4, 2, 3)
    common, rare = -log_p[:3, 0, 0].sum() / 3, -log_p[3, 0, 1]
    other = -(log_p[0, 1, 1] + log_p[2, 1, 1] + log_p[3, 1, 1]) / 3
    assert hard_label_loss(log_p, labels, weights.double()).item() == pytest.approx(
        ((common + rare + other) / 3).item(), rel=1e-6
    )


# --- SAGE


def sure(outcome: int, confidence: float, outcomes: int = 3) -> list[float]:
    rest = (1 - confidence) / (outcomes - 1)
    return [confidence if i == outcome else rest for i in range(outcomes)]


@pytest.mark.parametrize(("gap", "share"), [(0.0, 1.0), (0.05, 0.5), (0.1, 0.25)])
def test_the_users_share_of_a_sage_label_halves_with_every_gap(gap, share):
    own, ensemble = (
        torch.tensor([[row]], dtype=torch.float64) for row in (sure(0, 0.99), sure(1, 0.99 - gap))
    )
    target, mask = sage_target(own, ensemble)
    assert target[0, 0].tolist() == pytest.approx([share, 1 - share, 0])
    assert mask.all()


def test_sage_label_is_the_ensembles_where_the_user_is_unsure_and_none_where_both_are():
    own = torch.tensor([[sure(0, 0.5)], [sure(0, 0.5)], [sure(2, 0.96)]], dtype=torch.float64)
    ensemble = torch.tensor([[sure(1, 0.97)], [sure(1, 0.94)], [sure(2, 0.5)]], dtype=torch.float64)
    target, mask = sage_target(own, ensemble)
    assert mask.flatten().tolist() == [True, False, True]
    assert target[0, 0].tolist() == [0, 1, 0]
    torch.testing.assert_close(
        target[2, 0], torch.tensor([0, 0, 1.0], dtype=torch.float64)
    )  # they agree, however sure the ensemble is
    torch.testing.assert_close(target.sum(-1), torch.ones(3, 1, dtype=torch.float64))
    assert divergence(decisions(3, 1, 3), target, torch.zeros(3, 1)).item() == 0
