"""What the Muscle loss is compared with, in plain autograd: InfoNCE, pairwise alignment and the Gramian-based loss (Table 7).

Every function is pure, takes rows of unit norm, gives a gradient to the anchor alone, and returns the mean over the batch.
Letters: ``b`` batch, ``d`` dimension, ``m`` other members.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def info_nce(anchor: Tensor, other: Tensor, tau: float = 0.2) -> Tensor:
    """InfoNCE between an anchor and one other member, one direction.

    Args:
        anchor: (b, d), the gradient's owner.
        other: (b, d), a constant.
        tau: temperature.

    Raises:
        ValueError: for shapes that differ or tau <= 0.

    Source:
        Equation (1); Oord et al. (2019).

    Example:
        >>> z = torch.eye(4)
        >>> round(float(info_nce(z, z, tau=1.0)), 4)
        0.7437
    """
    _check(anchor, [other], tau)
    logits = anchor @ other.detach().T / tau  # (b, b)
    return cross_entropy(logits, torch.arange(len(anchor), device=anchor.device))


def pairwise(anchor: Tensor, others: Tensor | Sequence[Tensor], tau: float = 0.2) -> Tensor:
    """Pairwise alignment: the sum of InfoNCE over the other members. The Muscle loss at gamma = 0, equation (16).

    Args:
        anchor: (b, d), the gradient's owner.
        others: (m, b, d) or m tensors (b, d), constants.
        tau: temperature. The paper does not state its value; equation (16) holds at the Muscle loss's own tau.

    Raises:
        ValueError: for shapes that differ, no others, or tau <= 0.

    Source:
        Section 4.1 (the sum, not a mean, over members).

    Example:
        >>> z = torch.eye(4)
        >>> round(float(pairwise(z, [z, z], tau=1.0)), 4)
        1.4873
    """
    _check(anchor, others, tau)
    return torch.stack([info_nce(anchor, other, tau) for other in others]).sum()


def gramian(anchor: Tensor, others: Tensor | Sequence[Tensor], tau: float = 0.07) -> Tensor:
    """Gramian-based contrastive loss: a softmax over j of minus the volume that z_i spans with the others' j-th vectors.

    More vectors than dimensions span no volume: the loss is then log b for every anchor (Appendix L).

    Args:
        anchor: (b, d), the gradient's owner.
        others: (m, b, d) or m tensors (b, d), constants.
        tau: temperature. The paper does not state it; the default is where Cicchetti et al. start theirs.

    Raises:
        ValueError: for shapes that differ, no others, or tau <= 0.

    Source:
        Appendix L; Cicchetti et al. (2025), one direction, without label smoothing.

    Example:
        >>> z = torch.eye(4)
        >>> round(float(gramian(z, [z], tau=1.0)), 4)
        0.7437
    """
    _check(anchor, others, tau)
    return cross_entropy(-volumes(anchor, others) / tau, torch.arange(len(anchor), device=anchor.device))


def volumes(anchor: Tensor, others: Tensor | Sequence[Tensor]) -> Tensor:
    """Vol(z_i, z_j^1, .., z_j^m) at [i, j], (b, b): sqrt(det Gram) of the anchor's i-th and all others' j-th vectors.

    As Vol(others_j) times the distance of z_i from the others' span, by an orthonormal basis of that span: a determinant near 0 would
    be a difference of large terms. Blind to the sign of every vector.

    Args:
        anchor: (b, d), the gradient's owner.
        others: (m, b, d) or m tensors (b, d), constants.
    """
    basis, volume = _span(torch.stack([other.detach() for other in others], dim=-1))  # (b, d, r), (b,)
    inside = torch.einsum("id,jdr->ijr", anchor, basis).square().sum(-1)  # (b, b), squared length of z_i's projection
    outside = anchor.square().sum(-1, keepdim=True) - inside  # (b, b)
    # sqrt has no gradient at 0, where z_i lies in the span
    return volume * (outside.clamp(min=0) + 1e-8).sqrt()


def _span(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal basis (b, d, min(d, m)) and volume (b,) of each sample's ``m`` vectors (b, d, m)."""
    basis, triangle = torch.linalg.qr(vectors)
    if vectors.shape[2] > vectors.shape[1]:
        return basis, vectors.new_zeros(len(vectors))
    return basis, triangle.diagonal(dim1=1, dim2=2).prod(-1).abs()


def _check(anchor: Tensor, others: Tensor | Sequence[Tensor], tau: float) -> None:
    if not tau > 0:
        raise ValueError(f"tau = {tau}: must be positive")
    if len(others) < 1:
        raise ValueError("others is empty: at least one other member is needed")
    for index, other in enumerate(others):
        if anchor.ndim != 2 or other.shape != anchor.shape:
            raise ValueError(f"others[{index}] has shape {tuple(other.shape)}, the anchor {tuple(anchor.shape)}: both must be (b, d)")
