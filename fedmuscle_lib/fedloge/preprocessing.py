"""Preprocessing of a client's own images: normalised, and in training cropped and flipped by address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedmuscle_lib.core.randomness import batches, generator
from fedmuscle_lib.data.samples import Samples

EVALUATION_BATCH = 256  # images at once, where no step follows


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of images for a network.

    Attributes:
        mean, std: of each channel, for values from 0 to 1. Not stated in the paper.
        padding: black pixels on each side, out of which training crops the image's own size again; 0 for none. The authors' code: 4.
        flip: whether training mirrors every other image. The authors' code does; where a mirrored image is of another class, as with
            letters, it must not.
    """

    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    padding: int = 4
    flip: bool = True

    def read(self, images: Tensor) -> Tensor:
        """Normalise images (b, 3, h, w), uint8, to float32."""
        mean, std = (torch.tensor(values, device=images.device).view(3, 1, 1) for values in (self.mean, self.std))
        return (images.float() / 255 - mean) / std

    def augment(self, images: Tensor, draws: torch.Generator) -> Tensor:
        """Crop and mirror images (b, 3, h, w), each in its own way, drawn by a CPU generator."""
        b, _, h, w = images.shape
        corner = torch.randint(2 * self.padding + 1, (2, b, 1), generator=draws)
        mirrored = torch.rand(b, 1, generator=draws) < (0.5 if self.flip else 0)
        down, across = torch.arange(h).expand(b, h), torch.arange(w).expand(b, w)
        down, across = corner[0] + down, corner[1] + torch.where(mirrored, w - 1 - across, across)
        padded = nn.functional.pad(images, [self.padding] * 4)
        one = torch.arange(b)[:, None, None].to(images.device)
        cropped = padded[one, :, down[:, :, None].to(images.device), across[:, None, :].to(images.device)]  # (b, h, w, 3)
        return cropped.permute(0, 3, 1, 2)


@torch.no_grad()
def features(backbone: nn.Module, images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Features (n, d) of images as they are, by the network in evaluation mode."""
    backbone.eval()
    return torch.cat([backbone(preprocessing.read(part)) for part in images.split(EVALUATION_BATCH)])


class LocalData:
    """One client's training samples.

    Args:
        client: its number.
        samples: its own.
        classes: c of the whole federation.
        preprocessing: how its network reads them.
        seed: prefix of every draw's address.

    Attributes:
        counts: (c,), samples of each class.
    """

    def __init__(self, client: int, samples: Samples, classes: int, preprocessing: Preprocessing, seed: int) -> None:
        self.client, self.samples, self.preprocessing, self._address = client, samples, preprocessing, (seed, client)
        self.counts = samples.targets.bincount(minlength=classes)

    def __len__(self) -> int:
        return len(self.samples)

    def batches(self, round: int, epoch: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield a shuffled pass in augmented batches: network inputs (b, 3, h, w) and labels (b,).

        The order and each image's crop follow from the seed, the client, the round and the epoch, and from nothing that was drawn before.
        """
        for step, rows in enumerate(batches(len(self), size, "local order", *self._address, round, epoch)):
            drawn = self.preprocessing.augment(self.samples.inputs[rows], generator("augmentation", *self._address, round, epoch, step))
            yield self.preprocessing.read(drawn), self.samples.targets[rows]

    def features(self, backbone: nn.Module) -> Tensor:
        """Features (n, d) of the samples as they are."""
        return features(backbone, self.samples.inputs, self.preprocessing)
