"""CoFED (Cao et al., 2023): users of one label space vote on labels for the public set and train on those that are agreed."""

from __future__ import annotations

from statistics import fmean
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib.algorithms.base import Algorithm, Federation, Options
from fedmuscle_lib.objectives import inverse_counts


class CoFED(Algorithm):
    """Up: a hard label or an abstention for each decision, one byte; down: the labels that the server accepted, as many bytes.

    A user votes where its most probable outcome leads the next by more than ``margin``. An outcome is accepted if more than ``quorum`` of
    those who own the classes voted for it, and a decision with two accepted outcomes is dropped. In groups of two or three one vote is
    therefore enough, unless another contradicts it. Users then train on the accepted samples for an epoch, by their local
    optimiser. A user that is alone in its label space learns from its own votes; the paper's user 6 does change with the public set.

    Choices that the paper leaves open: the authors exchange once, after training to convergence, and pick the better of two learning rates
    by test accuracy, which we don't. Ours is one exchange too, at half time, after which training goes on: new labels in every round, which
    the cost in Table 1 suggests (twenty times local training's), were worse on a development seed. MLC votes class by class on presence
    and absence, and there too the rarer outcome weighs more, without which nearly all labels say absent.
    """

    name, label = "cofed", "CoFED"

    class Options(Options):
        weights: Literal["inverse counts", "none"] = Field(
            "inverse counts",
            description="Of a decision's outcomes. Not stated in the paper; the authors' code, for its classes.",
        )
        margin: float = Field(0.3, ge=0, lt=1, description="Not stated in the paper; the authors' code.")
        quorum: float = Field(0.3, ge=0, le=1, description="Not stated in the paper; the authors' code.")
        schedule: Literal["every round", "once"] = Field(
            "once", description="Not stated in the paper; the authors' code, here at half time."
        )
        warm_up: int = Field(10, ge=0, description="Local epochs before the first votes of `every round`. Not stated anywhere; ours.")

    def communicate(self, federation: Federation, round: int) -> float | None:
        if not self._due(round):
            return None
        losses = [loss for group in federation.groups() for loss in self._exchange(Federation(group, federation.server), round)]
        return fmean(losses) if losses else None

    def _due(self, round: int) -> bool:
        if self.options.schedule == "once":
            return round == self.settings.rounds // 2
        return (round + 1) * self.settings.local_epochs > self.options.warm_up

    def _exchange(self, group: Federation, round: int) -> list[float]:
        server, task = group.server, group.clients[0].task
        votes = [vote(task.decisions(client.predict_all()), self.options.margin) for client in group.clients]
        if len(votes) > 1:  # nothing travels where there is nobody to travel to
            shape = (self.settings.public_size, task.decisions(torch.zeros(1, len(group.clients[0].classes))).shape[1])
            votes = [server.take(c.user.number, round, cast, shape, "votes") for c, cast in zip(group.clients, votes, strict=True)]
        labels = merge(torch.stack(votes), task.outcomes, self.options.quorum)
        weights = inverse_counts(labels, task.outcomes) if self.options.weights == "inverse counts" else None
        losses = []
        for client in group.clients:
            received = server.give(client.user.number, round, labels) if len(votes) > 1 else labels
            losses += client.fit_labels(received, weights, round)
        return losses


def vote(log_p: Tensor, margin: float) -> Tensor:
    """Outcomes (n, k) of decisions (n, k, c) whose first probability exceeds the second by more than the margin, else -1; int8."""
    best = log_p.exp().topk(2, dim=-1)
    sure = best.values[..., 0] - best.values[..., 1] > margin
    return best.indices[..., 0].where(sure, -1).to(torch.int8)


def merge(votes: Tensor, outcomes: int, quorum: float) -> Tensor:
    """What the voters agree on, (n, k) int8, -1 where that is nothing.

    Args:
        votes: (users, n, k), outcomes or -1. All users own all classes of their label space.
        outcomes: c.
        quorum: an outcome needs more than this share of the users, and no other may have it too.
    """
    shares = torch.stack([(votes == outcome).float().mean(0) for outcome in range(outcomes)], dim=-1)  # (n, k, c)
    accepted = shares > quorum
    return accepted.int().argmax(-1).where(accepted.sum(-1) == 1, -1).to(torch.int8)
