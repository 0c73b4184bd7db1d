"""The README's dense form of the Muscle loss, a tensor of B^(M+1) entries, and a loop over its terms: reference and teaching only.

``members`` are the anchor and the others, in this order, each (b, d); temperatures are numbers or (m+1, m+1) matrices over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity


def dense_log_alpha(members: Sequence[Tensor], tau: float | Tensor, tau_prime: float | Tensor) -> Tensor:
    """Logarithm of equation (3)'s weighting coefficient, repeated for every anchor row: (b,) * (m+1)."""
    b, rank = len(members[0]), len(members)
    table = torch.zeros((b,) * rank, dtype=members[0].dtype, device=members[0].device)
    for l, k in combinations(range(1, rank), 2):
        gamma = 1 / _of_pair(tau_prime, l, k) - 1 / _of_pair(tau, l, k)
        table += -gamma * _similarity(members, l, k)
    return table


def dense_loss(members: Sequence[Tensor], table: Tensor, tau: float | Tensor) -> Tensor:
    """Equation (5) given ``dense_log_alpha``'s table: a softmax over all b^m tuples, read at the tuples (i, .., i)."""
    rank = len(members)
    for k in range(1, rank):
        table = table + _similarity(members, 0, k) / _of_pair(tau, 0, k)
    tuples = tuple(range(1, rank))
    log_p = table - torch.log(torch.exp(table).sum(tuples, keepdim=True))  # (b,) * (m+1)
    positive = torch.zeros_like(log_p).fill_diagonal_(1)
    return -(positive * log_p).sum(tuples).mean()


def muscle_loss_dense(
    anchor: Tensor, others: Tensor | Sequence[Tensor], tau: float | Tensor = 0.2, tau_prime: float | Tensor = 0.15
) -> Tensor:
    """Equation (3) as the README computes it, differentiated by autograd. Needs several tensors of b^(m+1) entries.

    Args:
        anchor: (b, d), the gradient's owner.
        others: (m, b, d) or m tensors (b, d).
        tau, tau_prime: numbers or (m+1, m+1) matrices.
    """
    members = [anchor, *(other.detach() for other in others)]
    with torch.no_grad():
        table = dense_log_alpha(members, tau, tau_prime)
    return dense_loss(members, table, tau)


def muscle_loss_loop(
    anchor: Tensor, others: Tensor | Sequence[Tensor], tau: float | Tensor = 0.2, tau_prime: float | Tensor = 0.15
) -> Tensor:
    """Equation (3) term by term: anchor rows, tuples, pairs. For a handful of samples, to read beside the paper."""
    b, m = len(anchor), len(others)
    loss = anchor.new_zeros(())
    for i in range(b):
        log_weights = {}
        for j in product(range(b), repeat=m):
            vectors = [anchor[i], *(others[k][j[k]] for k in range(m))]
            log_weight = anchor.new_zeros(())
            for l, k in combinations(range(m + 1), 2):
                if l == 0:
                    factor = 1 / _of_pair(tau, l, k)
                else:  # -gamma, equation (14)
                    factor = 1 / _of_pair(tau, l, k) - 1 / _of_pair(tau_prime, l, k)
                log_weight = log_weight + factor * torch.dot(vectors[l], vectors[k])
            log_weights[j] = log_weight
        loss = loss + torch.stack(list(log_weights.values())).logsumexp(0) - log_weights[(i,) * m]
    return loss / b


def _similarity(members: Sequence[Tensor], l: int, k: int) -> Tensor:
    """Cosine similarities of members l and k on their own axes among m+1."""
    similarity = cosine_similarity(members[l][:, None, :], members[k][None, :, :], dim=-1)  # (b, b)
    shape = [1] * len(members)
    shape[l], shape[k] = similarity.shape
    return similarity.view(shape)


def _of_pair(temperature: float | Tensor, l: int, k: int) -> float | Tensor:
    return temperature[l][k] if isinstance(temperature, Tensor) and temperature.ndim else temperature
