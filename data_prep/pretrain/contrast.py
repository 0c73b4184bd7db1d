"""Supervised contrast (Khosla et al., 2020): two samples of one class have near features, and those of other classes far ones.

Classification, masks and masked tokens leave in the features what a sample looks like besides: its ground, its layout, its frame of words.
Two backbones then agree on these more than on classes, unlike those of the paper, which were trained on ImageNet with augmentation.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

TEMPERATURE = 0.1  # as in Khosla et al.


def contrastive(features: Tensor) -> Tensor:
    """Return the mean cross-entropy of telling each sample's partner from all other samples by cosine: Khosla et al.'s equation 2.

    Args:
        features: (2 n, width); the rows i and n + i are of one class, and count as of another class than the rest.
    """
    unit = F.normalize(features, dim=1)
    logits = (unit @ unit.T / TEMPERATURE).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(features)).roll(len(features) // 2))
