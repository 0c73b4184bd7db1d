"""SAGE (Liu et al., 2025): users learn from pseudo-labels between their own prediction and their
group's, by how sure each is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib.core.randomness import batches
from fedmuscle_lib.fedmuscle.algorithms.algorithm import (
    NO_ALIGNMENT,
    Algorithm,
    ClientSide,
    Federation,
    Group,
)
from fedmuscle_lib.fedmuscle.algorithms.feddf import Predict, ensemble, predictions
from fedmuscle_lib.fedmuscle.augmentation import View
from fedmuscle_lib.fedmuscle.objectives import divergence, inverse_counts, sage_target

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client


class SAGE(Algorithm):
    """Up: a user's outputs for the whole public set, |D| x classes; down: its group's mean
    probabilities, as large.

    The authors' global model, an average of parameters, becomes the group's ensemble, the mean of
    its users' probabilities, recorded before the local updates on images as they are. Every local
    step then sees a labelled batch and mu public batches: the user predicts a weak view of these,
    makes pseudo-labels of that and of the ensemble, and learns a strong view, by one loss, L +
    lambda_u L_u. L_u is a sum over the decisions of which either is sure, divided by all; without
    any the step is local training's. So users take as many labelled steps as in local training. A
    user that is alone in its label space has its own snapshot for an ensemble and learns much as in
    FixMatch; the paper's user 6 does change with the public set.

    Choices that the paper leaves open: a labelled batch has B samples and so has each public one.
        MLC decides class by class whether it
    is present. Most that is sure there is absent, and ``balanced`` gives its rarer outcome more
    weight, by the ensemble's counts. What differs between our strong view and the authors' is in
    ``augmentation.View``.
    """

    name, label = "sage", "SAGE"
    version = 2
    ignores = NO_ALIGNMENT

    class Options(Algorithm.Options):
        # an address has all options, and stored runs had this one
        coupled: Literal[True] = Field(
            True,
            description=(
                "Labelled and public samples share their steps, as in the authors' code. Not stated"
                " in the paper."
            ),
        )
        mu: int = Field(
            2,
            ge=1,
            description=(
                "Public batches beside each labelled one. Not stated in the paper; the authors'"
                " code."
            ),
        )
        threshold: float = Field(
            0.95, gt=0, le=1, description="t. Not stated in the paper; the authors' code."
        )
        half_gap: float = Field(
            0.05,
            gt=0,
            description="log 2 / kappa. Not stated in the paper; fixed in the authors' code.",
        )
        balanced: bool = Field(
            False,
            description=(
                "Whether the rarer outcome of MLC's decisions weighs more. Not in the authors'"
                " code, which has no MLC."
            ),
        )
        weight: float = Field(
            1.0,
            gt=0,
            description=(
                "lambda_u of the unlabelled loss. Not stated in the paper; the authors' code."
            ),
        )

    def local_update(self, federation: Federation, round: int) -> float:
        size = self.options.mu * self.settings.public_batch
        for group in federation.groups():
            ensemble = self._ensemble(group, round)
            step = _Coupled(ensemble, self._weights(ensemble), self.options, size)
            self.steps |= dict.fromkeys((client.user.number for client in group.clients), step)
        return super().local_update(federation, round)

    def _weights(self, probabilities: Tensor) -> Tensor:
        """Of outcomes, (k, c): how rare each is among those that the ensemble is sure of."""
        if not self.options.balanced or probabilities.shape[1] == 1:
            return torch.ones_like(probabilities[0])
        sure, labels = probabilities.max(-1)
        return inverse_counts(
            labels.where(sure >= self.options.threshold, -1), probabilities.shape[-1]
        )

    def _ensemble(self, group: Group, round: int) -> Tensor:
        """(n, k, c); nothing travels where there is nobody to travel to."""
        server, task = group.server, group.task
        if len(group.clients) == 1:
            return task.decisions(group.clients[0].do(Predict())).exp()
        mean = ensemble(task, predictions(group, round, self.settings.public_size), "probabilities")
        for client in group.clients:
            server.give(client.user.number, round, mean)
        return task.decisions(mean).exp()


@dataclass(frozen=True, eq=False)
class _Coupled(ClientSide):
    """A local step with L_u of the next ``size`` public samples, which come in shuffled passes over
    the public set.

    L_u is by the ensemble's probabilities (n, k, c) and the user's own; ``weights`` (k, c) are the
    outcomes'.
    """

    ensemble: Tensor
    weights: Tensor
    options: SAGE.Options
    size: int

    def __call__(self, client: Client, rows: Tensor, number: int) -> Tensor:
        own, order = client.local_loss(rows), ("taught", *client.address)
        turn, position = divmod(number, len(batches(len(client.public), self.size, *order)))
        public = batches(len(client.public), self.size, *order, turn)[position]
        taught = self._taught(client, public, *client.address, number)
        if taught is None:
            return client.step(("fit", len(rows)), own)
        return client.step(("taught", len(rows), len(public)), lambda: own() + taught())

    def _taught(
        self, client: Client, rows: Tensor, *address: object
    ) -> Callable[[], Tensor] | None:
        """L_u of a public batch, to be computed within a step; None where neither is sure of any
        decision.
        """
        decisions = client.classification.decisions
        own = decisions(
            client.over_public(client.model, rows, View("weak", ("weak", *address)))
        ).exp()
        target, mask = sage_target(
            own, self.ensemble[rows], self.options.threshold, self.options.half_gap
        )
        if not mask.any():
            return None
        mask = mask * self.weights.expand_as(target).gather(
            -1, target.argmax(-1, keepdim=True)
        ).squeeze(-1)
        strong = client.public_inputs(rows, View("strong", ("strong", *address)))
        return lambda: (
            self.options.weight * divergence(decisions(client.model(strong)), target, mask)
        )
