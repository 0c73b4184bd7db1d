"""Gaussian models whose mutual information is known, and what a critic of pairs claims it is:
Theorem 1 beside the truth.

Model 0 is the anchor n, models 1 .. m are the others. Each of the d coordinates of their vectors is
a draw of its own from N(0, covariance), with variances of 1. Information is in nats.

A critic is a matrix K over the models, whose f of equation (2) is

    log f(u_0, .., u_m)  =  -1/2 sum_{k,l} K_{k,l} u_k . u_l  +  constant.

With K_{0,k} = -1 / tau, K_{l,k} = gamma between two others and no diagonal it is that of the Muscle
loss, equation (3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from .partition import log_partition, pairs


def correlated(m: int, with_anchor: float, among: float) -> Tensor:
    """Covariance (m+1, m+1) of an anchor and ``m`` others.

    Args:
        with_anchor: correlation of the anchor with each other model.
        among: correlation of any two others.

    Raises:
        ValueError: no m + 1 variables have these correlations, or they determine each other.
    """
    if not (
        abs(among) < 1 and m * with_anchor**2 < 1 + (m - 1) * among
    ):  # the determinant's factors
        raise ValueError(
            f"{m} others can't have a correlation of {with_anchor} with the anchor and of {among}"
            " with one another"
        )
    covariance = torch.full((m + 1, m + 1), float(among), dtype=torch.float64)
    covariance[0], covariance[:, 0] = with_anchor, with_anchor
    return covariance.fill_diagonal_(1)


def mutual_information(
    covariance: Tensor,
    first: Iterable[int],
    second: Iterable[int],
    given: Iterable[int] = (),
    d: int = 1,
) -> float:
    """I(first; second | given) of three groups of models.

    Example:
        >>> round(mutual_information(correlated(1, 0.5, 0.0), [0], [1]), 4)  # -1/2 log(1 - r^2)
        0.1438
    """
    a, b, c = map(list, (first, second, given))

    def log_det(models: list[int]) -> Tensor:
        return torch.logdet(covariance[models][:, models])

    return (d / 2 * (log_det(a + c) + log_det(b + c) - log_det(c) - log_det(a + b + c))).item()


def total_correlation(covariance: Tensor, d: int = 1) -> float:
    """What all models share, the others among themselves too: the sum of the models' entropies
    minus their joint entropy.
    """
    return (-d / 2 * torch.logdet(covariance)).item()


def critics(covariance: Tensor) -> dict[str, Tensor]:
    """Two density ratios as critics.

    Returns:
        "theorem": f* of equation (10), p(u_0, .., u_m) / p(u_0) p(u_1, .., u_m). "full": p(u_0, ..,
        u_m) / p(u_0) p(u_1) .. p(u_m). It has the smaller loss, since most tuples mix samples.
    """
    joint, alone = covariance.inverse(), torch.eye(len(covariance), dtype=covariance.dtype)
    others = alone.clone()
    others[1:, 1:] = covariance[1:, 1:].inverse()
    return {"theorem": joint - others, "full": joint - alone}


def draw(covariance: Tensor, samples: int, d: int, seed: int = 0) -> Tensor:
    """Vectors of all models, (m+1, samples, d)."""
    noise = torch.randn(
        samples,
        d,
        len(covariance),
        generator=torch.Generator().manual_seed(seed),
        dtype=torch.float64,
    )
    return torch.einsum("kl,bdl->kbd", torch.linalg.cholesky(covariance), noise)


def bound(critic: Tensor, u: Tensor) -> float:
    """M log B minus the loss of a critic (m+1, m+1) on one batch ``u`` (m+1, b, d): the right side
    of inequality (4).
    """
    n, b, _ = u.shape
    unary = torch.stack(
        [
            -critic[0, k] * u[0] @ u[k].T - critic[k, k] / 2 * u[k].square().sum(1)
            for k in range(1, n)
        ],
        dim=1,
    )
    pair = unary.new_empty(b, len(pairs(n - 1)), b)
    for p, (l, k) in enumerate(pairs(n - 1)):
        pair[:, p] = -critic[l + 1, k + 1] * u[l + 1] @ u[k + 1].T
    log_z, _ = log_partition(
        unary, pair, reach=float(pair.abs().amax((0, 2)).sum()), with_marginals=False
    )
    positive = (unary.diagonal(dim1=0, dim2=2).sum() + pair.diagonal(dim1=0, dim2=2).sum()) / b
    return ((n - 1) * math.log(b) + positive - log_z.mean()).item()


def limit(critic: Tensor, covariance: Tensor, d: int = 1) -> float:
    """What :func:`bound` tends to as the batch grows: E log f - E_z log E f, the inner mean over
    others that are drawn apart.

    Almost all of equation (3)'s tuples mix samples, so that their vectors are independent. Appendix
    E takes the mean of f* over them as 1, which it is over tuples of one sample. "full" tends to
    the total correlation, the largest limit of any critic (Donsker and Varadhan).
    """
    cross, mixed = critic[0, 1:], torch.eye(len(critic) - 1, dtype=critic.dtype) + critic[1:, 1:]
    of_others = torch.logdet(mixed) - cross @ torch.linalg.solve(mixed, cross)
    return (d / 2 * (critic[0, 0] + of_others - (critic * covariance).sum())).item()
