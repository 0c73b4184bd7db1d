"""The server: draws each user's M others, checks what clients send, answers, and keeps the ledger
of bytes.

Who aggregates, and where: the server's side of an algorithm does, on the matrices that lie here.
FedMuscle's "aggregated matrix" (Section 5) is ``FedMuscle.reply`` of ``algorithms/fedmuscle.py``,
which asks for a user's M members by :meth:`Server.draw_others` and :meth:`Server.current`, and goes
to the user by :meth:`Server.send`. Its arithmetic is ``muscle.make_reply``. Ensembles, votes and
mean Gram matrices of the other algorithms are made in their files, from :meth:`Server.take`. No
parameters are averaged: architectures differ.

The server knows users by number and public samples by batch, and never holds a model or a user's
local data. Of what a user sends it keeps a copy, which it checks: nothing that the user does
afterwards changes it. What it hands over is a copy too, one for each user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import NotFinite, RefusedMessage
from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.core.tensors import copied, unit_rows
from fedmuscle_lib.fedmuscle.messages import Batch, CountedReply
from fedmuscle_lib.muscle import NORM_TOLERANCE


class Server:
    """One federation's server.

    Args:
        users: their numbers.
        others: M, how many other users' matrices a user is aligned with, or None if the algorithm
            ignores this setting.
        dim: d.
        address: prefix of every draw's address, such as the seed.

    Attributes:
        uplink, downlink: bytes by (round, user), rounds from 0.
        measures: rows of what the server measured of users: round (from 0), user, measure, value.
    """

    def __init__(
        self,
        users: Sequence[int],
        others: int | None,
        dim: int,
        address: tuple[object, ...],
    ) -> None:
        self.users, self.others, self.dim, self.address = tuple(users), others, dim, address
        self.uplink, self.downlink = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        self.measures: list[dict[str, Any]] = []
        self._batch: Batch | None = None
        self._received: dict[int, Tensor] = {}
        self._references: dict[int, Tensor] = {}
        self._taken = set[tuple[int, int, str]]()  # messages of another kind: round, user, name

    def draw_others(
        self, user: int, round: int, epoch: int, among: Collection[int] | None = None
    ) -> tuple[int, ...]:
        """The set N^n of Section 5: M of the other users, drawn "in each communication round and CL
        epoch".

        Args:
            among: users that may be drawn, all by default; there may be fewer than M.

        Raises:
            RuntimeError: the algorithm ignores M.
        """
        if self.others is None:
            raise RuntimeError(
                f"the algorithm ignores 'others' but draws others for user {user}: take it out of"
                " the algorithm's ignores"
            )
        rest = [other for other in self.users if other != user]
        order = permutation(len(rest), "others", *self.address, user, round, epoch)
        admitted = self.users if among is None else among
        return tuple([rest[i] for i in order if rest[i] in admitted][: self.others])

    def open(self, batch: Batch) -> None:
        """Begin a public batch; what was received for the last one is forgotten."""
        self._batch, self._received = batch, {}

    def receive(self, user: int, batch: Batch, z: Tensor) -> None:
        """Take user ``user``'s Z^n, (b, d), for ``batch``.

        Raises:
            RefusedMessage: from nobody it knows, for another batch than the open one, a second
                time, no floating-point tensor, of a wrong shape, not
                finite, or not of unit norm.
        """
        self._admit(user)
        if batch != self._batch:
            raise RefusedMessage(
                f"user {user} sent representations for {batch}; the open batch is {self._batch}"
            )
        if user in self._received:
            raise RefusedMessage(f"user {user} sent representations twice for {batch}")
        self._received[user] = z = self._unit_rows(user, z, batch.size, str(batch))
        self.uplink[batch.round, user] += z.nbytes

    def receive_reference(self, user: int, z: Tensor, n_public: int) -> None:
        """Take a user's representations of the whole public set as they are before any training,
        (n, d); counted in round 0.

        Raises:
            RefusedMessage: as :meth:`receive`.
        """
        self._admit(user)
        if user in self._references:
            raise RefusedMessage(f"user {user} sent a second reference")
        self._references[user] = z = self._unit_rows(
            user, z, n_public, "the reference before training"
        )
        self.uplink[0, user] += z.nbytes

    def _admit(self, user: int) -> None:
        if user not in self.users:
            raise RefusedMessage(f"user {user} is not of this federation of {self.users}")

    def _unit_rows(self, user: int, message: object, rows: int, place: str) -> Tensor:
        return unit_rows(f"user {user}", message, (rows, self.dim), place, NORM_TOLERANCE)

    def take(
        self,
        user: int,
        round: int,
        message: Tensor,
        shape: tuple[int, ...],
        what: str,
        whole: bool = False,
    ) -> Tensor:
        """Take a message of another kind than representations, such as predictions for the public
        set, and count it.

        Args:
            round: from 0; a user sends one message of a name in it.
            what: the message by name.
            whole: whether it is of whole numbers.

        Returns:
            A copy, which nobody else holds.

        Raises:
            RefusedMessage: from nobody it knows, a second time, no tensor of such numbers, of
                another shape, or not finite.
        """
        self._admit(user)
        if (round, user, what) in self._taken:
            raise RefusedMessage(f"user {user} sent {what} twice in round {round + 1}")
        copy = copied(f"user {user}", what, message, shape, whole)
        if not torch.isfinite(copy).all():
            raise NotFinite(f"user {user} sent {what} that are not finite (round {round + 1})")
        self._taken.add((round, user, what))
        self.uplink[round, user] += copy.nbytes
        return copy

    def give(self, user: int, round: int, message: Tensor) -> Tensor:
        """Count a message of another kind than a reply to ``user`` and hand a copy over."""
        self.downlink[round, user] += message.nbytes
        return message.clone()

    def note(self, round: int, user: int, measure: str, value: float) -> None:
        """Append a measurement of a user in a round (from 0) to :attr:`measures`."""
        self.measures.append({"round": round, "user": user, "measure": measure, "value": value})

    def current(self, user: int) -> Tensor:
        """Return what ``user`` sent for the open batch; raises RefusedMessage if it sent nothing
        yet, or is unknown.
        """
        self._admit(user)
        if user not in self._received:
            raise RefusedMessage(
                f"user {user} sent no representations for"
                f" {self._batch or 'any batch: none is open'}"
            )
        return self._received[user]

    def reference(self, user: int, rows: Tensor) -> Tensor:
        """Rows of what ``user`` sent before training; raises as :meth:`current`."""
        self._admit(user)
        if user not in self._references:
            raise RefusedMessage(f"user {user} sent no reference before training")
        return self._references[user][rows]

    def send(self, user: int, reply: CountedReply) -> CountedReply:
        """Count a reply to ``user`` on the open batch and hand it over."""
        assert self._batch
        self.downlink[self._batch.round, user] += reply.nbytes
        return reply
