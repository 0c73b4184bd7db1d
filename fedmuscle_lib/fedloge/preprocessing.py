"""Preprocessing of a client's own images: normalised, and in training cropped and flipped by
address.
"""

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
    """How training crops and mirrors images.

    Attributes:
        padding: black pixels on each side, out of which training crops the image's own size again;
            0 for none. The authors' code: 4.
        flip: whether training mirrors every other image. The authors' code does; where a mirrored
            image is of another class, as with letters, it must not.
    """

    padding: int = 4
    flip: bool = True

    def drawn(self, b: int, draws: torch.Generator) -> Tensor:
        """Draw how each of b images is cropped and mirrored, (3, b): rows down, columns across, and
        1 if it is mirrored.
        """
        corner = torch.randint(2 * self.padding + 1, (2, b), generator=draws)
        mirrored = torch.rand(b, generator=draws) < (0.5 if self.flip else 0)
        return torch.cat([corner, mirrored[None]])

    def augment(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Crop and mirror images (b, 3, h, w), each in its own way, (3, b); the result has its
        channels last in memory.
        """
        b, _, h, w = images.shape
        down, across, mirrored = drawn.to(images.device)
        padded = nn.functional.pad(images.permute(0, 2, 3, 1), (0, 0, *[self.padding] * 4))
        windows = padded.unfold(1, h, 1).unfold(2, w, 1)  # (b, rows down, columns across, 3, h, w)
        cropped = windows[torch.arange(b, device=images.device), down, across]
        return torch.where(mirrored.bool()[:, None, None, None], cropped.flip(3), cropped)


def read(images: Tensor) -> Tensor:
    """Map images (b, 3, h, w), uint8, to float32 from -1 to 1, as networks read them."""
    return (images.float() / 255 - 0.5) / 0.5


@torch.no_grad()
def features(backbone: nn.Module, images: Tensor) -> Tensor:
    """Features (n, d) of images as they are, by the network in evaluation mode."""
    backbone.eval()
    return torch.cat([backbone(read(part)) for part in images.split(EVALUATION_BATCH)])


class LocalData:
    """One client's training samples.

    Args:
        client: its number.
        samples: its own.
        classes: c of the whole federation.
        preprocessing: how training crops and mirrors them.
        seed: prefix of every draw's address.

    Attributes:
        counts: (c,), samples of each class.
    """

    def __init__(
        self, client: int, samples: Samples, classes: int, preprocessing: Preprocessing, seed: int
    ) -> None:
        self.client, self.samples, self.preprocessing = client, samples, preprocessing
        self._address = seed, client
        self.counts = samples.targets.bincount(minlength=classes)

    def __len__(self) -> int:
        return len(self.samples)

    def batches(self, round: int, epoch: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield a shuffled pass in augmented batches: network inputs (b, 3, h, w) and labels (b,).

        The order and each image's crop follow from the seed, the client, the round and the epoch,
        and from nothing that was drawn before.
        """
        order = batches(len(self), size, "local order", *self._address, round, epoch)
        address = ("augmentation", *self._address, round, epoch)
        drawn = [
            self.preprocessing.drawn(len(rows), generator(*address, step))
            for step, rows in enumerate(order)
        ]
        images = self.preprocessing.augment(
            self.samples.inputs[torch.cat(order)], torch.cat(drawn, 1)
        )  # an epoch at once
        for rows, batch in zip(order, images.split([len(rows) for rows in order]), strict=True):
            yield read(batch), self.samples.targets[rows]

    def features(self, backbone: nn.Module) -> Tensor:
        """Features (n, d) of the samples as they are."""
        return features(backbone, self.samples.inputs)
