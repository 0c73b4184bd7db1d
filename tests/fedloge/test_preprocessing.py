"""How a client reads its images: crops, mirrors, and that both follow from their address."""

from __future__ import annotations

import torch
import toy

from fedmuscle_lib.fedloge.preprocessing import LocalData, Preprocessing


def numbered(side: int = 16) -> torch.Tensor:
    """One image whose pixels are all different and none is black."""
    return (
        (1 + torch.arange(side * side))
        .view(1, 1, side, side)
        .expand(1, 3, side, side)
        .clamp(max=255)
        .to(torch.uint8)
    )


def augmented(preprocessing: Preprocessing, images: torch.Tensor) -> torch.Tensor:
    return preprocessing.augment(
        images, preprocessing.drawn(len(images), torch.Generator().manual_seed(0))
    )


def test_a_crop_is_a_window_of_the_padded_image_mirrored_or_not():
    side, padding = 12, 2
    image = numbered(side)
    padded = torch.nn.functional.pad(image, [padding] * 4)[0]
    windows = [
        padded[:, i : i + side, j : j + side]
        for i in range(2 * padding + 1)
        for j in range(2 * padding + 1)
    ]
    for flip in (True, False):
        wanted = windows + ([window.flip(-1) for window in windows] if flip else [])
        crops = augmented(Preprocessing(padding=padding, flip=flip), image.expand(1000, -1, -1, -1))
        seen = {next(i for i, one in enumerate(wanted) if torch.equal(one, crop)) for crop in crops}
        assert seen == set(range(len(wanted)))


def test_batches_follow_from_their_address_alone():
    def data(client=0, seed=0):
        return LocalData(client, toy.samples((9, 8, 5, 2)), 4, Preprocessing(), seed)

    def passed(local, round=0, epoch=0):
        return torch.cat([x.flatten(1) for x, _ in local.batches(round, epoch, 8)])

    one = data()
    first = passed(one, 2, 1)
    passed(one, 0, 0)
    assert torch.equal(passed(one, 2, 1), first) and torch.equal(passed(data(), 2, 1), first)
    for other in (
        passed(one, 2, 2),
        passed(one, 3, 1),
        passed(data(client=1), 2, 1),
        passed(data(seed=1), 2, 1),
    ):
        assert not torch.equal(other, first)
