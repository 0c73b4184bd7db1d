"""Directed peers, ours: a user listens to peers whose representations predict its own better than
the other way round.

A representation that knows more predicts one that knows less better than the other way round.
Before the first round the server measures it on what users send of the public set before any
training, without labels.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.fedmuscle.algorithms.algorithm import ClientSide, Federation
from fedmuscle_lib.fedmuscle.algorithms.controls import Anchored
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle, Members
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.tasks import direction

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client

FOLDS = 4
# of the ridge regression, times the mean variance of a feature
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
_NOTHING = 1e-12  # a variance below which there is none


def predictability(z: Tensor, order: Tensor) -> Tensor:
    """R2[m, n], (users, users): how well a ridge regression on user m's representations predicts
    user n's, on samples that it did not see.

    The mean over four folds, by the penalty at which it is largest. Representations are centred
    over all samples; of constant ones, and by them, nothing is predicted (0). No prediction is
    made: all sums of squares come from the folds' products of features, whose cost grows with
    users^2 d^3.

    Args:
        z: (users, samples, d), the users' representations of the same samples.
        order: the samples in the order in which they are divided into folds.

    Raises:
        ValueError: there are fewer samples than folds.
    """
    if len(order) < FOLDS:
        raise ValueError(
            f"public_size: directed peers are measured on {FOLDS} public samples at least, got"
            f" {len(order)}"
        )
    z = z.cpu().double()[:, order]  # not every device has float64
    parts = (z - z.mean(1, keepdim=True)).tensor_split(FOLDS, 1)
    penalties = torch.tensor(PENALTIES, dtype=z.dtype)[:, None]
    scores = z.new_zeros(len(PENALTIES), len(z), len(z))
    for m in range(len(z)):
        products = torch.stack([part[m].T @ part for part in parts])  # (folds, users, d, d)
        for part, unseen, seen in zip(parts, products, products.sum(0) - products, strict=True):
            values, vectors = torch.linalg.eigh(seen[m])  # (d,), (d, d)
            shrunk = 1 / (values + penalties * values.mean().clamp_min(_NOTHING))  # (penalties, d)
            seen, unseen, gram = (
                vectors.T @ seen,
                vectors.T @ unseen,
                vectors.T @ unseen[m] @ vectors,
            )
            explained = 2 * shrunk @ (seen * unseen).sum(2).T  # (penalties, users)
            explained -= torch.einsum("kd,nde,ke->kn", shrunk, gram * (seen @ seen.mT), shrunk)
            scores[:, m] += explained / part.square().sum((1, 2)).clamp_min(_NOTHING)
    return (scores / FOLDS).amax(0)


@dataclass(frozen=True)
class _Forgets(ClientSide):
    """Whether the user keeps a copy of itself: is its head alone at least as good as all of its
    training, on labels that neither saw?

    Both train from the start, for ``epochs`` passes over all but one fold of the user's own
    samples. One bit leaves the client.
    """

    epochs: int
    folds: int

    def __call__(self, client: Client) -> bool:
        if client.task.head == "language model":  # which has no head of its own
            return True
        gain = 0.0
        for fold in range(self.folds):
            with client.holding_out(fold, self.folds):
                gain += self._trained(client, head_alone=True) - self._trained(
                    client, head_alone=False
                )
        return gain >= 0

    def _trained(self, client: Client, head_alone: bool) -> float:
        """The metric on what is held out, with its sign turned where less is better."""
        client.restart()
        with client.model.representation_frozen() if head_alone else nullcontext():
            if head_alone:
                client.prepare(public=False)
            client.fit(self.epochs, _Step("head alone") if head_alone else None)
            return direction(client.task.metric) * client.evaluate()


@dataclass(frozen=True)
class _Step(ClientSide):
    """A local step that is counted under a name of its own."""

    name: str

    def __call__(self, client: Client, rows: Tensor, number: int) -> Tensor:
        return client.step((self.name, len(rows)), client.local_loss(rows))


class Directed(Anchored):
    """FedMuscle in which a user draws among the peers that it listens to, and its own starting copy
    may be a fixed member of its tuple.

    User n listens to peer m if R2(m -> n) > R2(n -> m) + margin and R2(n -> m) >= floor: m knows
    more, and n can represent some of it. Who listens to nobody and keeps no copy is not aligned,
    but still answers others. Ours, not the paper's; Appendix Q names the choice of peers as future
    work. Its costs: a user's representations of the public set once, as for ``anchored``; where
    users decide on their copies, 2 x folds local trainings of 1 - 1/folds of a user's samples, and
    one bit, which is not counted. Clients hold labels out in this process alone.
    """

    name, label, source = "directed", "Directed peers (ours)", "ours"

    class Options(FedMuscle.Options):
        margin: float = Field(
            0.02,
            gt=-1,
            lt=1,
            description="By how much R2 must differ. Ours; equal checkpoints differ by 0.00.",
        )
        floor: float = Field(
            0.1,
            ge=-1,
            le=1,
            description="How much of a peer a user must predict. Ours; below it nothing is shared.",
        )
        peers: Literal["predicting", "random"] = Field(
            "predicting",
            description=(
                "Whom a user listens to: those that know more, or as many that are drawn. Ours."
            ),
        )
        own: Literal["decided", "never"] = Field(
            "decided",
            description=(
                "Whether the own copy is a member: never, or as the user decides on labels that it"
                " holds out."
            ),
        )
        folds: int = Field(
            5,
            ge=2,
            description="Parts of a user's samples, each held out once, by which it decides.",
        )
        # an address has all options, and stored runs had this one
        rehearsals: Literal[0] = Field(0, description="None; it has no other value.")

    def begin(self, federation: Federation) -> None:
        super().begin(federation)
        users, seed = federation.server.users, self.settings.seed
        rows = torch.arange(self.settings.public_size)
        z = torch.stack([federation.server.reference(user, rows) for user in users]).float()
        order = permutation(len(rows), "folds", seed)
        r2 = predictability(z, order).tolist()
        self._r2 = {
            (m, n): r2[i][j] for i, m in enumerate(users) for j, n in enumerate(users) if m != n
        }
        self._listens = {n: self._peers(n, [m for m in users if m != n]) for n in users}
        self._keeps: dict[int, bool] = {}  # by user, from the first round on

    def _peers(self, user: int, others: list[int]) -> tuple[int, ...]:
        """Whom ``user`` listens to."""
        r2, o = self._r2, self.options
        found = [
            m for m in others if r2[m, user] > r2[user, m] + o.margin and r2[user, m] >= o.floor
        ]
        if o.peers == "predicting":
            return tuple(found)
        drawn = permutation(len(others), "listens", self.settings.seed, user)
        return tuple(others[k] for k in drawn[: len(found)])

    def communicate(self, federation: Federation, round: int) -> float | None:
        if not self._keeps:  # in the first round
            for client in federation.clients:
                self._keeps[client.user.number] = self._decides(client)
            self._note(federation, round)
        return super().communicate(federation, round)

    def _decides(self, client: Client) -> bool:
        s, o = self.settings, self.options
        epochs = s.epochs_after(s.rounds, client.user)
        return o.own == "decided" and client.do(_Forgets(epochs, o.folds))

    def _note(self, federation: Federation, round: int) -> None:
        """Note who predicts whom, who listens to whom, and who keeps a copy of itself."""
        note = federation.server.note
        for (m, n), value in self._r2.items():
            note(round, n, f"R2 from {m}", value)
        for n, peers in self._listens.items():
            for m in self._listens:
                if m != n:
                    note(round, n, f"listens to {m}", float(m in peers))
        for user, keeps in self._keeps.items():
            note(round, user, "keeps a copy", float(keeps))

    def members(self, federation: Federation, user: int, batch: Batch, rows: Tensor) -> Members:
        server = federation.server
        own = [(user, server.reference(user, rows))] if self._keeps[user] else []
        drawn = server.draw_others(user, batch.round, batch.epoch, self._listens[user])[
            : self.settings.others - len(own)
        ]
        return own + [(other, server.current(other)) for other in drawn]

    def state(self) -> dict[str, Any]:
        return {"keeps": dict(self._keeps)}

    def restore(self, state: dict[str, Any]) -> None:
        self._keeps = state["keeps"]
