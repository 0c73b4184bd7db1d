"""The Muscle loss's gradient in its temperatures, for those that are learnt.

With E_i over the tuples j that equation (3)'s denominator weighs for row i of the anchor,

    dL / d(1 / tau_{n,m})  =  mean over i of  E_i[z^n_i . z^m_{j_m}]  -  z^n_i . z^m_i,
    dL / d gamma_{l,k}     =  mean over i of  z^l_i . z^k_i  -  E_i[z^l_{j_l} . z^k_{j_k}].

The marginals of the tuples give the first. For the second, E_i[z^l . z^k + 2] is a ratio of two
log-partitions, one of which has this positive factor at the pair.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .partition import log_partition, pairs
from .temperature import Temperature

_POSITIVE = 2.0  # added to a cosine, which makes a factor between 1 and 3 of it


def learnt(*heats: Temperature) -> bool:
    """Return whether one of the temperatures is to get a gradient."""
    return torch.is_grad_enabled() and any(
        isinstance(heat, Tensor) and heat.requires_grad for heat in heats
    )


def coefficients(tau: Temperature, tau_prime: Temperature, others: Tensor) -> tuple[Tensor, Tensor]:
    """1 / tau_{n,m} (m,) and gamma_{l,k} (m(m-1)/2,) as ``Temperatures`` has them, differentiable
    in tau and tau'.

    An entry of a matrix and its mirror image share a gradient, so that a step along it leaves the
    matrix symmetric.
    """
    n = 1 + len(others)
    tau, tau_prime = (torch.as_tensor(heat).to(others).expand(n, n) for heat in (tau, tau_prime))
    tau, tau_prime = ((heat + heat.T) / 2 for heat in (tau, tau_prime))
    first, second = torch.triu_indices(n - 1, n - 1, offset=1, device=others.device) + 1
    return 1 / tau[0, 1:], 1 / tau_prime[first, second] - 1 / tau[first, second]


@torch.no_grad()
def slopes(
    anchor: Tensor, others: Tensor, keys: Tensor, log_pair: Tensor, reach: float, budget: int
) -> tuple[Tensor, Tensor]:
    """Return dL/d(1/tau) (m,) and dL/dgamma (m(m-1)/2,).

    Args:
        anchor: (b, d); others: (m, b, d).
        keys, log_pair, reach, budget: as in ``loss.contrast``.
    """
    m, b, _ = others.shape
    cosines = torch.einsum("id,mjd->imj", anchor, others)  # (b, m, b)
    unary = torch.einsum("id,mjd->imj", anchor, keys)
    log_z, marginals = log_partition(unary, log_pair, reach, budget)  # (b,), (b, m, b)
    assert marginals is not None
    own = cosines.diagonal(dim1=0, dim2=2).sum(1)  # (m,)
    of_inverse = ((marginals * cosines.to(marginals)).sum((0, 2)) - own.to(marginals)) / b
    of_gamma = []
    for place, (l, k) in enumerate(pairs(m)):
        cosine = others[l] @ others[k].T  # (b, b)
        weighted = log_pair.clone()
        weighted[:, place] += (cosine + _POSITIVE).log()
        tilted, _ = log_partition(
            unary, weighted, reach + math.log(1 + _POSITIVE), budget, with_marginals=False
        )  # (b,)
        of_gamma.append(
            cosine.diagonal().mean().to(tilted)
            - ((tilted - log_z.to(tilted)).exp() - _POSITIVE).mean()
        )
    return of_inverse.to(others), (
        torch.stack(of_gamma).to(others) if of_gamma else others.new_empty(0)
    )
