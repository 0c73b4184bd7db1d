"""CreamFL with the Muscle loss (Appendix M), at clients in place of their contrasts and at the
server in place of aggregation and MSE.

Clients: "align the local representations of each modality (e.g., image) with the global
representations of all modalities". Server: "align the global representations of each modality with
all local representations received from the users". What this leaves open are options.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.creamfl.algorithms.creamfl import CreamFL
from fedmuscle_lib.creamfl.party import Embeddings, PublicLoss
from fedmuscle_lib.creamfl.server import Server
from fedmuscle_lib.muscle import muscle_loss


class CreamFLMuscle(CreamFL):
    """The anchors are a client's embeddings of a batch, and at the server its own; the others get
    no gradient.
    """

    name, label = "creamfl_muscle", "CreamFL + Muscle loss"

    class Options(CreamFL.Options):
        client_tau: float = Field(
            0.2,
            gt=0,
            description="tau^(3), client and both of the server's. The paper: 0.2 for 4 members.",
        )
        client_tau_prime: float = Field(
            0.15, gt=0, description="tau^(2). The paper: 0.15 for 3 members."
        )
        others: int = Field(
            3,
            ge=1,
            description=(
                "M, clients' matrices beside the server's in a batch. The paper: \"all\"; a tuple"
                " of all can't be summed."
            ),
        )
        server_tau: float = Field(0.2, gt=0, description="tau^(M+1). The paper: 0.2 for 4 members.")
        server_tau_prime: float = Field(
            0.15, gt=0, description="tau^(M). The paper: 0.15 for 3 members."
        )
        # an address has all options, and stored runs had this one
        mse: float = Field(
            0.0, ge=0, le=0, description="Of CreamFL's distillation, which is replaced: 0 alone."
        )

    def muscle(self, z: Embeddings, others: list[Tensor], tau: float, tau_prime: float) -> Tensor:
        """The sum of the losses of anchors (b, d) by modality, each with all M others (b, d)."""
        losses = [muscle_loss(anchor, others, tau, tau_prime) for anchor in z.values()]
        return torch.stack(losses).sum()

    def regularise(
        self, z: Embeddings, received: Embeddings, before: Embeddings, rows: Tensor
    ) -> Tensor:
        others, o = [received[modality][rows] for modality in sorted(received)], self.options
        return o.client_weight * self.muscle(z, others, o.client_tau, o.client_tau_prime)

    def server_loss(self, server: Server, uploads: Sequence[Embeddings], round: int) -> PublicLoss:
        o, place = self.options, (*server.address, round)
        pairs = (pair for each in uploads for pair in sorted(each.items()))
        modalities, sent = zip(*pairs, strict=True)

        def loss(z: Embeddings, rows: Tensor, position: int) -> Tensor:
            drawn = members(modalities, o.others, "members", *place, position)
            others = [sent[i][rows] for i in drawn]
            return o.weight * self.muscle(z, others, o.server_tau, o.server_tau_prime)

        return loss


def members(modalities: Sequence[str], count: int, *address: object) -> list[int]:
    """Draw ``count`` of the uploaded matrices without replacement, one of each modality among them
    where there is room.

    Args:
        modalities: of each uploaded matrix.
        address: of the draw.

    Returns:
        Positions; all of them where there are no more than ``count``.
    """
    order = permutation(len(modalities), *address).tolist()
    firsts = [
        next(i for i in order if modalities[i] == modality)
        for modality in dict.fromkeys(modalities[i] for i in order)
    ]
    return (firsts + [i for i in order if i not in firsts])[:count]
