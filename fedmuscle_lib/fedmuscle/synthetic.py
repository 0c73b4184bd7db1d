"""The synthetic public set beside the images of the users of Setup1, from which it was made
(Appendix J).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.data.encodings import Encoding
from fedmuscle_lib.data.public import PUBLIC_SETS, images_of, read_public
from fedmuscle_lib.fedmuscle.build import checkpoint_of, encoding_of
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import SETUPS, User, task_of
from fedmuscle_lib.models import load_backbone, untrained

NAME = "synthetic"
USERS = [
    (user.number, user.task, user.client) for user in SETUPS["setup1"]
]  # image 6 r + k is made from image r of the k-th of them


def images(settings: Settings) -> Iterator[tuple[User, Encoding, Tensor, Tensor]]:
    """Each user with how its model reads images, all images of its training file, (n, 3, h, w)
    uint8, and those that were made of them, in the same order.

    Raises:
        ValueError: users of another setup, from whom no synthetic images were made.
        DataError, OSError: naming a file that is missing or damaged.
    """
    folder = settings.data_dir / PUBLIC_SETS[NAME]
    for user in settings.members:
        if (user.number, user.task, user.client) not in USERS:
            raise ValueError(
                f"setup: no synthetic images were made from those of user {user.number} of"
                f" {settings.setup}, but of setup1's users"
            )
        encoding = encoding_of(settings, user, load_backbone(checkpoint_of(settings, user)))
        private = task_of(user).read(settings.data_dir, user.client, "train", encoding)[0].inputs
        made = read_public(folder, len(images_of(folder)), encoding)
        yield user, encoding, private, made[user.number - 1 :: len(USERS)]


def neighbours(settings: Settings, publics: Sequence[str]) -> pd.DataFrame:
    """Distances of images to the nearest private image of a user, for each user.

    Private images are all of the user's training file; the distance of one of them is to the
    nearest other one. In pixels a distance is the root mean square difference, with pixels from 0
    to 1. In features it is the Euclidean distance of the features of the user's frozen backbone,
    centred on the mean of the private images and of unit norm.

    Args:
        publics: public sets beside the synthetic one; ``settings.public_size`` images of each are
            read.

    Returns:
        user, model, task, space ("pixels" or "features"), images ("private", "synthetic" for those
        that the user made, or a public set), n, nearest (median), p5 (5th percentile), own (per
        cent of the user's synthetic images whose nearest private image is the one that they were
        made from; NaN for other images).

    Raises:
        ValueError, DataError, OSError: as :func:`images`; a public set holds fewer images.
    """
    rows = []
    for user, encoding, private, made in images(settings):
        sets = {"private": private[: len(made)], NAME: made}
        for name in publics:
            if name != NAME:
                folder = settings.data_dir / PUBLIC_SETS[name]
                sets[name] = read_public(folder, settings.public_size, encoding)
        spaces = {"pixels": _in_pixels, "features": _in_features(settings, user, private)}
        for space, place in spaces.items():
            known = place(private)
            for name, shown in sets.items():
                distance, which = nearest(place(shown), known, others=name == "private")
                itself = 100 * (which == torch.arange(len(shown))).float().mean().item()
                rows.append(
                    {
                        "user": user.number,
                        "model": user.model,
                        "task": user.task,
                        "space": space,
                        "images": name,
                        "n": len(shown),
                        "nearest": distance.median().item(),
                        "p5": distance.quantile(0.05).item(),
                        "own": itself if name == NAME else math.nan,
                    }
                )
    return pd.DataFrame(rows)


def nearest(points: Tensor, known: Tensor, others: bool = False) -> tuple[Tensor, Tensor]:
    """Distance of each of ``points`` (n, d) to the nearest of ``known`` (m, d), and the row of
    that: (n,) each.

    Args:
        others: whether the points are the first of the known ones; each is then compared with the
            others.
    """
    distances = torch.cdist(
        points, known, compute_mode="donot_use_mm_for_euclid_dist"
    )  # else a point is not at 0 from itself
    if others:
        distances.fill_diagonal_(torch.inf)
    found = distances.min(1)
    return found.values, found.indices


def _in_pixels(images: Tensor) -> Tensor:
    """Points whose Euclidean distance is the root mean square difference of images (n, 3, h, w)
    uint8.
    """
    flat = images.flatten(1) / 255
    return flat / flat.shape[1] ** 0.5


def _in_features(settings: Settings, user: User, private: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from images (n, 3, h, w) uint8 to features of the user's frozen backbone, centred
    and of unit norm.
    """
    model = untrained(checkpoint_of(settings, user), pooling=settings.pooling)

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        return torch.cat([model.features(part) for part in images.split(64)])

    centre = features(private).mean(0)
    return lambda images: F.normalize(features(images) - centre, dim=1)
