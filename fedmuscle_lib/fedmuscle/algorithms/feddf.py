"""FedDF (Lin et al., 2020): users of one label space distil the ensemble of their predictions for
the public set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib.fedmuscle.algorithms.algorithm import (
    NO_ALIGNMENT,
    Algorithm,
    ClientSide,
    Federation,
    Group,
)
from fedmuscle_lib.fedmuscle.objectives import divergence
from fedmuscle_lib.tasks import Classification

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client


@dataclass(frozen=True)
class Predict(ClientSide):
    """The head's outputs for the whole public set, (n, classes)."""

    def __call__(self, client: Client) -> Tensor:
        return client.over_public(client.model)


def predictions(group: Group, round: int, public_size: int) -> list[Tensor]:
    """Outputs of each user of a group, as the server takes them: :class:`Predict`."""
    shape = (public_size, len(group.space.classes))
    return [
        group.server.take(c.user.number, round, c.do(Predict()), shape, "predictions")
        for c in group.clients
    ]


@dataclass(frozen=True, eq=False)
class _Distil(ClientSide):
    """A step on a public batch with KL(probabilities || own prediction), each (b, k, c)."""

    rows: Tensor
    probabilities: Tensor

    def __call__(self, client: Client) -> float:
        inputs, decisions = client.public_inputs(self.rows), client.classification.decisions
        return client.step_on_public(
            ("distil", len(self.rows)),
            lambda: divergence(decisions(client.model(inputs)), self.probabilities),
        )


class FedDF(Algorithm):
    """Up: a user's outputs for the whole public set, |D| x classes; down: the group's ensemble of
    them, as large.

    The ensemble is recorded after the local updates, on images as they are. Every user of the
    group, itself one of the teachers, then makes a pass over the public set with KL(ensemble || own
    prediction) at temperature 1 by its local optimiser. A user that is alone in its label space
    skips this, as the paper's numbers imply: user 6 has 43.20 +- 0.24 on all three public sets.

    The authors average parameters too, where architectures agree; no two users of a group have the
    same. Their many steps with early stopping on validation data become one pass, since there is no
    such data here.
    """

    name, label = "feddf", "FedDF"
    ignores = NO_ALIGNMENT

    class Options(Algorithm.Options):
        average: Literal["logits", "probabilities"] = Field(
            "logits",
            description=(
                "What is averaged. Not stated in the paper; the command in the authors' README"
                " averages logits."
            ),
        )

    def communicate(self, federation: Federation, round: int) -> float | None:
        losses = [
            loss
            for group in federation.groups()
            if len(group.clients) > 1
            for loss in self._distil(group, round)
        ]
        return fmean(losses) if losses else None

    def _distil(self, group: Group, round: int) -> list[float]:
        teachers = self._teachers(group, round)
        losses = []
        for _, rows in self.public_batches(round):
            for client, teacher in zip(group.clients, teachers, strict=True):
                losses.append(client.do(_Distil(rows, teacher[rows])))
        return losses

    def _teachers(self, group: Group, round: int) -> list[Tensor]:
        """Return what each user of the group distils, (n, k, c): probabilities for the whole public
        set.
        """
        server, task = group.server, group.task
        mean = ensemble(
            task, predictions(group, round, self.settings.public_size), self.options.average
        )
        return [
            task.decisions(server.give(client.user.number, round, mean)).exp()
            for client in group.clients
        ]


class OwnTeacher(FedDF):
    """FedDF's control: a user distils its own predictions, so that steps and batches are the same
    and nothing is communicated.

    What FedDF has beyond it is what a user learns from the others of its label space.
    """

    name, label, source = "own_teacher", "Own teacher (no communication)", "control"

    def _teachers(self, group: Group, round: int) -> list[Tensor]:
        return [group.task.decisions(client.do(Predict())).exp() for client in group.clients]


def ensemble(
    task: Classification, outputs: list[Tensor], average: Literal["logits", "probabilities"]
) -> Tensor:
    """Outputs (n, classes) of users' mean prediction, in the space of their logits or of their
    probabilities.

    Args:
        outputs: each (n, classes). What all of a sample's logits have in common does not matter
            where classes exclude each other.
    """
    together = torch.stack(outputs)  # (users, n, classes)
    if average == "logits":
        return together.mean(0)
    log_p = torch.stack([task.decisions(each) for each in together])  # (users, n, k, c)
    return task.outputs(log_p.logsumexp(0) - math.log(len(outputs)))
