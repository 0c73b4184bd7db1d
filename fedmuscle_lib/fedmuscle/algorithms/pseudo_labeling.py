"""Pseudo-labelling by a curriculum (Cascante-Bonilla et al., 2021): users label public data for
themselves, the surest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field
from torch import Tensor

from fedmuscle_lib.fedmuscle.algorithms.algorithm import ClientSide, Federation
from fedmuscle_lib.fedmuscle.algorithms.cofed import MadeUpLabels

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client

# a first one on labelled data alone, then five, each with a fifth more of the public set
_PHASES = 6
_ENOUGH = 20  # local epochs of a phase, to begin anew


class PseudoLabeling(MadeUpLabels):
    """Nothing is exchanged. Training has six phases; at the start of phase c = 1..5 a user labels
    the public set, keeps the 20 c % of it that it is surest of, and passes over its own samples and
    the kept ones together.

    Choices that the paper leaves open: phases are equal parts of the rounds. The authors begin
        every phase from the initial weights, with
    hundreds of epochs a phase. Ours begin anew, LoRA and head from their start and with new
    optimisers, where a user's phases have 20 local epochs or more; in fewer nothing would be
    learnt, and a phase goes on from the last. Mixup, weight averaging and heavy augmentation of the
    authors' code are left out, as no other algorithm here has them, and so is the choice of the
    best phase on validation data. MLC ranks images by their most probable class and leaves out
    classes with probabilities from 0.35 to 0.65.
    """

    name, label = "pseudo_labeling", "Pseudo-labeling"
    communicates = False
    version = 2

    class Options(MadeUpLabels.Options):
        restart: bool | None = Field(
            None,
            description=(
                "Whether a phase begins from the initial weights; by default if it has 20 local"
                " epochs or more. Not stated in the paper; the authors' code does, with hundreds of"
                " epochs a phase."
            ),
        )

    def local_update(self, federation: Federation, round: int) -> float:
        part = phase(round, self.settings.rounds)
        if part and part != phase(round - 1, self.settings.rounds):
            for client in federation.clients:
                client.do(Surest(part / (_PHASES - 1)))
                if self._restarts(client):
                    client.restart()
        return super().local_update(federation, round)

    def _restarts(self, client: Client) -> bool:
        if self.options.restart is None:
            return (
                self.settings.epochs_after(self.settings.rounds, client.user) >= _PHASES * _ENOUGH
            )
        return self.options.restart


def phase(round: int, rounds: int) -> int:
    """Return which of the six phases a round is in, from 0."""
    return round * _PHASES // rounds


@dataclass(frozen=True)
class Surest(ClientSide):
    """Keeps labels of the ``share`` of samples with the largest certainty, and those whose
    certainty equals the last one's.
    """

    share: float

    def __call__(self, client: Client) -> None:
        log_p = client.classification.decisions(client.over_public(client.model))
        client.kept["labels"] = self.labels(log_p, client.classification.certainty(log_p))

    def labels(self, log_p: Tensor, certainty: Tensor) -> Tensor:
        accepted = certainty >= certainty.quantile(1 - self.share)
        labels = log_p.argmax(-1)
        if (
            labels.shape[1] > 1
        ):  # several decisions: those of which the model isn't sure are left out
            best = log_p.exp().amax(-1)
            labels = labels.where(best > 0.65, -1)
        return labels.where(accepted[:, None], -1)
