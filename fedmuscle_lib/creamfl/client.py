"""A client: private data, which it trains on by itself, and public pairs, whose embeddings are all
that leaves it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from fedmuscle_lib.creamfl.kinds import Kind
from fedmuscle_lib.creamfl.party import Party, PublicLoss


class Client(Party):
    """A client's side of a round.

    Args:
        number: who it is.
        kind: its kind, which holds the data of all clients of this kind.
        rows: its own rows of these data.
        party: as :class:`Party`'s.
    """

    def __init__(self, number: int, kind: Kind, rows: Tensor, **party: Any) -> None:
        super().__init__(f"client {number}", recipe=kind.recipe, **party)
        self.number, self.kind, self.rows = number, kind, rows

    def fit(self, epochs: int, align: PublicLoss, round: int) -> tuple[float, float]:
        """Train in a round (from 0): each epoch is a pass over private data, then one over the
        public pairs by ``align``.

        Returns:
            Mean losses of the last epoch, private and public.

        Raises:
            Diverged: a loss or a weight is not finite; the message names the client.
        """
        for epoch in range(epochs):
            local = self.over_own(self.rows, partial(self.kind.loss, self))
            public = self.over_public(
                align, "alignment", "public order", *self.address, round, epoch
            )
        self.check_weights()
        return local, public
