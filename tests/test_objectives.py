"""What the Muscle loss is compared with, against closed forms and definitions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedmuscle_lib.muscle import muscle_loss
from fedmuscle_lib.objectives import gramian, info_nce, pairwise, volumes


def members(m: int, b: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    z = normalize(torch.randn(m + 1, b, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=-1)
    return z[0], z[1:]


def gradient(loss, anchor: Tensor, *args, **kwargs) -> Tensor:
    anchor = anchor.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(anchor, *args, **kwargs), anchor)[0]


def test_infonce_is_equation_1():
    anchor, others = members(1, 5, 4)
    weights = [[math.exp(float(z @ other) / 0.3) for other in others[0]] for z in anchor]
    expected = sum(-math.log(row[i] / sum(row)) for i, row in enumerate(weights)) / 5
    assert info_nce(anchor, others[0], 0.3).item() == pytest.approx(expected, rel=1e-12)


def test_orthogonal_members_leave_chance():
    """Nothing tells the samples apart: m log b."""
    basis = torch.eye(8)
    anchor, other = basis[:4], basis[4:]
    assert info_nce(anchor, other).item() == pytest.approx(math.log(4))
    assert pairwise(anchor, [other, other]).item() == pytest.approx(2 * math.log(4))


def test_pairwise_is_a_sum_over_members():
    anchor, others = members(3, 6, 8)
    assert pairwise(anchor, others).item() == pytest.approx(sum(info_nce(anchor, other).item() for other in others), rel=1e-12)


@pytest.mark.parametrize("loss", [pairwise, gramian])
def test_only_the_anchor_gets_a_gradient(loss):
    anchor, others = members(2, 6, 8)
    anchor.requires_grad_(), others.requires_grad_()
    loss(anchor, others).backward()
    assert anchor.grad is not None and others.grad is None


@pytest.mark.parametrize("loss", [pairwise, gramian])
def test_gradients_are_derivatives(loss):
    anchor, others = members(2, 4, 6)
    assert torch.autograd.gradcheck(lambda z: loss(z, others, 0.5), anchor.requires_grad_())


# --- Gramian ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 3])
def test_volume_is_the_root_of_the_gram_determinant(m: int):
    """To the 1e-8 under the root that keeps its gradient finite."""
    anchor, others = members(m, 5, 8)
    ours = volumes(anchor, others)
    for i in range(5):
        for j in range(5):
            z = torch.cat([anchor[i : i + 1], others[:, j]])  # (m+1, d)
            assert ours[i, j].item() == pytest.approx(torch.linalg.det(z @ z.T).sqrt().item(), abs=1e-6)


def test_volume_of_equal_and_of_orthonormal_vectors():
    basis = torch.eye(4, dtype=torch.float64)
    assert volumes(basis[:2], [basis[:2]])[0, 0].item() == pytest.approx(0, abs=1e-3)
    assert volumes(basis[:2], [basis[2:], basis[[3, 2]]])[0, 0].item() == pytest.approx(1)


def test_volume_of_two_vectors_is_the_sine():
    anchor, others = members(1, 6, 5)
    cosine = anchor @ others[0].T
    torch.testing.assert_close(volumes(anchor, others), (1 - cosine**2).sqrt(), rtol=0, atol=1e-6)


def test_gramian_is_its_definition():
    """Appendix L's formula, from determinants."""
    anchor, others = members(2, 5, 8)
    z = torch.stack([torch.stack([torch.cat([anchor[i : i + 1], others[:, j]]) for j in range(5)]) for i in range(5)])  # (b, b, m+1, d)
    p = torch.softmax(-torch.linalg.det(z @ z.mT).sqrt() / 0.07, dim=1)
    assert gramian(anchor, others).item() == pytest.approx(-p.diagonal().log().mean().item(), rel=1e-6)


def test_gramian_ignores_order_rotation_and_sign():
    anchor, others = members(3, 5, 8)
    rotation, _ = torch.linalg.qr(members(1, 8, 8, seed=1)[0])
    expected = gramian(anchor, others)
    for same in (gramian(anchor, others[[2, 0, 1]]), gramian(anchor @ rotation, others @ rotation), gramian(-anchor, others)):
        torch.testing.assert_close(same, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("m, d", [(4, 4), (5, 4), (7, 3)])
def test_gramian_is_constant_when_vectors_exceed_dimensions_and_muscle_is_not(m: int, d: int):
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


# --- what is refused --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [pairwise, gramian])
def test_bad_arguments_are_refused(loss):
    anchor, others = members(2, 4, 6)
    with pytest.raises(ValueError, match="tau = 0"):
        loss(anchor, others, 0)
    with pytest.raises(ValueError, match="others is empty"):
        loss(anchor, [])
    with pytest.raises(ValueError, match=r"others\[1\] has shape \(3, 6\)"):
        loss(anchor, [others[0], others[1][:3]])
