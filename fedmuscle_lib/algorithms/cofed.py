"""CoFED (Cao et al., 2023): users of one label space vote on labels for the public set and train on those that are agreed."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib.algorithms.base import NO_ALIGNMENT, Algorithm, Federation, Group


class MadeUpLabels(Algorithm):
    """An algorithm whose users train on hard labels of public samples, which they keep from round to round."""

    ignores = (*NO_ALIGNMENT, "cl_epochs")

    class Options(Algorithm.Options):
        weights: Literal["inverse counts", "none"] = Field(
            "inverse counts",
            description="Of a decision's outcomes, by how rare they are. Not stated in the paper; what the authors' codes do with classes.",
        )

    def train_on_labels(self, federation: Federation, round: int) -> float | None:
        """An epoch of every user that has labels; returns the mean loss, None if nobody has any."""
        balanced = self.options.weights == "inverse counts"
        losses = [loss for client in federation.clients for loss in client.fit_labels(balanced, self.settings.public_batch, round)]
        return fmean(losses) if losses else None


class CoFED(MadeUpLabels):
    """Up: a hard label or an abstention for each decision, one byte; down: the labels that the server accepted, as many bytes.

    A user votes where its most probable outcome leads the next by more than ``margin``. An outcome is accepted if more than ``quorum`` of
    those who own the classes voted for it, and a decision with two accepted outcomes is dropped. In groups of two or three one vote is
    therefore enough, unless another contradicts it. Users then train on the accepted samples by their local optimiser. A user that is
    alone in its label space learns from its own votes; the paper's user 6 does change with the public set.

    Choices that the paper leaves open: the authors exchange once, after training to convergence, fine-tune for up to 200 epochs on their
    own and the accepted samples together, and pick the better of two learning rates by test accuracy, which we don't. Ours votes once, at
    half time, and makes one pass over what was accepted, after which local training goes on. To train on it in every later
    round was worse on a development seed, and so were new labels in every round, which the cost in Table 1 (twenty times local
    training's) suggests. MLC votes class by class on presence and absence; a decision's rarer outcome weighs more among the accepted,
    as a rarer class does in the authors' code, and without it nearly all labels of MLC say absent.
    """

    name, label = "cofed", "CoFED"

    class Options(MadeUpLabels.Options):
        margin: float = Field(0.3, ge=0, lt=1, description="Not stated in the paper; the authors' code.")
        quorum: float = Field(0.3, ge=0, le=1, description="Not stated in the paper; the authors' code.")
        schedule: Literal["one pass", "keep", "every round"] = Field(
            "one pass",
            description="Votes once, at half time, to train on in that round, or also in every later one; or votes in every round. "
            "Not stated in the paper; the authors vote once.",
        )
        warm_up: int = Field(10, ge=0, description="Local epochs before the first votes of `every round`. Not stated anywhere; ours.")

    def communicate(self, federation: Federation, round: int) -> float | None:
        if self._votes_in(round, federation):
            for group in federation.groups():
                self._exchange(group, round)
        elif self.options.schedule == "one pass":
            return None
        return self.train_on_labels(federation, round)

    def _votes_in(self, round: int, federation: Federation) -> bool:
        if self.options.schedule == "every round":
            return min(self.settings.epochs_after(round + 1, client.user) for client in federation.clients) > self.options.warm_up
        return round == self.settings.rounds // 2

    def _exchange(self, group: Group, round: int) -> None:
        server, task = group.server, group.task
        votes = [client.label_public(Vote(self.options.margin)) for client in group.clients]
        if len(votes) > 1:  # nothing travels where there is nobody to travel to
            shape = (self.settings.public_size, task.decisions(torch.zeros(1, len(group.space.classes))).shape[1])
            votes = [server.take(c.user.number, round, cast, shape, "votes") for c, cast in zip(group.clients, votes, strict=True)]
        labels = merge(torch.stack(votes), task.outcomes, self.options.quorum)
        for client in group.clients:
            client.keep_labels(server.give(client.user.number, round, labels) if len(votes) > 1 else labels)


@dataclass(frozen=True)
class Vote:
    """Labels decisions whose first probability exceeds the second by more than ``margin``, in one byte each where that suffices."""

    margin: float

    def labels(self, log_p: Tensor, certainty: Tensor) -> Tensor:
        best = log_p.exp().topk(2, dim=-1)
        sure = best.values[..., 0] - best.values[..., 1] > self.margin
        return best.indices[..., 0].where(sure, -1).to(torch.int8 if log_p.shape[-1] < 128 else torch.int16)


def merge(votes: Tensor, outcomes: int, quorum: float) -> Tensor:
    """What the voters agree on, (n, k) of the votes' kind, -1 where that is nothing.

    Args:
        votes: (users, n, k), outcomes or -1. All users own all classes of their label space.
        outcomes: c.
        quorum: an outcome needs more than this share of the users, and no other may have it too.
    """
    shares = torch.stack([(votes == outcome).float().mean(0) for outcome in range(outcomes)], dim=-1)  # (n, k, c)
    accepted = shares > quorum
    return accepted.int().argmax(-1).where(accepted.sum(-1) == 1, -1).to(votes.dtype)
