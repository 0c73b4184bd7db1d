"""SAGE: users learn from pseudo-labels between their own prediction and their group's, by how sure each is."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib import views
from fedmuscle_lib.algorithms.base import NO_ALIGNMENT, Algorithm, Federation, Group
from fedmuscle_lib.algorithms.feddf import ensemble
from fedmuscle_lib.messages import SoftLabels
from fedmuscle_lib.objectives import inverse_counts, sage_target


class SAGE(Algorithm):
    """Up: a user's outputs for the whole public set, |D| x classes; down: its group's mean probabilities, as large.

    The authors' global model, an average of parameters, becomes the group's ensemble, the mean of its users' probabilities,
    recorded after the local updates on pictures as they are. In a pass over the public set a user predicts a weak view of each batch, makes
    pseudo-labels of that and of the ensemble, and is trained on a strong view by its local optimiser. The sum is over the decisions
    of which either is sure, divided by all; a batch in which neither is sure of any is skipped, since a step without a gradient would still
    follow the optimiser's momentum. A user that is alone in its label space has its own snapshot for an ensemble and learns much as in
    FixMatch; the paper's user 6 does change with the public set.

    Choices that the paper leaves open: the authors couple every unlabelled batch with a labelled one, which would give user 6 about a
    hundred labelled epochs a round; ours is a pass of its own after the local update. MLC decides class by class whether it is
    present. Most that is sure there is absent, so that its rarer outcome weighs more, by the ensemble's counts (on a development seed
    this keeps MLC from collapsing). What differs between our strong view and the authors' is in ``views.strong``.
    """

    name, label = "sage", "SAGE"
    ignores = NO_ALIGNMENT

    class Options(Algorithm.Options):
        threshold: float = Field(0.95, gt=0, le=1, description="t. Not stated in the paper; the authors' code.")
        half_gap: float = Field(0.05, gt=0, description="log 2 / kappa. Not stated in the paper; fixed in the authors' code.")
        balanced: bool = Field(
            True,
            description="Whether the rarer outcome of MLC's decisions weighs more. Not in the authors' code, which has no MLC.",
        )
        weight: float = Field(1.0, gt=0, description="lambda_u of the unlabelled loss. Not stated in the paper; the authors' code.")

    def communicate(self, federation: Federation, round: int) -> float:
        return fmean(loss for group in federation.groups() for loss in self._learn(group, round))

    def _learn(self, group: Group, round: int) -> list[float]:
        probabilities = self._ensemble(group, round)
        weights = self._weights(probabilities)
        losses = []
        for batch, rows in self.public_batches(round):
            teacher = _Teacher(probabilities[rows], weights, self.options)
            for client in group.clients:
                address = (self.settings.seed, client.user.number, batch.round, batch.epoch, batch.position)
                losses.append(client.fit_taught(rows, teacher, views.weak("weak", *address), views.strong("strong", *address)) or 0.0)
        return losses

    def _weights(self, probabilities: Tensor) -> Tensor:
        """Of outcomes, (k, c): how rare each is among those that the ensemble is sure of."""
        if not self.options.balanced or probabilities.shape[1] == 1:
            return torch.ones_like(probabilities[0])
        sure, labels = probabilities.max(-1)
        return inverse_counts(labels.where(sure >= self.options.threshold, -1), probabilities.shape[-1])

    def _ensemble(self, group: Group, round: int) -> Tensor:
        """(n, k, c); nothing travels where there is nobody to travel to."""
        server, task = group.server, group.task
        if len(group.clients) == 1:
            return task.decisions(group.clients[0].predict_all()).exp()
        shape = (self.settings.public_size, len(group.space.classes))
        outputs = [server.take(c.user.number, round, c.predict_all(), shape, "predictions") for c in group.clients]
        mean = ensemble(task, outputs, "probabilities")
        for client in group.clients:
            server.give(client.user.number, round, mean)
        return task.decisions(mean).exp()


@dataclass(frozen=True, eq=False)
class _Teacher:
    """Labels a batch from the ensemble's probabilities (b, k, c) and the user's own; ``weights`` (k, c) are the outcomes'."""

    ensemble: Tensor
    weights: Tensor
    options: SAGE.Options

    def labels(self, log_p: Tensor) -> SoftLabels | None:
        target, mask = sage_target(log_p.exp(), self.ensemble, self.options.threshold, self.options.half_gap)
        if not mask.any():
            return None
        mask = mask * self.weights.expand_as(target).gather(-1, target.argmax(-1, keepdim=True)).squeeze(-1)
        return SoftLabels(target, mask, self.options.weight)
