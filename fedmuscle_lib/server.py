"""The server: draws each user's M others, checks what clients send, answers, and keeps the ledger of bytes.

It knows users by number and public samples by batch. It never holds a model or a user's local data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.messages import Batch, CountedReply, NotFinite, RefusedMessage
from fedmuscle_lib.muscle import NORM_TOLERANCE
from fedmuscle_lib.randomness import generator


class Server:
    """One federation's server.

    Args:
        users: their numbers.
        others: M, how many other users' matrices a user is aligned with, or None if the algorithm ignores this setting.
        dim: d.
        address: prefix of every draw's address, such as the seed.

    Attributes:
        uplink, downlink: bytes by (round, user), rounds from 0.
        measures: rows of what the server measured of users: round (from 0), user, measure, value.
    """

    def __init__(self, users: Sequence[int], others: int | None, dim: int, address: tuple[object, ...]) -> None:
        self.users, self.others, self.dim, self.address = tuple(users), others, dim, address
        self.uplink: dict[tuple[int, int], int] = defaultdict(int)
        self.downlink: dict[tuple[int, int], int] = defaultdict(int)
        self.measures: list[dict[str, Any]] = []
        self._batch: Batch | None = None
        self._received: dict[int, Tensor] = {}
        self._references: dict[int, Tensor] = {}

    def draw_others(self, user: int, round: int, epoch: int) -> tuple[int, ...]:
        """The set N^n of Section 5: M of the other users, drawn "in each communication round and CL epoch".

        Raises:
            RuntimeError: the algorithm ignores M.
        """
        if self.others is None:
            raise RuntimeError(f"the algorithm ignores 'others' but draws others for user {user}: take it out of the algorithm's ignores")
        rest = [other for other in self.users if other != user]
        order = torch.randperm(len(rest), generator=generator("others", *self.address, user, round, epoch))
        return tuple(rest[i] for i in order[: self.others])

    def open(self, batch: Batch) -> None:
        """Begin a public batch; what was received for the last one is forgotten."""
        self._batch, self._received = batch, {}

    def receive(self, user: int, batch: Batch, z: Tensor) -> None:
        """Take user ``user``'s Z^n, (b, d), for ``batch``.

        Raises:
            RefusedMessage: from nobody it knows, for another batch than the open one, of a wrong shape, not finite, or not of
                unit norm.
        """
        self._admit(user)
        if batch != self._batch:
            raise RefusedMessage(f"user {user} sent representations for {batch}; the open batch is {self._batch}")
        self._check(user, z, (batch.size, self.dim), str(batch))
        self._received[user] = z
        self.uplink[batch.round, user] += z.nbytes

    def receive_reference(self, user: int, z: Tensor, n_public: int) -> None:
        """Take a user's representations of the whole public set as they are before any training, (n, d); counted in round 0.

        Raises:
            RefusedMessage: as :meth:`receive`.
        """
        self._admit(user)
        self._check(user, z, (n_public, self.dim), "the reference before training")
        self._references[user] = z
        self.uplink[0, user] += z.nbytes

    def _admit(self, user: int) -> None:
        if user not in self.users:
            raise RefusedMessage(f"user {user} is not of this federation of {self.users}")

    def _check(self, user: int, z: Tensor, shape: tuple[int, int], what: str) -> None:
        if tuple(z.shape) != shape:
            raise RefusedMessage(f"user {user} sent a matrix of shape {tuple(z.shape)} for {what}; {shape} is expected")
        norms = torch.linalg.vector_norm(z, dim=1)
        error = (norms - 1).abs()
        worst = int(error.nan_to_num(nan=torch.inf).argmax())
        if not error[worst] <= NORM_TOLERANCE:  # the negation also catches nan
            where = f"(row {worst} of {what})"
            if not torch.isfinite(norms[worst]):
                raise NotFinite(f"user {user} sent a representation that is not finite {where}")
            raise RefusedMessage(f"user {user} sent a representation that has norm {norms[worst]:.4g}, not 1 {where}")

    def take(self, user: int, round: int, message: Tensor, shape: tuple[int, ...], what: str) -> Tensor:
        """Take a message of another kind than representations, such as predictions for the public set, and count it.

        Args:
            what: the message by name, for errors.

        Raises:
            RefusedMessage: from nobody it knows, of another shape, or not finite.
        """
        self._admit(user)
        if tuple(message.shape) != shape:
            raise RefusedMessage(f"user {user} sent {what} of shape {tuple(message.shape)}; {shape} is expected")
        if not torch.isfinite(message).all():
            raise NotFinite(f"user {user} sent {what} that are not finite (round {round})")
        self.uplink[round, user] += message.nbytes
        return message

    def give(self, user: int, round: int, message: Tensor) -> Tensor:
        """Count a message of another kind than a reply to ``user`` and hand it over."""
        self.downlink[round, user] += message.nbytes
        return message

    def note(self, round: int, user: int, measure: str, value: float) -> None:
        """Append a measurement of a user in a round (from 0) to :attr:`measures`."""
        self.measures.append({"round": round, "user": user, "measure": measure, "value": value})

    def current(self, user: int) -> Tensor:
        """What ``user`` sent for the open batch."""
        return self._received[user]

    def reference(self, user: int, rows: Tensor) -> Tensor:
        """Rows of what ``user`` sent before training."""
        return self._references[user][rows]

    def send(self, user: int, reply: CountedReply) -> CountedReply:
        """Count a reply to ``user`` and hand it over."""
        if self._batch is None:
            raise RuntimeError(f"a reply to user {user} before any batch was opened")
        self.downlink[self._batch.round, user] += reply.nbytes
        return reply
