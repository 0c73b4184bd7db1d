"""Augmented views of public pictures, for the algorithms that compare a picture with itself. Every draw has an address."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from kornia import augmentation as K
from kornia.augmentation.auto import RandAugment
from torch import Tensor, nn

from fedmuscle_lib.randomness import derived_seed

View = Callable[[Tensor], Tensor]  # pixel values from 0 to 255, (b, 3, h, w) -> (b', 3, h, w)


def weak(*address: object) -> View:
    """Flip, and crop after padding by an eighth of the side with the picture's mirror image (SAGE's code; FixMatch)."""
    return lambda images: _augmented(_weak(images.shape[-1]), images, *address)


def strong(*address: object) -> View:
    """Flip and crop as in a weak view, two operations of RandAugment and a grey square of half the side, after SAGE's code.

    RandAugment is kornia's, at magnitude 10 of 30, always applied, its two operations drawn once for the batch and their signs for
    each picture. The authors name n = 2 and m = 10 of FixMatch's form, which draws operations and a magnitude of 10 levels for each
    picture and applies each with probability a half.
    """
    return lambda images: _augmented(_strong(images.shape[-1]), images, *address)


def simclr(strength: float, *address: object) -> View:
    """Two views of every picture, one after the other, (2b, 3, h, w): crop, flip, colour jitter, grey.

    Args:
        strength: of the jitter, as in Chen et al. (2020): 0.5 for CIFAR-10, 1 for ImageNet. Without blur, as there for CIFAR-10.
    """
    return lambda images: _augmented(_simclr(images.shape[-1], strength), images.repeat(2, 1, 1, 1), *address)


def _augmented(augmentation: nn.Module, images: Tensor, *address: object) -> Tensor:
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed("view", *address))
        return augmentation(images.float() / 255) * 255


def _weak_steps(size: int) -> list[nn.Module]:
    return [K.RandomHorizontalFlip(), K.RandomCrop((size, size), padding=size // 8, padding_mode="reflect")]


@lru_cache(maxsize=4)
def _weak(size: int) -> nn.Module:
    return nn.Sequential(*_weak_steps(size))


@lru_cache(maxsize=4)
def _strong(size: int) -> nn.Module:
    square = K.RandomErasing(scale=(0.25, 0.25), ratio=(1.0, 1.0), value=0.5, p=1.0)  # of a quarter of the area
    return nn.Sequential(*_weak_steps(size), RandAugment(n=2, m=10), square)


@lru_cache(maxsize=4)
def _simclr(size: int, strength: float) -> nn.Module:
    jitter = K.ColorJitter(0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength, p=0.8)
    return nn.Sequential(K.RandomResizedCrop((size, size), scale=(0.08, 1.0)), K.RandomHorizontalFlip(), jitter, K.RandomGrayscale(p=0.2))
