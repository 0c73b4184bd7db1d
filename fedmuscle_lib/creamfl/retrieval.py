"""Retrieval between images and captions: recall at k in both directions, in folds and on the whole
set, and chance beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb
from typing import NamedTuple

import torch
from torch import Tensor

KS = (1, 5, 10)  # Table 3's
FOLDS = 5  # code: five of 1K test images
FOLD, WHOLE = (
    "fold",
    "whole",
)  # galleries: the paper's 1K test images, mean over five folds of its 5K, and its 5K


class Recall(NamedTuple):
    """Recall at k in per cent of a gallery ("fold" or "whole") and direction ("i2t" or "t2i"), and
    what a random order gives.
    """

    gallery: str
    direction: str
    k: int
    value: float
    chance: float


def recalls(
    images: Tensor, captions: Tensor, image_of: Tensor, folds: int = FOLDS, ks: Sequence[int] = KS
) -> Iterator[Recall]:
    """Yield recalls of the whole gallery and, as their mean, of consecutive folds of its images.

    An image is found if one of its captions is among its k nearest, a caption if its image is.
    Other rows that are as near as the right one come before it: embeddings that are all alike find
    nothing.

    Args:
        images: (n, d), unit rows.
        captions: (m, d), unit rows.
        image_of: (m,), the row of each caption's image.

    Source:
        Code's evaluator, ranks by scalar products; "1K" there is the mean over five folds.
    """
    for gallery, pieces in ((WHOLE, 1), (FOLD, folds)):
        parts = []
        for rows in torch.arange(len(images), device=images.device).tensor_split(pieces):
            own = (image_of >= rows[0]) & (image_of <= rows[-1])
            parts.append(_of(images[rows], captions[own], image_of[own] - rows[0], ks))
        for direction, k in parts[0]:
            found = torch.tensor([part[direction, k] for part in parts], dtype=torch.float64)
            yield Recall(gallery, direction, k, *found.mean(0).tolist())


def _of(
    images: Tensor, captions: Tensor, image_of: Tensor, ks: Sequence[int]
) -> dict[tuple[str, int], tuple[float, float]]:
    """Recall and chance by direction and k."""
    similarity = images @ captions.T  # (n, m)
    own = torch.arange(len(images), device=images.device)[:, None] == image_of  # (n, m)
    best = similarity.masked_fill(~own, -torch.inf).amax(1, keepdim=True)
    ranks = {
        "i2t": (~own & ~(similarity < best)).sum(1),  # so that what is no number finds nothing
        "t2i": (~own & ~(similarity < similarity[image_of, torch.arange(len(captions))])).sum(0),
    }
    (n, m), found = similarity.shape, {}
    for k in ks:
        missed = [comb(m - c, min(k, m)) / comb(m, min(k, m)) for c in own.sum(1).tolist()]
        chances = {"i2t": 100 * (1 - sum(missed) / n), "t2i": 100 * min(k, n) / n}
        for direction, rank in ranks.items():
            value = 100 * float((rank < k).cpu().double().mean())
            found[direction, k] = value, chances[direction]
    return found
