"""Controls of FedMuscle, and our anchored variant: which part of Delta is learning from peers?

Each differs from FedMuscle in what a user is aligned with. Batches, steps and draws are the same,
and so is the Muscle loss; where a user has a single member, as in ``self``, it is InfoNCE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.fedmuscle.algorithms.algorithm import ClientSide, Federation
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle, Members
from fedmuscle_lib.fedmuscle.messages import Batch

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client


@dataclass(frozen=True)
class _RepresentAll(ClientSide):
    """Representations of the whole public set, (n, d), without a step to follow."""

    def __call__(self, client: Client) -> Tensor:
        return client.over_public(client.model.represent)


class Shuffled(FedMuscle):
    """Live peers whose rows are permuted, each peer's in its own way: the same statistics, without
    correspondence.
    """

    name, label, source = "shuffled", "Shuffled peers", "control"

    def members(self, federation: Federation, user: int, batch: Batch, rows: Tensor) -> Members:
        address = ("shuffle", self.settings.seed, user, batch.round, batch.epoch, batch.position)
        return [
            (other, z[permutation(len(z), *address, other)])
            for other, z in super().members(federation, user, batch, rows)
        ]


class _WithReferences(FedMuscle):
    """Every user sends its representations of the public set once, before any training."""

    def begin(self, federation: Federation) -> None:
        for client in federation.clients:
            federation.server.receive_reference(
                client.user.number, client.do(_RepresentAll()), self.settings.public_size
            )


class FrozenPeers(_WithReferences):
    """Peers as they were before any training: what they know from pretraining, without what they
    learn from their tasks.

    Each has a random projection of its own and none moves, so that they never have one space, as
    live peers come to. A user can be near a part of them only. What FedMuscle has beyond this
    control is what peers learn from their tasks, or that they move towards each other.
    """

    name, label, source = "frozen_peers", "Frozen peers", "control"

    def members(self, federation: Federation, user: int, batch: Batch, rows: Tensor) -> Members:
        server = federation.server
        return [
            (other, server.reference(other, rows))
            for other in server.draw_others(user, batch.round, batch.epoch)
        ]


class Anchored(_WithReferences):
    """Ours, not the paper's: FedMuscle with the user's own frozen starting copy as one of the M
    members, beside M - 1 live peers.
    """

    name, label, source = "anchored", "Anchored FedMuscle (ours)", "ours"

    def members(self, federation: Federation, user: int, batch: Batch, rows: Tensor) -> Members:
        peers = super().members(federation, user, batch, rows)[: self.settings.others - 1]
        return [(user, federation.server.reference(user, rows)), *peers]


class Self(FedMuscle):
    """The user's own frozen starting copy and nobody else: protection against forgetting, without
    any communication.

    With one member the Muscle loss is InfoNCE, equation (1). The copy never leaves the client, so
    the ledger stays empty.
    """

    name, label, source = "self", "Self (no communication)", "control"
    ignores = ("others", "tau_prime")

    def begin(self, federation: Federation) -> None:
        self._own = {
            client.user.number: client.do(_RepresentAll()) for client in federation.clients
        }

    def align(self, federation: Federation, batch: Batch, rows: Tensor) -> list[float]:
        losses = []
        for client in federation.clients:
            user = client.user.number
            anchor = client.represent(rows)
            losses.append(client.align(self.reply(user, anchor, [(user, self._own[user][rows])])))
        return losses
