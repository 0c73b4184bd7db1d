"""Classifiers that are never trained: what an equiangular tight frame is, and that the sparse one
keeps its angles.
"""

from __future__ import annotations

import math

import pytest
import torch

from fedmuscle_lib.fedloge.etf import _gradient, angles, simplex_etf, sparse_etf


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dim, classes", [(2, 2), (3, 3), (16, 5), (128, 100)])
def test_a_simplex_etf_has_unit_rows_and_equal_cosines(dim, classes):
    weight = simplex_etf(dim, classes, draws())
    cosines = weight @ weight.T
    wanted = torch.full((classes, classes), -1 / (classes - 1)).fill_diagonal_(1)
    torch.testing.assert_close(cosines, wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(weight.sum(0), torch.zeros(dim), rtol=0, atol=1e-5)
    assert angles(weight) == pytest.approx(
        [math.degrees(math.acos(-1 / (classes - 1)))] * (classes * (classes - 1) // 2), abs=1e-2
    )


def test_the_closed_gradient_is_autograds():
    weight = torch.randn(7, 20, generator=draws(), dtype=torch.float64, requires_grad=True)
    norms = weight.norm(dim=1)
    cosines = (weight @ weight.T / (norms[:, None] * norms)).masked_fill(
        torch.eye(7, dtype=torch.bool), -1
    )
    (
        ((norms - 0.1) ** 2).sum() - cosines.max(1).values.clip(-0.99999, 0.99999).arccos().mean()
    ).backward()
    torch.testing.assert_close(_gradient(weight.detach(), 0.1), weight.grad)


def test_a_sparse_etf_comes_back_to_the_angles_and_to_its_norm():
    """From unit rows that 60 % of zeros pushed apart from their frame."""
    weight = sparse_etf(64, 10, draws(), lr=1e-3, steps=2000)
    before = sparse_etf(64, 10, draws(), steps=0)
    ideal = math.degrees(math.acos(-1 / 9))
    assert angles(weight).mean() == pytest.approx(ideal, abs=0.01)
    assert (angles(weight) - ideal).abs().max() < 2 < 10 < (angles(before) - ideal).abs().max()
    assert weight.norm(dim=1).mean() == pytest.approx(0.1, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("classes, angle, norm", [(10, 96.379, 0.1006), (100, 90.578, 0.1002)])
def test_sse_c_has_the_authors_mean_angle_and_norm(classes, angle, norm):
    """Printed in the logs of their runs, whose features have 512 dimensions. 2 and 14 seconds on an
    idle core.
    """
    weight = sparse_etf(512, classes, draws())
    assert round(float(angles(weight).mean()), 3) == angle
    assert float(weight.norm(dim=1).mean()) == pytest.approx(
        norm, abs=2e-4
    )  # a training, which processors round differently
