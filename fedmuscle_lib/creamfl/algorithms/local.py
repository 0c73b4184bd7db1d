"""The server alone: Table 3's "Local Training", which the paper does not define.

It trains on public pairs, and no client takes part.
"""

from __future__ import annotations

from typing import Any

from fedmuscle_lib.creamfl.algorithms.algorithm import Algorithm
from fedmuscle_lib.creamfl.party import Embeddings


class Local(Algorithm):
    """Nothing is gathered, and nothing absorbed."""

    name, label = "local", "Server alone"

    def gather(self, *_: Any) -> list[Embeddings]:
        return []
