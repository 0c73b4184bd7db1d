"""Directed peers, ours: a user listens to peers whose representations predict its own better than
the other way round.

A representation that knows more predicts one that knows less better than the other way round.
Before the first round the server measures it on what users send of the public set before any
training, without labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.fedmuscle.algorithms.algorithm import ClientSide, Federation
from fedmuscle_lib.fedmuscle.algorithms.controls import Anchored
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle, Members
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.fedmuscle.objectives import cka
from fedmuscle_lib.fedmuscle.setups import task_of
from fedmuscle_lib.tasks import direction

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client

Peers = Literal[
    "predicting",
    "same_inputs",
    "refreshed",
    "weighted",
    "validated",
    "alike",
    "random",
    "larger",
    "all",
    "none",
]

FOLDS = 4
PENALTIES = (
    0.01,
    0.1,
    1.0,
    10.0,
    100.0,
)  # of the ridge regression, times the mean variance of a feature
MANY, SKETCHED = (
    100,
    64,
)  # users, and dimensions to which the representations of more users are projected
_NOTHING = 1e-12  # a variance below which there is none
_LEAST = 0.1  # R2 as it counts in a temperature, where it is less


def predictability(z: Tensor, order: Tensor) -> Tensor:
    """R2[m, n], (users, users): how well a ridge regression on user m's representations predicts
    user n's, on samples that it did not see.

    The mean over four folds, by the penalty at which it is largest. Representations are centred
    over all samples; of constant ones, and by them, nothing is predicted (0). No prediction is
    made: all sums of squares come from the folds' products of features, whose cost grows with
    users^2 d^3. So those of more than 100 users are projected to 64 dimensions at random, if they
    have more.

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
    z = z.double()[:, order]
    if len(z) > MANY and z.shape[2] > SKETCHED:
        z = z @ torch.randn(z.shape[2], SKETCHED, generator=generator("sketch")).to(z)
    parts = (z - z.mean(1, keepdim=True)).tensor_split(FOLDS, 1)
    penalties = torch.tensor(PENALTIES, dtype=z.dtype, device=z.device)[:, None]
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
class _Size(ClientSide):
    """Parameters of the backbone."""

    def __call__(self, client: Client) -> int:
        return sum(p.numel() for p in client.model.backbone.parameters())


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
        client.restart()
        if not head_alone:
            client.fit(self.epochs)
            return _quality(client)
        with client.model.representation_frozen():
            client.prepare(public=False)
            client.fit(self.epochs, _Step("head alone"))
            return _quality(client)


def _quality(client: Client) -> float:
    """The client's metric on what it holds out, with its sign turned where less is better."""
    return direction(task_of(client.user).metric) * client.evaluate()


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
    work. Its costs: a user's representations of the public set once, as for ``anchored``; with
    "decided", 2 x folds local trainings of 1 - 1/folds of its samples, and one bit.

    With rehearsals there is a veto: the whole federation is rehearsed without some of every user's
        labels, with alignment and without, in
    the same order of samples. A user is not aligned if alignment lowers its metric on these labels;
    its weights then are those of local training, to the bit. A rehearsal costs a run, as many
    bytes, and the user's metric, which the history has; one bit would do. Neither it nor the bit
    above is counted. Clients hold labels out in this process alone.

    "weighted" peers are all, and the temperature between user n and peer m is tau R2(n -> m) / R2(m
    -> n): the more m knows, the lower.

    "validated" peers are an oracle with labels. There are as many rehearsals as users: in one
    nobody has a peer, in each other one everybody has one that it has not had. A user listens to
    those with whom its metric is better than with none.
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
        peers: Peers = Field(
            "predicting",
            description=(
                "Whom a user listens to. predicting: those that know more. same_inputs: of these,"
                " those that read the same inputs. refreshed: measured again after each round."
                " weighted: all, at temperatures by R2. validated: those that help in rehearsals."
                " alike, random: as many, those most similar by CKA or drawn. larger: larger"
                " backbones. all, none."
            ),
        )
        own: Literal["always", "never", "decided"] = Field(
            "decided",
            description=(
                "Whether the own copy is a member: decided by the user on labels that it holds out."
            ),
        )
        folds: int = Field(
            5,
            ge=2,
            description="Parts of a user's samples, each held out once, by which it decides.",
        )
        rehearsals: int = Field(
            0,
            ge=0,
            description=(
                "Rehearsals of the federation, each without one of these parts. 0: there is no"
                " veto."
            ),
        )

        @model_validator(mode="after")
        def _holds_out_what_there_is(self) -> Self:
            if self.rehearsals > self.folds:
                raise ValueError(f"rehearsals: at most as many as folds, {self.folds}")
            if self.rehearsals and self.peers == "refreshed":
                raise ValueError(
                    "rehearsals: not with refreshed peers, since a rehearsal keeps the first order"
                )
            return self

    def begin(self, federation: Federation) -> None:
        super().begin(federation)
        server, rows = federation.server, torch.arange(self.settings.public_size)
        self._noted = self._listen(
            federation, torch.stack([server.reference(user, rows) for user in server.users])
        )
        self._keeps, self._vetoes, self._sent = dict[int, bool](), set[int](), list[Tensor]()

    def _listen(self, federation: Federation, z: Tensor) -> list[tuple[int, str, float]]:
        """Decide who listens to whom by the users' representations of the same samples, (users,
        samples, d); return R2 as it is noted.
        """
        users, s, o, z = federation.server.users, self.settings, self.options, z.float()
        of = dict(zip(users, z, strict=True))
        order = torch.randperm(z.shape[1], generator=generator("folds", s.seed))
        scores = predictability(z, order).tolist()
        self._r2 = r2 = {
            (m, n): scores[j][i] for j, m in enumerate(users) for i, n in enumerate(users) if m != n
        }
        rest = {n: [m for m in users if m != n] for n in users}
        sizes = (
            {client.user.number: client.do(_Size()) for client in federation.clients}
            if o.peers == "larger"
            else {}
        )
        reads = {client.user.number: task_of(client.user).reads for client in federation.clients}

        def predicting(n: int) -> list[int]:
            return [m for m in rest[n] if r2[m, n] > r2[n, m] + o.margin and r2[n, m] >= o.floor]

        def alike(n: int) -> list[int]:
            similar = {m: float(cka(of[n] @ of[n].T, of[m] @ of[m].T)) for m in rest[n]}
            return sorted(rest[n], key=lambda m: -similar[m])[: len(predicting(n))]

        def random(n: int) -> list[int]:
            drawn = torch.randperm(len(rest[n]), generator=generator("listens", s.seed, n))
            return [rest[n][k] for k in drawn[: len(predicting(n))]]

        rules: dict[str, Callable[[int], list[int]]] = {
            **dict.fromkeys(("predicting", "refreshed"), predicting),
            "same_inputs": lambda n: [m for m in predicting(n) if reads[m] == reads[n]],
            "alike": alike,
            "random": random,
            "larger": lambda n: [m for m in rest[n] if sizes[m] > sizes[n]],
            **dict.fromkeys(("all", "weighted"), lambda n: rest[n]),
            **dict.fromkeys(("none", "validated"), lambda n: []),
        }
        self._listens = {n: tuple(rules[o.peers](n)) for n in users}
        return [(n, f"R2 from {m}", value) for (m, n), value in r2.items()]

    def _listening(self) -> list[tuple[int, str, float]]:
        """Who listens to whom, as it is noted."""
        return [
            (n, f"listens to {m}", float(m in own))
            for n, own in self._listens.items()
            for m in self._listens
            if m != n
        ]

    def communicate(self, federation: Federation, round: int) -> float | None:
        s, o = self.settings, self.options
        if not self._keeps:  # in the first round
            for client in federation.clients:
                decides = _Forgets(s.epochs_after(s.rounds, client.user), o.folds)
                self._keeps[client.user.number] = (
                    client.do(decides) if o.own == "decided" else o.own == "always"
                )
            if o.peers == "validated":
                self._listens = self._validated(federation)
            self._noted += self._listening() + [
                (user, "keeps a copy", float(keeps)) for user, keeps in self._keeps.items()
            ]
            if o.rehearsals:
                gains = self._rehearsed(federation).items()
                self._noted += [
                    (user, f"gain in rehearsal {k + 1}", gain)
                    for user, own in gains
                    for k, gain in enumerate(own)
                ]
            for user, measure, value in self._noted:
                federation.server.note(round, user, measure, value)
        self._sent = []
        loss = super().communicate(federation, round)
        if self._sent:  # by which to listen in the next round
            for user, measure, value in (
                self._listen(federation, torch.cat(self._sent, 1)) + self._listening()
            ):
                federation.server.note(round + 1, user, measure, value)
        return loss

    def align(self, federation: Federation, batch: Batch, rows: Tensor) -> list[float]:
        losses, server = super().align(federation, batch, rows), federation.server
        if (
            self.options.peers == "refreshed" and batch.epoch + 1 == self.settings.cl_epochs
        ):  # each sample once
            self._sent.append(torch.stack([server.current(user) for user in server.users]))
        return losses

    @contextmanager
    def _rehearsal(self, federation: Federation, fold: int) -> Iterator[Federation]:
        """The federation before any training, without a fold of every user's labels; its bytes are
        billed afterwards.
        """
        rehearsal = Federation(federation.clients, federation.server.rehearsal())
        with ExitStack() as stack:
            for client in federation.clients:
                stack.enter_context(client.holding_out(fold, self.options.folds))
            yield rehearsal
        federation.server.bill(rehearsal.server)

    def _rehearse(self, federation: Federation, aligned: bool = True) -> dict[int, float]:
        """Run all rounds, or local training alone; return how good each user then is."""
        for round in range(self.settings.rounds):
            for client in federation.clients:
                client.begin_round(round)
            for phase in self.phases():
                if phase == "after_local":
                    self.local_update(federation, round)
                elif aligned:
                    super().communicate(federation, round)
        return {client.user.number: _quality(client) for client in federation.clients}

    def _validated(self, federation: Federation) -> dict[int, tuple[int, ...]]:
        """Whom each user listens to, by its metric on the first fold of its labels after rehearsals
        with no peer, and with each alone.
        """
        users = federation.server.users
        gains: dict[
            int, dict[int, float]
        ] = {}  # of each user by each peer; by itself, what it has with none
        for step in range(len(users)):
            partner = {n: users[(i + step) % len(users)] for i, n in enumerate(users)}
            self._listens = {n: (m,) if m != n else () for n, m in partner.items()}
            with self._rehearsal(federation, 0) as rehearsal:
                for n, metric in self._rehearse(rehearsal).items():
                    gains.setdefault(n, {})[partner[n]] = metric
        return {n: tuple(m for m in users if own[m] > own[n]) for n, own in gains.items()}

    def _rehearsed(self, federation: Federation) -> dict[int, list[float]]:
        """By how much alignment makes each user better in each rehearsal; whom it makes worse in
        the mean vetoes its own alignment.
        """
        gains = {user: list[float]() for user in federation.server.users}
        for fold in range(self.options.rehearsals):
            found = []
            for aligned in (False, True):
                with self._rehearsal(federation, fold) as rehearsal:
                    found.append(self._rehearse(rehearsal, aligned))
            for user, own in gains.items():
                own.append(found[1][user] - found[0][user])
        self._vetoes = {user for user, own in gains.items() if sum(own) < 0}
        return gains

    def members(self, federation: Federation, user: int, batch: Batch, rows: Tensor) -> Members:
        if user in self._vetoes:
            return []
        server = federation.server
        own = [(user, server.reference(user, rows))] if self._keeps[user] else []
        drawn = server.draw_others(user, batch.round, batch.epoch, self._listens[user])[
            : self.settings.others - len(own)
        ]
        return own + [(other, server.current(other)) for other in drawn]

    def _temperature(self, name: str, numbers: list[int]) -> float | list[list[float]]:
        if self.options.peers != "weighted" or name != "tau":
            return super()._temperature(name, numbers)
        tau = [[self.settings.temperature(name, i, j) for j in numbers] for i in numbers]
        (user, *peers), known = numbers, {pair: max(r2, _LEAST) for pair, r2 in self._r2.items()}
        for k, peer in enumerate(peers, 1):
            if peer != user:
                tau[0][k] = tau[k][0] = tau[0][k] * known[user, peer] / known[peer, user]
        return tau

    def state(self) -> dict[str, Any]:
        return {
            "listens": dict(self._listens),
            "keeps": dict(self._keeps),
            "vetoes": sorted(self._vetoes),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._listens, self._keeps, self._vetoes = (
            state["listens"],
            state["keeps"],
            set(state["vetoes"]),
        )
