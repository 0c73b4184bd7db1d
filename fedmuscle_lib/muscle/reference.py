"""The Muscle loss as a loop over equation (3)'s terms, and as the original README's dense tensor of
B^(M+1) entries.

For tests and teaching; ``loss.py`` prints the equation and computes it fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity


def muscle_loss_loop(
    anchor: Tensor,
    others: Tensor | Sequence[Tensor],
    tau: float | Tensor = 0.2,
    tau_prime: float | Tensor = 0.15,
) -> Tensor:
    """Equation (3), term by term, as the paper writes it. For a handful of samples.

    Args:
        anchor: z^n, (b, d), the gradient's owner.
        others: z^m, (m, b, d) or m tensors (b, d).
        tau, tau_prime: numbers or (m+1, m+1) matrices over (anchor, others...).
    """
    b, m = len(anchor), len(others)
    loss = zero = anchor.new_zeros(())
    for i in range(b):
        log_terms = {}  # of the sum in the denominator
        for j in product(range(b), repeat=m):
            z = [
                anchor[i],
                *(others[k][j[k]] for k in range(m)),
            ]  # the anchor's vector, and one of each other member
            log_alpha = zero
            for l, k in combinations(range(1, m + 1), 2):
                gamma = 1 / of_pair(tau_prime, l, k) - 1 / of_pair(tau, l, k)
                log_alpha = log_alpha - gamma * (z[l] @ z[k])
            log_terms[j] = log_alpha + sum(
                (z[0] @ z[k] / of_pair(tau, 0, k) for k in range(1, m + 1)), zero
            )
        numerator, denominator = (
            log_terms[(i,) * m],
            torch.stack(list(log_terms.values())).logsumexp(0),
        )
        loss = loss - (numerator - denominator)
    return loss / b


def of_pair(temperature: float | Tensor, l: int, k: int) -> float | Tensor:
    """The temperature of members ``l`` and ``k``; the anchor is member 0."""
    return (
        temperature[l][k] if isinstance(temperature, Tensor) and temperature.ndim else temperature
    )


def dense_log_alpha(
    members: Sequence[Tensor], tau: float | Tensor, tau_prime: float | Tensor
) -> Tensor:
    """Logarithm of equation (3)'s weighting coefficient, repeated for every anchor row: (b,) *
    (m+1).

    Args:
        members: the anchor and the others, in this order, each (b, d).
        tau, tau_prime: numbers or (m+1, m+1) matrices over the members.
    """
    b, rank = len(members[0]), len(members)
    table = torch.zeros((b,) * rank, dtype=members[0].dtype, device=members[0].device)
    for l, k in combinations(range(1, rank), 2):
        gamma = 1 / of_pair(tau_prime, l, k) - 1 / of_pair(tau, l, k)
        table += -gamma * _similarity(members, l, k)
    return table


def dense_loss(members: Sequence[Tensor], table: Tensor, tau: float | Tensor) -> Tensor:
    """Equation (5) given ``dense_log_alpha``'s table: a softmax over all b^m tuples, read at the
    tuples (i, .., i).
    """
    rank = len(members)
    for k in range(1, rank):
        table = table + _similarity(members, 0, k) / of_pair(tau, 0, k)
    tuples = tuple(range(1, rank))
    log_p = table - torch.log(torch.exp(table).sum(tuples, keepdim=True))  # (b,) * (m+1)
    positive = torch.zeros_like(log_p).fill_diagonal_(1)
    return -(positive * log_p).sum(tuples).mean()


def muscle_loss_dense(
    anchor: Tensor,
    others: Tensor | Sequence[Tensor],
    tau: float | Tensor = 0.2,
    tau_prime: float | Tensor = 0.15,
) -> Tensor:
    """Equation (3) as the README computes it, differentiated by autograd. Needs several tensors of
    b^(m+1) entries.

    Args:
        anchor: (b, d), the gradient's owner.
        others: (m, b, d) or m tensors (b, d).
        tau, tau_prime: numbers or (m+1, m+1) matrices.
    """
    members = [anchor, *(other.detach() for other in others)]
    with torch.no_grad():
        table = dense_log_alpha(members, tau, tau_prime)
    return dense_loss(members, table, tau)


def _similarity(members: Sequence[Tensor], l: int, k: int) -> Tensor:
    """Cosine similarities of members l and k on their own axes among m+1."""
    similarity = cosine_similarity(members[l][:, None, :], members[k][None, :, :], dim=-1)  # (b, b)
    shape = [1] * len(members)
    shape[l], shape[k] = similarity.shape
    return similarity.view(shape)
