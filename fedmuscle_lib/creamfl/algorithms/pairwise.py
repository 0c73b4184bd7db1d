"""CreamFL with pairwise alignment in place of the Muscle loss: the sum of InfoNCE over the others,
the Muscle loss at gamma = 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fedmuscle_lib.creamfl.algorithms.creamfl_muscle import CreamFLMuscle


class Pairwise(CreamFLMuscle):
    """All the Muscle loss adds to it are the weights of tuples."""

    name, label, source = "pairwise", "CreamFL + pairwise", "control"

    def muscle(
        self, anchor: Tensor, others: Sequence[Tensor], tau: float, tau_prime: float
    ) -> Tensor:
        return super().muscle(anchor, others, tau, tau)
