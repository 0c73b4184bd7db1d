"""The calls of the original code's README: the server's table of log alpha, and the loss that is
given it.

They are for code that was written against the README. Both hold tensors of B^(M+1) entries;
``muscle_loss(anchor, others, tau, tau_prime)`` has the same value and gradient without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .reference import dense_log_alpha, dense_loss


@torch.no_grad()
def compute_alpha(
    rep_matrices: Sequence[Tensor],
    tau: float | Tensor,
    tau_prime: float | Tensor,
    device: torch.device | str | None = None,
) -> Tensor:
    """Logarithm of equation (3)'s weighting coefficients, as the README's server sends it: (b,) *
    (m+1), equal for all rows of the anchor.

    Args:
        rep_matrices: the anchor and the m others, in this order, each (b, d).
        tau, tau_prime: numbers or (m+1, m+1) matrices over the members; gamma = 1 / tau_prime - 1 /
            tau.
        device: of the table; by default the members'.

    Returns:
        What ``muscle_loss(rep_matrices, alpha, tau, device)`` takes. With one other there is no
        pair to weigh, and all entries are 0.
    """
    return dense_log_alpha([one.to(device=device) for one in rep_matrices], tau, tau_prime)


def loss_given_alpha(rep_matrices: Sequence[Tensor], alpha: Any, tau: Any) -> Tensor:
    """Equation (5), given ``compute_alpha``'s table: the README's loss, a scalar. Only the anchor,
    the first member, gets a gradient.

    Raises:
        ValueError: the table is not one of these members.
    """
    wanted = (len(rep_matrices[0]),) * len(rep_matrices)
    found = tuple(getattr(alpha, "shape", ()))
    if found != wanted:
        raise ValueError(
            f"alpha: compute_alpha gives a table of {wanted} for {len(rep_matrices)} members, got"
            f" one of {found}"
        )
    anchor, *others = rep_matrices
    return dense_loss([anchor, *(other.detach() for other in others)], alpha.detach(), tau)
