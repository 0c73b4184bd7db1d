"""Theorem 1, Figure 7 and Appendices L and S in numbers: Gaussian models of known information, and
counted operations. No runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import log

import numpy as np
import pandas as pd
import torch
from scipy.stats import ttest_1samp
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize, one_hot

from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.muscle.gaussian import (
    bound,
    correlated,
    critics,
    draw,
    limit,
    mutual_information,
    total_correlation,
)
from fedmuscle_lib.muscle.loss import log_factors, muscle_loss
from fedmuscle_lib.muscle.partition import joint, log_partition, pairs, unpack
from fedmuscle_lib.muscle.temperature import temperatures
from fedmuscle_lib.report.statistics import CONFIDENCE, with_interval

B, M = 32, 3  # Section 6.1
MUSCLE = "Muscle loss"
CRITICS = {"theorem": "f* of equation (10)", "full": "full ratio"}


# --- Theorem 1


@fixed_state(threads=1)  # tensors are small
def bounds(
    batch_sizes: Iterable[int],
    members: Iterable[int],
    overlaps: Iterable[float],
    correlation: float = 0.5,
    d: int = 8,
    samples: int = 2048,
    seed: int = 0,
) -> pd.DataFrame:
    """Theorem 1's bound beside the truth, for Gaussian models, while one of three things varies: B,
    M, or what the others share.

    B and M are otherwise those of Section 6.1, and any two models have the same correlation.

    Args:
        overlaps: correlations of any two others.
        correlation: of the anchor with each other model.
        d: coordinates of a vector.
        samples: cut into batches, two at least.

    Returns:
        varied, B, M, overlap; critic (f*, the full ratio, or the Muscle loss of the vectors at unit
        length with Section 6.1's temperatures); information I(anchor; others), pairwise_sum of
        I(anchor; other) and total_correlation, in nats; limit of the bound for B -> infinity, where
        it has a closed form; bound, M log B minus the loss; difference, the bound minus the
        information, with its 95 % interval over batches (ci_low, ci_high). Unit vectors hold at
        most the information of the vectors they are made of.
    """
    points = [("B", b, M, correlation) for b in batch_sizes] + [
        ("M", B, m, correlation) for m in members
    ]
    points += [("overlap", B, M, overlap) for overlap in overlaps]
    rows = []
    for varied, b, m, overlap in points:
        covariance = correlated(m, correlation, overlap)
        of = partial(mutual_information, covariance, [0], d=d)
        known = {
            "information": of(range(1, m + 1)),
            "pairwise_sum": sum(of([k]) for k in range(1, m + 1)),
        }
        known |= {"total_correlation": total_correlation(covariance, d)}
        batches = draw(covariance, max(2, samples // b) * b, d, seed).split(b, dim=1)
        found = {
            CRITICS[name]: (limit(f, covariance, d), [bound(f, u) for u in batches])
            for name, f in critics(covariance).items()
        }
        found[MUSCLE] = float("nan"), [_claimed(normalize(u, dim=-1)) for u in batches]
        for critic, (end, values) in found.items():
            point = {"varied": varied, "B": b, "M": m, "overlap": overlap, "critic": critic}
            rows.append(point | known | {"limit": end} | _beside(known["information"], values))
    return pd.DataFrame(rows)


@fixed_state(threads=1)
def agreement(
    images: Iterable[int] = (300, 1000, 5000), d: int = 256, batches: int = 30, seed: int = 0
) -> pd.DataFrame:
    """:func:`bounds` of models that agree, with the Muscle loss: all have the same random unit
    vector for each of so many images.

    The information is then log(images): a vector says which image it is, and nothing more can be
        known. 300 are Table 6's public set,
    5000 Section 6.1's.
    """
    draws = torch.Generator().manual_seed(seed)
    rows = []
    for n in images:
        vectors = normalize(torch.randn(n, d, generator=draws, dtype=torch.float64), dim=-1)
        z = [vectors[torch.randint(n, (B,), generator=draws)] for _ in range(batches)]
        values = [_claimed(batch.expand(M + 1, B, d)) for batch in z]
        rows.append({"images": n, "information": log(n)} | _beside(log(n), values))
    return pd.DataFrame(rows)


def _claimed(u: Tensor) -> float:
    """The right side of inequality (4) for unit vectors (m+1, b, d), with the loss and the
    temperatures of the paper.
    """
    return (len(u) - 1) * log(u.shape[1]) - muscle_loss(u[0], u[1:]).item()


def _beside(information: float, values: Sequence[float]) -> dict[str, float]:
    difference = np.subtract(values, information)
    low, high = ttest_1samp(difference, 0).confidence_interval(CONFIDENCE)
    return {
        "bound": float(np.mean(values)),
        "difference": difference.mean(),
        "ci_low": low,
        "ci_high": high,
    }


def bounds_in_words(rows: pd.DataFrame) -> str:
    """Markdown, a sentence a critic: at how many points its bound is above the information, and
    where most.
    """
    lines = []
    for critic, own in rows.groupby("critic", sort=False):
        most = own.loc[own.difference.idxmax()]
        line = (
            f"- {critic}: above the information at {sum(own.ci_low > 0)} of {len(own)} points,"
            f" below it at {sum(own.ci_high < 0)}, "
        )
        line += (
            "undecided elsewhere; the largest difference is"
            f" {with_interval(most.difference, most.ci_low, most.ci_high)} nats, at "
        )
        line += f"B = {most.B}, M = {most.M} and an overlap of {most.overlap:g}."
        if own.limit.notna().all():
            over = own.limit - own.information
            line += (
                f" For B → ∞ it is above at {sum(over > 1e-9)}, by {over.max():.2f} nats at most."
            )
        lines.append(line)
    return "\n".join(lines)


# --- Figure 7


def venn(correlation: float = 0.5, d: int = 8) -> pd.DataFrame:
    """Information among three Gaussian models in three worlds: z2 and z3 share much, just so much
    that the sum is the whole, or nothing.

    Args:
        correlation: of z1 with z2 and with z3; below the square root of 1/2.
        d: coordinates of a vector.

    Returns:
        world, overlap (correlation of z2 with z3), whole I(z1; z2, z3), pairwise_sum I(z1; z2) +
        I(z1; z3), difference (the sum minus the whole), i12, i13, i13_given_2, i12_given_3,
        i23_given_1, and all_three, the middle of the diagram, I(z1; z2) - I(z1; z2 | z3).
    """
    square = correlation**2
    # with it, det of the three is det of (z1, z2) times det of (z1, z3), over their variances of 1
    worlds = {
        "shared": correlation,
        "the sum is the whole": square / (2 - square),
        "independent": 0.0,
    }
    rows = []
    for world, overlap in worlds.items():
        i = partial(mutual_information, correlated(2, correlation, overlap), d=d)
        whole, i12, i13, i12_given_3 = i([0], [1, 2]), i([0], [1]), i([0], [2]), i([0], [1], [2])
        rows.append(
            {
                "world": world,
                "overlap": overlap,
                "whole": whole,
                "pairwise_sum": i12 + i13,
                "difference": i12 + i13 - whole,
            }
            | {"i12": i12, "i13": i13, "i13_given_2": i([0], [2], [1]), "i12_given_3": i12_given_3}
            | {"i23_given_1": i([1], [2], [0]), "all_three": i12 - i12_given_3}
        )
    return (
        pd.DataFrame(rows).round(9).replace(-0.0, 0.0)
    )  # where the sum is the whole, no sign is left to rounding


# --- Appendix S


@fixed_state(threads=1)
def linear(
    taus: Iterable[float] = (0.05, 0.2, 1.0, 100.0),
    centres: Iterable[float] = (0.0, 4.0),
    batches: int = 16,
    seed: int = 0,
) -> pd.DataFrame:
    """The steps of Appendix S, for M + 1 users with linear models z = W x of the same public
    samples: what each leaves of the loss.

    (28) takes the largest term for the sum, (29) drops what does not depend on the user's own
    model, and (31) takes the mean of a product for the product of means, so that the user's mean
    vector and the others' mean differences are left. tau' is 3/4 of tau, as in Section 6.1. Half of
    the variance of W is common to all users, and vectors have length 1 in the mean square.

    Args:
        taus: temperatures.
        centres: lengths of the mean of the samples x, whose coordinates have a variance of 1.
        batches: of B samples.

    Returns:
        centre, tau; loss and largest_term, equation (28), in nats; norm of the loss's gradient in
        W; of the gradients of (29) and (31) the cosine with the loss's, and their norm over the
        loss's.
    """
    d, width = 8, 16  # coordinates of z and of x
    rows = []
    for centre in centres:
        draws = partial(
            torch.randn, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        x = draws(batches * B, width) + centre / width**0.5
        w = draws(d, width) + draws(M + 1, d, width)
        z = torch.einsum("kdp,bp->kbd", w, x)
        z = z / z.square().sum(-1).mean(1).sqrt()[:, None, None]
        rows += [{"centre": centre, "tau": tau} | _steps(x, z, tau) for tau in taus]
    return pd.DataFrame(rows)


def _steps(x: Tensor, z: Tensor, tau: float) -> dict[str, float]:
    """A row of :func:`linear` for samples x (s, p) and vectors z (m+1, s, d)."""
    parts = zip(*(pulls(batch, tau) for batch in z.split(B, dim=1)), strict=True)
    loss, largest, exact, hardest = map(torch.cat, parts)  # (s,), (s,), (s, d), (s, d)
    whole, of_29, of_31 = (
        exact.T @ x / len(x),
        hardest.T @ x / len(x),
        torch.outer(hardest.mean(0), x.mean(0)),
    )  # (d, p)
    row = {
        "loss": loss.mean().item(),
        "largest_term": largest.mean().item(),
        "norm": whole.norm().item(),
    }
    for name, step in {"29": of_29, "31": of_31}.items():
        cosine = cosine_similarity(whole.flatten(), step.flatten(), dim=0)
        row |= {
            f"cosine_{name}": cosine.item(),
            f"norm_{name}": (step.norm() / whole.norm()).item(),
        }
    return row


def pulls(u: Tensor, tau: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each row of a batch u (m+1, b, d): its loss by equations (3) and (28), (b,), and the
    gradients of both in the anchor, (b, d).
    """
    (m, b, d), heats = u[1:].shape, temperatures(tau, 0.75 * tau, len(u) - 1)
    keys, log_pair = log_factors(u[1:], heats)
    unary = (u[0] @ keys.reshape(m * b, d).T).view(b, m, b)
    log_z, soft = log_partition(unary, log_pair, reach=log_pair.abs().amax((0, 2)).sum().item())
    top, place = (
        joint(unary.unbind(1), unpack(log_pair, m), range(m), times=torch.add).flatten(1).max(1)
    )  # (b,)
    hard = one_hot(torch.stack(torch.unravel_index(place, (b,) * m), dim=1), b).to(u)  # (b, m, b)
    positive = unary.diagonal(dim1=0, dim2=2).sum(0) + log_pair.diagonal(dim1=0, dim2=2).sum(0)
    # the gradient is the mean of the tuples' vectors, each with its share of the sum, minus the
    # positive's
    exact, hardest = (
        torch.einsum("imj,mjd->id", share, keys) - keys.sum(0) for share in (soft, hard)
    )
    return log_z - positive, top - positive, exact, hardest


# --- Appendix L


def operations(members: Iterable[int] = range(1, 6), b: int = B, d: int = 256) -> pd.DataFrame:
    """Counted operations of a batch's loss and its gradient: a multiplication and an addition of a
    matrix product are two.

    Returns:
        M; by equation (5), which a user computes from the server's S and alpha; of this library's
        form, which the server computes for the reply `gradient`; of the Gramian loss, with (M +
        1)^3 for each of the B^2 determinants, as in Section 6.2; these determinants alone; of
        pairwise alignment; and equation (5) over the Gramian loss, which Section 6.2 says is 1 / (M
        + 1)^3.
    """
    rows = []
    for m in members:
        equation_5 = 4 * d * b ** (m + 1)  # logits Z S^T, and their gradient
        products = (
            4 * d * b * b * m
        )  # of the anchor with the others: similarities, and the gradient
        determinants = b * b * (m + 1) ** 3
        gramian = products + 2 * d * b * len(pairs(m)) + determinants
        rows.append(
            {
                "M": m,
                "equation_5": equation_5,
                "library": (
                    products + 2 * d * b * b * len(pairs(m)) + (4 * b ** (m + 1) if m > 1 else 0)
                ),
                "gramian": gramian,
                "determinants": determinants,
                "pairwise": products,
                "equation_5_over_gramian": equation_5 / gramian,
                "section_6_2": (m + 1) ** -3,
            }
        )
    return pd.DataFrame(rows)
