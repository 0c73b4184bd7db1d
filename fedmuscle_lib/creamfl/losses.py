"""Losses of CreamFL in plain autograd.

Letters: ``b`` batch, ``d`` dimension, ``n`` public pairs, ``c`` classes, ``k`` clients. "Code" is
the authors' code (https://github.com/FLAIR-THU/CreamFL at 264252c).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, one_hot, relu, softplus

MARGIN = 4.0  # code
SCALE = 128.0  # of features, code
OF_WEIGHTS = 0.5  # code: weight of the loss of class weights
START = 15.0  # of scale and shift, code
ROWS = 4096  # of a matrix over all public pairs, at once


class ClassHead(nn.Module):
    """Class weights (c, d), and the loss of clients with labels."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Linear(dim, classes).weight

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy with a margin, and that of the class weights among themselves.

        Args:
            z: (b, d), unit rows.
            labels: (b,).

        Source:
            Code: the true class's logit is lowered by 4; class weights below 0 count as 0.
        """
        classes = len(self.weight)
        logits = linear(SCALE * z, self.weight) - MARGIN * one_hot(labels, classes)
        weight = relu(self.weight)
        return cross_entropy(logits, labels) + OF_WEIGHTS * cross_entropy(
            weight @ weight.T, torch.arange(classes, device=z.device)
        )


class PairHead(nn.Module):
    """Scale and shift of distances, and the loss of those with image-text pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = (nn.Parameter(torch.tensor(START)) for _ in range(2))

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        """PCME's soft contrast, summed over all b^2 pairs and both directions.

        Args:
            images, texts: (b, d), rows of one index are a pair.

        Source:
            Code: with s = shift - scale |z_i - z_j|, softplus(-2 s) for a pair and softplus(2 s)
                for two rows that are none.
        """
        s = self.shift - self.scale * torch.cdist(images, texts)
        sign = 2 * torch.eye(len(s), device=s.device) - 1
        return 2 * softplus(-2 * sign * s).sum()


def inter_modal(z: Tensor, others: Tensor, rows: Tensor, tau: float) -> Tensor:
    """Contrast of a client's public samples with the server's embeddings of the other modality, of
    all public pairs.

    Args:
        z: (b, d), the gradient's owner.
        others: (n, d), constants.
        rows: (b,), which of the n each sample is.

    Source:
        Yu et al. (2023), local contrastive regularisation.
    """
    return cross_entropy(z @ others.T / tau, rows)


def intra_modal(z: Tensor, same: Tensor, before: Tensor, tau: float) -> Tensor:
    """Contrast of a client's public samples with the server's embeddings of them, against its own
    before this round (as MOON).

    Args:
        z: (b, d), the gradient's owner.
        same, before: (b, d), constants: the positives and the negatives.

    Source:
        Yu et al. (2023), local contrastive regularisation.
    """
    logits = torch.stack([(z * same).sum(1), (z * before).sum(1)], dim=1) / tau
    return cross_entropy(logits, logits.new_zeros(len(z), dtype=torch.int64))


def _own_log_probability(z: Tensor, others: Tensor) -> Tensor:
    """Of each row's pair among all n, (n,), some rows at a time: a matrix (n, n) of the paper's
    50,000 pairs would have 10 GB.
    """
    parts = enumerate(z.split(ROWS))
    return torch.cat([(part @ others.T).log_softmax(1).diagonal(k * ROWS) for k, part in parts])


def global_local(uploads: Sequence[Tensor], others: Tensor) -> Tensor:
    """The aggregate (n, d) of clients' embeddings: for each public pair the mean, weighed by a
    softmax over clients of their scores. Its rows are not normalised again, as in the code.

    A client's score is the log-probability, among all n, of the pair's own embedding by the server
    in the other modality.

    Args:
        uploads: k tensors (n, d).
        others: (n, d), the server's of the other modality.

    Source:
        Yu et al. (2023), global-local contrastive aggregation; code: no temperature.
    """
    weights = torch.stack([_own_log_probability(z, others) for z in uploads]).softmax(0)  # (k, n)
    return (weights[..., None] * torch.stack(list(uploads))).sum(0)
