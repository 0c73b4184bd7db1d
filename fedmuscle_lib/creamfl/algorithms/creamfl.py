"""CreamFL (Yu et al., ICLR 2023): inter- and intra-modal contrast at clients, global-local
contrastive aggregation, distillation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import mse_loss

from fedmuscle_lib.creamfl.algorithms.algorithm import Algorithm, other
from fedmuscle_lib.creamfl.losses import global_local, inter_modal, intra_modal
from fedmuscle_lib.creamfl.party import Embeddings, PublicLoss
from fedmuscle_lib.creamfl.server import Server


class CreamFL(Algorithm):
    """The authors' algorithm. Another aggregation is a subclass with its own :meth:`aggregate`."""

    name, label = "creamfl", "CreamFL"

    class Options(Algorithm.Options):
        client_weight: float = Field(
            0.5, ge=0, description="Of a client's loss on public pairs. The authors' code: 0.5."
        )
        tau: float = Field(
            0.5, gt=0, description="Of both contrasts at clients. The authors' code: 0.5."
        )
        weight: float = Field(
            0.6,
            ge=0,
            description=(
                "Of the distillation, for each modality. The authors' code: 0.3, added once for"
                " clients with one modality and once for those with two."
            ),
        )

    def regularise(
        self, z: Embeddings, received: Embeddings, before: Embeddings, rows: Tensor
    ) -> Tensor:
        tau = self.options.tau
        inter = sum(
            inter_modal(own, received[other(modality)], rows, tau) for modality, own in z.items()
        )
        same, mine = (
            torch.cat([of[modality][rows] for modality in z]) for of in (received, before)
        )
        return self.options.client_weight * (
            inter + intra_modal(torch.cat(list(z.values())), same, mine, tau)
        )

    def aggregate(self, uploads: Sequence[Tensor], received: Embeddings, modality: str) -> Tensor:
        """Return the target (n, d) of a modality from k clients' embeddings of it and the server's
        own of both modalities.
        """
        return global_local(uploads, received[other(modality)])

    def absorb(self, server: Server, uploads: Sequence[Embeddings], round: int) -> float:
        loss = self.server_loss(server, uploads, round)
        return server.over_public(loss, "distillation", "distil order", *server.address, round)

    def server_loss(self, server: Server, uploads: Sequence[Embeddings], round: int) -> PublicLoss:
        """Return the loss of the server's second pass: the mean squared error towards the targets,
        summed over modalities that somebody sent.
        """
        targets = {
            modality: self.aggregate(own, server.represent(), modality)
            for modality in server.models
            if (own := [each[modality] for each in uploads if modality in each])
        }

        def distilled(z: Embeddings, rows: Tensor, position: int) -> Tensor:
            errors = [mse_loss(z[modality], of[rows]) for modality, of in targets.items()]
            return self.options.weight * torch.stack(errors).sum()

        return distilled
