"""CoFED (Cao et al., 2023): users of one label space vote on labels for the public set and train on
those that are agreed.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from fedmuscle_lib.fedmuscle.objectives import hard_label_loss, inverse_counts

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client


@dataclass(frozen=True, eq=False)
class Keep(ClientSide):
    """Keep labels of the whole public set in place of earlier ones: (n, k), outcomes of each
    decision, -1 for none.
    """

    labels: Tensor

    def __call__(self, client: Client) -> None:
        client.kept["labels"] = self.labels


@dataclass(frozen=True)
class FitLabelled(ClientSide):
    """LocalUpdate on D^n and the public samples with a label together; without any, it is
    ``client.fit``.

    A decision's rarer outcomes among all of these labels weigh more, by
    ``objectives.inverse_counts``.
    """

    epochs: int

    def __call__(self, client: Client) -> float:
        made_up = client.kept.get("labels")
        if made_up is None or not (made_up >= 0).any():
            return client.fit(self.epochs)
        made_up = made_up.to(client.public.device)
        rows = (made_up >= 0).any(1).nonzero().flatten()
        task, n = client.classification, len(client.train)
        labels = torch.cat([task.labels(client.train.targets), made_up[rows].long()])
        weights = inverse_counts(labels, task.outcomes)

        def fit_batch(drawn: Tensor, number: int) -> Tensor:
            own, public = drawn[drawn < n], drawn[drawn >= n]
            inputs = [client.own(own)] if len(own) else []
            inputs += [client.public_inputs(rows[public - n])] if len(public) else []
            wanted = labels[torch.cat([own, public])]

            def loss() -> Tensor:
                return hard_label_loss(
                    task.decisions(torch.cat([client.model(part) for part in inputs])),
                    wanted,
                    weights,
                )

            return client.step(("fit labelled", len(own), len(public)), loss)

        return client.passes(self.epochs, len(labels), fit_batch)


class MadeUpLabels(Algorithm):
    """An algorithm whose users keep hard labels of public samples and pass over these and their own
    data together, in one shuffled set.
    """

    version = 2
    ignores = (*NO_ALIGNMENT, "cl_epochs", "public_batch_size")

    class Options(Algorithm.Options):
        # an address has all options, and stored runs had this one
        weights: Literal["inverse counts"] = Field(
            "inverse counts",
            description=(
                "Of a decision's outcomes among a user's labels, by how rare they are. Not stated"
                " in the paper; what the authors' codes do with classes."
            ),
        )

    def local_phase(self, client: Client, round: int) -> float:
        return client.do(FitLabelled(self.settings.epochs_in(round, client.user)))


class CoFED(MadeUpLabels):
    """Up: a hard label or an abstention for each decision, one byte; down: the labels that the
    server accepted, as many bytes.

    A user votes where its most probable outcome leads the next by more than ``margin``. An outcome
    is accepted if more than ``quorum`` of those who own the classes voted for it, and a decision
    with two accepted outcomes is dropped. In groups of two or three one vote is therefore enough,
    unless another contradicts it. A user that is alone in its label space learns from its own
    votes; the paper's user 6 does change with the public set.

    The authors exchange once: users train to convergence, vote, and fine-tune on their own and the
        accepted samples together, for up to
    200 epochs with early stopping. Ours vote once too, and what follows are their last local
    epochs, at most 20 and at most the second half of the rounds, each now a pass over both sets.
    Training thus ends as the authors' does, and every user sees its own samples as often as in
    local training, which it equals if nothing is accepted. Twenty epochs, not 200: the public set
    may be a hundred times the user's own, and early stopping needs validation data, which no
    algorithm here has. The authors also pick the better of two learning rates by test accuracy,
    which we don't. MLC votes class by class on presence and absence; a decision's rarer outcome
    weighs more, as a rarer class does in the authors' code, and without it nearly all labels of MLC
    say absent.
    """

    name, label = "cofed", "CoFED"
    version = 2

    class Options(MadeUpLabels.Options):
        margin: float = Field(
            0.3, ge=0, lt=1, description="Not stated in the paper; the authors' code."
        )
        quorum: float = Field(
            0.3, ge=0, le=1, description="Not stated in the paper; the authors' code."
        )
        epochs: int = Field(
            20,
            ge=1,
            description=(
                "Most epochs on labelled and accepted samples together. Not stated in the paper; up"
                " to 200 in the authors' code, with early stopping."
            ),
        )

    def local_phase(self, client: Client, round: int) -> float:
        epochs = self.settings.epochs_in(round, client.user)
        together = min(
            epochs, self.options.epochs
        )  # fewer in a round that has more epochs than that
        loss = client.fit(epochs - together)
        return client.do(FitLabelled(together)) if together else loss

    def communicate(self, federation: Federation, round: int) -> None:
        if round + 1 == self._first_together():
            for group in federation.groups():
                self._exchange(group, round)

    def _first_together(self) -> int:
        """The first round, from 0, of passes over both sets: in the second half, and nobody has
        more than ``epochs`` left.
        """
        s = self.settings
        for round in range((s.rounds + 1) // 2, s.rounds):
            if all(
                s.epochs_after(s.rounds, user) - s.epochs_after(round, user) <= self.options.epochs
                for user in s.members
            ):
                return round
        return s.rounds - 1

    def _exchange(self, group: Group, round: int) -> None:
        server, task = group.server, group.task
        votes = [client.do(Vote(self.options.margin)) for client in group.clients]
        if len(votes) > 1:  # nothing travels where there is nobody to travel to
            shape = (
                self.settings.public_size,
                task.decisions(torch.zeros(1, len(group.space.classes))).shape[1],
            )
            votes = [
                server.take(c.user.number, round, cast, shape, "votes", whole=True)
                for c, cast in zip(group.clients, votes, strict=True)
            ]
        labels = merge(torch.stack(votes), task.outcomes, self.options.quorum)
        for client in group.clients:
            client.do(
                Keep(server.give(client.user.number, round, labels) if len(votes) > 1 else labels)
            )


@dataclass(frozen=True)
class Vote(ClientSide):
    """Outcomes of decisions whose first probability exceeds the second by more than ``margin``, (n,
    k), in one byte each where that suffices; -1 for the others.
    """

    margin: float

    def __call__(self, client: Client) -> Tensor:
        return self.labels(client.classification.decisions(client.over_public(client.model)))

    def labels(self, log_p: Tensor) -> Tensor:
        best = log_p.exp().topk(2, dim=-1)
        sure = best.values[..., 0] - best.values[..., 1] > self.margin
        return (
            best.indices[..., 0]
            .where(sure, -1)
            .to(torch.int8 if log_p.shape[-1] < 128 else torch.int16)
        )


def merge(votes: Tensor, outcomes: int, quorum: float) -> Tensor:
    """Labels that the voters agree on, (n, k) of the votes' kind, -1 where that is nothing.

    Args:
        votes: (users, n, k), outcomes or -1. All users own all classes of their label space.
        outcomes: c.
        quorum: an outcome needs more than this share of the users, and no other may have it too.
    """
    shares = torch.stack(
        [(votes == outcome).float().mean(0) for outcome in range(outcomes)], dim=-1
    )  # (n, k, c)
    accepted = shares > quorum
    return accepted.int().argmax(-1).where(accepted.sum(-1) == 1, -1).to(votes.dtype)
