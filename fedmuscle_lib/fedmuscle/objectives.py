"""Objectives beside the Muscle loss, in plain autograd: the other alignments of Table 7 and the
losses of Table 1's algorithms.

Every function is pure and returns the mean over the batch. Those of an anchor and others take rows
of unit norm and give a gradient to the anchor alone. Letters: ``b`` batch, ``d`` dimension, ``m``
other members; ``k`` decisions a sample and ``c`` outcomes a decision (see
``fedmuscle_lib.tasks.task.Classification``).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot, softplus

# --- alignment with other members


def info_nce(anchor: Tensor, other: Tensor, tau: float = 0.2) -> Tensor:
    """InfoNCE between an anchor and one other member, one direction.

    Args:
        anchor: (b, d), the gradient's owner.
        other: (b, d), a constant.
        tau: temperature.

    Source:
        Equation (1); Oord et al. (2019).

    Example:
        >>> z = torch.eye(4)
        >>> round(float(info_nce(z, z, tau=1.0)), 4)
        0.7437
    """
    logits = anchor @ other.detach().T / tau  # (b, b)
    return cross_entropy(logits, torch.arange(len(anchor), device=anchor.device))


def pairwise(anchor: Tensor, others: Tensor | Sequence[Tensor], tau: float = 0.2) -> Tensor:
    """Pairwise alignment: the sum of InfoNCE over the other members. The Muscle loss at gamma = 0,
    equation (16).

    Args:
        anchor: (b, d), the gradient's owner.
        others: (m, b, d) or m tensors (b, d), constants.
        tau: temperature. The paper does not state its value; equation (16) holds at the Muscle
            loss's own tau.

    Source:
        Section 4.1 (the sum, not a mean, over members).

    Example:
        >>> z = torch.eye(4)
        >>> round(float(pairwise(z, [z, z], tau=1.0)), 4)
        1.4873
    """
    return torch.stack([info_nce(anchor, other, tau) for other in others]).sum()


def gramian(anchor: Tensor, others: Tensor | Sequence[Tensor], tau: float = 0.07) -> Tensor:
    """Gramian-based contrastive loss: a softmax over j of minus the volume that z_i spans with the
    others' j-th vectors.

    More vectors than dimensions span no volume: the loss is then log b for every anchor (Appendix
        L).

    Args:
        anchor: (b, d), the gradient's owner.
        others: (m, b, d) or m tensors (b, d), constants.
        tau: temperature. The paper does not state it; the default is where Cicchetti et al. start
            theirs.

    Source:
        Appendix L; Cicchetti et al. (2025), one direction, without label smoothing.

    Example:
        >>> z = torch.eye(4)
        >>> round(float(gramian(z, [z], tau=1.0)), 4)
        0.7437
    """
    return cross_entropy(
        -volumes(anchor, others) / tau, torch.arange(len(anchor), device=anchor.device)
    )


def volumes(anchor: Tensor, others: Tensor | Sequence[Tensor]) -> Tensor:
    """Vol(z_i, z_j^1, .., z_j^m) at [i, j], (b, b): sqrt(det Gram) of the anchor's i-th and all
    others' j-th vectors.

    As Vol(others_j) times the distance of z_i from the others' span, by an orthonormal basis of
    that span: a determinant near 0 would be a difference of large terms. Blind to the sign of every
    vector.

    Args:
        anchor: (b, d), the gradient's owner.
        others: (m, b, d) or m tensors (b, d), constants.
    """
    basis, volume = _span(
        torch.stack([other.detach().to(anchor.dtype) for other in others], dim=-1)
    )  # (b, d, r), (b,)
    inside = (
        torch.einsum("id,jdr->ijr", anchor, basis).square().sum(-1)
    )  # (b, b), squared length of z_i's projection
    outside = anchor.square().sum(-1, keepdim=True) - inside  # (b, b)
    # sqrt has no gradient at 0, where z_i lies in the span
    return volume * (outside.clamp(min=0) + 1e-8).sqrt()


def _span(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal basis (b, d, min(d, m)) and volume (b,) of each sample's ``m`` vectors (b, d,
    m).
    """
    basis, triangle = torch.linalg.qr(vectors)
    if vectors.shape[2] > vectors.shape[1]:
        return basis, vectors.new_zeros(len(vectors))
    return basis, triangle.diagonal(dim1=1, dim2=2).prod(-1).abs()


# --- contrast within one model


def nt_xent(first: Tensor, second: Tensor, tau: float = 0.1) -> Tensor:
    """SimCLR's loss: each of the 2b rows has its other view as positive and the 2b - 2 rows of
    other samples as negatives.

    Args:
        first: (b, d), one view of every sample, rows of unit norm.
        second: (b, d), another view of the same samples.
        tau: temperature.

    Source:
        Chen et al. (2020), equation (1), as a mean over the 2b rows.

    Example:
        >>> views = torch.eye(8)
        >>> round(float(nt_xent(views[:4], views[4:])), 4)  # no row resembles another: log(2b - 1)
        1.9459
    """
    b = len(first)
    z = torch.cat([first, second])
    logits = (z @ z.T / tau).fill_diagonal_(-torch.inf)  # (2b, 2b)
    return cross_entropy(logits, torch.arange(2 * b, device=z.device).roll(b))


def supervised_contrast(
    features: Tensor, same: Tensor, different: Tensor, tau: float = 0.05, hardest: int = 2
) -> Tensor:
    """Supervised contrast of each sample's least similar sample of its class with the most similar
    ones of other classes.

    A sample without negatives has a loss of 0. One that is alone in its class has itself as
    positive, at a similarity of 1.

    Args:
        features: (b, d), of any norm; compared by cosine.
        same: (b, b) mask of samples with the same label, themselves included.
        different: (b, b) mask of negatives.
        tau: temperature.
        hardest: how many negatives count.

    Source:
        Seo et al. (2024); the selection of positive and negatives is their code's.
    """
    similarity = _cosines(features)
    positive = similarity.masked_fill(~same, torch.inf).amin(1, keepdim=True)
    negatives = (
        similarity.masked_fill(~different, -torch.inf)
        .topk(min(hardest, len(features)), dim=1)
        .values
    )
    return (
        (torch.cat([positive, negatives], dim=1) / tau)
        .logsumexp(1)
        .sub(positive[:, 0] / tau)
        .mean()
    )


def divergence_penalty(features: Tensor, same: Tensor, tau: float = 0.05) -> Tensor:
    """Keeps samples of one class from collapsing: log(1 + exp((s - 1) / tau)) of each sample's
    least similar s >= 0.7.

    A sample whose s is lower, or that is alone in its class, counts as s = -1.

    Args:
        features: (b, d), of any norm; compared by cosine.
        same: (b, b) mask of samples with the same label, themselves included.
        tau: temperature.

    Source:
        Seo et al. (2024), with the constant 1 of their code where the printed equation has a
        similarity; 0.7 is their lambda.
    """
    others = same & ~torch.eye(len(features), dtype=torch.bool, device=features.device)
    lowest = _cosines(features).masked_fill(~others, torch.inf).amin(1)
    lowest = lowest.where(others.any(1) & (lowest >= 0.7), -torch.ones_like(lowest))
    return softplus((lowest - 1) / tau).mean()


def _cosines(features: Tensor) -> Tensor:
    z = normalize(features, dim=-1)
    return z @ z.T


# --- similarity of two models


def cka(first: Tensor, second: Tensor) -> Tensor:
    """Centred kernel alignment of two Gram matrices (n, n) of the same samples, in [0, 1].

    It is the same for representations that differ by a rotation, a common scale or a shift. For few
    samples it is near 1 whatever the representations are (0.89 for independent ones of 32 samples
    in 256 dimensions).

    Args:
        first: the gradient's owner.
        second: likewise.

    Source:
        Kornblith et al. (2019); FedHeNN, Makhija et al. (2022).
    """
    second = second.to(first.dtype)
    # constant representations have no direction: their alignment is 0, and so is its gradient
    return (
        _hsic(first, second) / (_hsic(first, first) * _hsic(second, second)).clamp(min=1e-12).sqrt()
    )


def _hsic(k: Tensor, l: Tensor) -> Tensor:
    return (_centred(k) * _centred(l)).sum()


def _centred(k: Tensor) -> Tensor:
    return k - k.mean(0, keepdim=True) - k.mean(1, keepdim=True) + k.mean()


# --- labels that somebody made up


def divergence(log_p: Tensor, q: Tensor, mask: Tensor | None = None) -> Tensor:
    """KL(q || p), the mean over all n x k decisions; those outside the mask count as 0.

    Args:
        log_p: (n, k, c), the gradient's owner.
        q: (n, k, c), probabilities, a constant.
        mask: (n, k).

    Source:
        The distillation loss of FedDF (Lin et al., 2020) at temperature 1, and of SAGE's unlabelled
        samples.
    """
    q = q.detach()
    each = (torch.xlogy(q, q) - q * log_p).sum(-1)  # (n, k)
    return each.mean() if mask is None else (each * mask).mean()


def hard_label_loss(log_p: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Cross-entropy with the decisions that have a label, as a weighted mean over them; 0 if none
    has.

    Args:
        log_p: (n, k, c), the gradient's owner.
        labels: (n, k), outcomes, or -1 for none.
        weights: (k, c), of the outcomes of each decision; 1 each by default.
    """
    outcome = labels.clamp(min=0).long().unsqueeze(-1)  # (n, k, 1)
    weight = (labels >= 0).to(log_p.dtype)
    if weights is not None:
        weight = weight * weights.expand_as(log_p).gather(-1, outcome).squeeze(-1)
    losses = -log_p.gather(-1, outcome).squeeze(-1)
    return (losses * weight).sum() / weight.sum().clamp(min=torch.finfo(log_p.dtype).tiny)


def inverse_counts(labels: Tensor, outcomes: int) -> Tensor:
    """Weights (k, c) of outcomes: how rare each is among the labels of its decision, the rarest 1;
    one that never occurs counts as once.

    Args:
        labels: (n, k), outcomes, or -1 for none.
        outcomes: c.
    """
    counts = torch.stack([(labels == outcome).sum(0) for outcome in range(outcomes)], dim=-1).clamp(
        min=1
    )  # (k, c)
    return counts.amin(-1, keepdim=True) / counts


def sage_target(
    own: Tensor, ensemble: Tensor, threshold: float = 0.95, half_gap: float = 0.05
) -> tuple[Tensor, Tensor]:
    """SAGE's soft pseudo-labels (n, k, c), between a user's and the ensemble's most probable
    outcome, and their mask (n, k).

    Where the user is sure, its outcome has the weight lambda = 2^(-gap / half_gap), gap being how
    far the two confidences are apart, and the ensemble's the rest; elsewhere the ensemble's has
    all. Decisions of which neither is sure are masked out.

    Args:
        own: (n, k, c), probabilities.
        ensemble: (n, k, c), probabilities.
        threshold: how probable an outcome is for one to be sure.
        half_gap: the gap at which both count alike; the source's kappa is log 2 over this.

    Source:
        SAGE, as in its authors' code, where kappa is fixed.
    """
    (own_sure, own_label), (ensemble_sure, ensemble_label) = own.max(-1), ensemble.max(-1)
    share = torch.exp2(-(own_sure - ensemble_sure).abs() / half_gap) * (own_sure >= threshold)
    first, second = (
        one_hot(label, own.shape[-1]).to(own.dtype) for label in (own_label, ensemble_label)
    )
    target = share.unsqueeze(-1) * first + (1 - share).unsqueeze(-1) * second
    return target, (own_sure >= threshold) | (ensemble_sure >= threshold)
