"""Clients with image-text pairs: the paper's fifteen with Flickr30k."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from fedmuscle_lib.creamfl.kinds.kind import Kind
from fedmuscle_lib.creamfl.losses import PairHead
from fedmuscle_lib.creamfl.party import Party, Recipe
from fedmuscle_lib.data.captioned import Captioned
from fedmuscle_lib.data.encodings import Pixels, Tokens
from fedmuscle_lib.data.partition import shards

SHARDS = 10  # of a client, code


class Pairs(Kind):
    """A sample is a caption with its image.

    Clients divide neighbouring captions, as in the code; the paper says by Dirichlet.
    """

    name, modalities = "pairs", ("images", "texts")

    def __init__(
        self, settings: Any, encodings: Mapping[str, Pixels | Tokens], sets: Mapping[str, Captioned]
    ) -> None:
        self._settings, own = settings, sets["pairs"]
        self.inputs = {
            modality: own.encoded(encodings[modality]).to(settings.device)
            for modality in self.modalities
        }
        self.image_of = own.image_of.to(settings.device)

    def shares(self, clients: int) -> Sequence[np.ndarray]:
        return shards(len(self.image_of), clients, SHARDS, "shards", self._settings.seed)

    def recipe(self) -> Recipe:
        s = self._settings
        return Recipe("adam", s.pairs_lr, s.batch_size, s.batch_size)

    def head(self) -> nn.Module:
        return PairHead()

    def loss(self, party: Party, rows: Tensor) -> Callable[[], Tensor]:
        images = party.reading("images", self.inputs["images"], self.image_of[rows])
        texts = party.reading("texts", self.inputs["texts"], rows)
        return lambda: party.head(images(), texts())
