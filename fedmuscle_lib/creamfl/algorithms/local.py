"""The server alone: Table 3's "Local Training", which the paper does not define.

It trains on public pairs, and no client takes part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from fedmuscle_lib.creamfl.algorithms.algorithm import Algorithm
from fedmuscle_lib.creamfl.client import Client
from fedmuscle_lib.creamfl.party import Embeddings
from fedmuscle_lib.creamfl.server import Server


class Local(Algorithm):
    """Nothing is gathered, and nothing absorbed."""

    name, label = "local", "Server alone"

    def gather(
        self, server: Server, clients: Mapping[int, Client], round: int
    ) -> Sequence[Embeddings]:
        return []

    def regularise(
        self, z: Embeddings, received: Embeddings, before: Embeddings, rows: Tensor
    ) -> Tensor:
        raise NotImplementedError("no client takes part")

    def absorb(self, server: Server, uploads: Sequence[Embeddings], round: int) -> float:
        raise NotImplementedError("no client takes part")
