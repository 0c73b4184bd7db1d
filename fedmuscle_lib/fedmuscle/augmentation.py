"""Augmented views of public images, for the algorithms that compare an image with itself.

Every draw has an address.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from kornia import augmentation as K
from kornia.augmentation.auto import RandAugment
from torch import Tensor, nn

from fedmuscle_lib.core.randomness import seeded


@dataclass(frozen=True)
class View:
    """An augmentation as a value. A client draws it by calling it on images.

    Kinds:
        weak: flip, and crop after padding by an eighth of the side with the image's own reflection
            (SAGE's code; FixMatch).
        strong: flip and crop as in a weak view, two operations of RandAugment and a grey square of
            half the side, after SAGE's code. RandAugment is kornia's, at magnitude 10 of 30, always
            applied, its two operations drawn once for the batch and their signs for each image. The
            authors name n = 2 and m = 10 of FixMatch's form, which draws operations and a magnitude
            of 10 levels for each image and applies each with probability a half.
        simclr: two views of every image, one after the other, (2b, 3, h, w): crop, flip, colour
            jitter, grey. Without blur, as in Chen et al. (2020) for CIFAR-10.

    Attributes:
        kind: one of these.
        address: of the draws.
        strength: of SimCLR's colour jitter, as in Chen et al. (2020): 0.5 for CIFAR-10, 1 for
            ImageNet; the other kinds have none.
    """

    kind: Literal["weak", "strong", "simclr"]
    address: tuple[object, ...]
    strength: float = 0.0

    def __call__(self, images: Tensor) -> Tensor:
        """Augment pixel values from 0 to 255: (b, 3, h, w) -> (b, 3, h, w), or (2b, 3, h, w) for
        SimCLR's two views.
        """
        augmentation = _augmentation(self.kind, images.shape[-1], self.strength)
        seen = images.repeat(2, 1, 1, 1) if self.kind == "simclr" else images
        with torch.no_grad(), seeded("view", *self.address):
            return augmentation(seen.float() / 255) * 255


@lru_cache(maxsize=12)
def _augmentation(kind: str, size: int, strength: float) -> nn.Module:
    flip = K.RandomHorizontalFlip()
    if kind == "simclr":
        jitter = K.ColorJitter(
            0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength, p=0.8
        )
        return nn.Sequential(
            K.RandomResizedCrop((size, size), scale=(0.08, 1.0)),
            flip,
            jitter,
            K.RandomGrayscale(p=0.2),
        )
    shifted = [flip, K.RandomCrop((size, size), padding=size // 8, padding_mode="reflect")]
    if kind == "weak":
        return nn.Sequential(*shifted)
    square = K.RandomErasing(
        scale=(0.25, 0.25), ratio=(1.0, 1.0), value=0.5, p=1.0
    )  # of a quarter of the area
    return nn.Sequential(*shifted, RandAugment(n=2, m=10), square)
