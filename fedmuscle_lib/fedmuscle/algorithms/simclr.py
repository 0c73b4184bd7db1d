"""SimCLR on public data: contrast within each user, between users nothing."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from pydantic import Field
from torch import Tensor

from fedmuscle_lib.fedmuscle import objectives
from fedmuscle_lib.fedmuscle.algorithms.algorithm import NO_PEERS, Algorithm, Federation
from fedmuscle_lib.fedmuscle.augmentation import View


@dataclass(frozen=True)
class _TwoViews:
    """Reply that aligns a user: the loss of 2b representations, the first b rows one view and the
    others another.
    """

    tau: float

    def loss(self, anchor: Tensor) -> Tensor:
        first, second = anchor.chunk(2)
        return objectives.nt_xent(first, second, self.tau)


class SimCLR(Algorithm):
    """Table 1's self-supervised baseline (Chen et al., 2020), in the place of the alignment;
    nothing is exchanged.

    Each user contrasts two augmented views of every public image, in batches of B, and updates w^n
    alone by its alignment optimiser.

    The paper leaves open the temperature, the augmentations and where the loss is applied. The
    authors have one command for CIFAR-10 and other values for ImageNet; ours are the first, whose
    views are not blurred. The loss is on z, the projected representation that the users of
    FedMuscle align, without SimCLR's own three-layer head, and as a mean over 2B rows (its code
    adds up the two views).
    """

    name, label = "simclr", "SimCLR"
    ignores = NO_PEERS
    views_only = True

    class Options(Algorithm.Options):
        tau: float = Field(
            0.5,
            gt=0,
            description=(
                "Not stated in the paper; that of SimCLR's CIFAR-10 command (the code's default is"
                " 0.1)."
            ),
        )
        strength: float = Field(
            0.5,
            ge=0,
            description=(
                "Colour jitter. Not stated in the paper; that of SimCLR's CIFAR-10 command."
            ),
        )

    def communicate(self, federation: Federation, round: int) -> float:
        losses = []
        for batch, rows in self.public_batches(round):
            for client in federation.clients:
                address = (
                    self.settings.seed,
                    client.user.number,
                    batch.round,
                    batch.epoch,
                    batch.position,
                )
                client.represent(rows, View("simclr", address, self.options.strength))
                losses.append(client.align(_TwoViews(self.options.tau)))
        return fmean(losses)
