"""The server: draws each user's M others, checks what clients send, answers, and keeps the ledger
of bytes.

It knows users by number and public samples by batch. It never holds a model or a user's local data,
and averages nothing: what a reply holds is the algorithm's to say, such as ``FedMuscle.reply`` in
``algorithms/``. Of what a user sends it keeps a copy, which it checks: nothing that the user does
afterwards changes it. What it hands over is a copy too, one for each user.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import NotFinite, RefusedMessage
from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.core.tensors import Numbers, copied, unit_rows
from fedmuscle_lib.fedmuscle.messages import Batch, CountedReply
from fedmuscle_lib.fedmuscle.outliers import (
    FEWEST,
    LASTING,
    MEASURES,
    lasting,
    measured,
    suspicion,
    suspicions,
)
from fedmuscle_lib.muscle import NORM_TOLERANCE

_log = logging.getLogger("fedmuscle")


class Server:
    """One federation's server.

    Args:
        users: their numbers.
        others: M, how many other users' matrices a user is aligned with, or None if the algorithm
            ignores this setting.
        dim: d.
        address: prefix of every draw's address, such as the seed.
        device: where users' tensors lie.
        robust: whether users that look wrong are left out of what others are aligned with
            (:meth:`draw_others`).

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
        device: str = "cpu",
        robust: bool = False,
    ) -> None:
        self.users, self.others, self.dim, self.address = tuple(users), others, dim, address
        self._device, self._robust = torch.device(device), robust
        self.uplink: dict[tuple[int, int], int] = defaultdict(int)
        self.downlink: dict[tuple[int, int], int] = defaultdict(int)
        self.measures: list[dict[str, Any]] = []
        self._batch: Batch | None = None
        self._received: dict[int, Tensor] = {}
        self._references: dict[int, Tensor] = {}
        self._round, self._taken = (
            0,
            set[tuple[int, str]](),
        )  # users' messages of another kind in this round, by name
        self._compared, self._samples = (
            -1,
            0,
        )  # the round whose batches were compared, and how many samples they had
        self._sums = torch.zeros(
            len(MEASURES), len(self.users), dtype=torch.float64, device=self._device
        )  # of measures over these
        self._left_out: frozenset[int] = frozenset()

    def rehearsal(self) -> Server:
        """A server of the same users with a ledger of its own, to which they have sent their
        references.
        """
        server = Server(
            self.users, self.others, self.dim, self.address, str(self._device), self._robust
        )
        server._references = self._references
        return server

    def bill(self, rehearsal: Server) -> None:
        """Count what a rehearsal sent, in whichever of its rounds, among the bytes of round 0."""
        for ours, theirs in ((self.uplink, rehearsal.uplink), (self.downlink, rehearsal.downlink)):
            for (_, user), count in theirs.items():
                ours[0, user] += count

    def draw_others(
        self, user: int, round: int, epoch: int, among: Collection[int] | None = None
    ) -> tuple[int, ...]:
        """The set N^n of Section 5: M of the other users, drawn "in each communication round and CL
        epoch".

        Args:
            among: users that may be drawn, all by default; there may be fewer than M.

        A robust server passes over those who look wrong by what they have sent in this round or,
        before that is enough, in the last one (``fedmuscle_lib.fedmuscle.outliers``); there may be
        fewer than M then. It answers them as all others, so they can return. Where half of the
        users or more look wrong nobody is passed over: who is right can't be said.

        Raises:
            RuntimeError: the algorithm ignores M.
        """
        if self.others is None:
            raise RuntimeError(
                f"the algorithm ignores 'others' but draws others for user {user}: take it out of"
                " the algorithm's ignores"
            )
        rest = [other for other in self.users if other != user]
        order = torch.randperm(
            len(rest), generator=generator("others", *self.address, user, round, epoch)
        )
        admitted = self.users if among is None else among
        return tuple(
            [rest[i] for i in order if rest[i] in admitted and rest[i] not in self._left_out][
                : self.others
            ]
        )

    def open(self, batch: Batch) -> None:
        """Begin a public batch; what was received for the last one is forgotten."""
        self._batch, self._received = batch, {}

    def receive(self, user: int, batch: Batch, z: Tensor) -> None:
        """Take user ``user``'s Z^n, (b, d), for ``batch``.

        Raises:
            RefusedMessage: from nobody it knows, for another batch than the open one, a second
                time, no dense floating-point tensor on the server's device, of a wrong shape, not
                finite, or not of unit norm.
        """
        self._admit(user)
        if type(batch) is not Batch or batch != self._batch:
            place = batch if type(batch) is Batch else f"a {type(batch).__name__}"
            raise RefusedMessage(
                f"user {user} sent representations for {place}; the open batch is {self._batch}"
            )
        if user in self._received:
            raise RefusedMessage(f"user {user} sent representations twice for {batch}")
        self._received[user] = z = self._unit_rows(user, z, batch.size, str(batch))
        self.uplink[batch.round, user] += z.nbytes
        if self._received.keys() == set(self.users):
            self._compare(batch)

    def _compare(self, batch: Batch) -> None:
        """Measure how far the users agree on a batch. Of two users nobody can say which is odd."""
        if len(self.users) < 3 or batch.size < 4:
            return
        if batch.round != self._compared:
            self._compared, self._samples = batch.round, 0
            self._sums.zero_()
        self._sums += batch.size * measured(
            torch.stack([self._received[user].float() for user in self.users])
        )
        self._samples += batch.size
        if self._robust:
            now = self._means(batch.round)
            odd = {user for user, of in now.items() if suspicion(of)}
            if not now:
                odd = {
                    user
                    for _, user in suspicions(
                        row for row in self.measures if row["round"] == batch.round - 1
                    )
                }
            self._left_out = frozenset(odd if 2 * len(odd) < len(self.users) else ())

    def _means(self, round: int) -> dict[int, dict[str, float]]:
        """Measures of each user as means over the samples of ``round`` so far; empty where they are
        too few.
        """
        if round != self._compared or self._samples < FEWEST:
            return {}
        columns = (self._sums / self._samples).T.tolist()
        return {
            user: dict(zip(MEASURES, column, strict=True))
            for user, column in zip(self.users, columns, strict=True)
        }

    def judge(self, round: int) -> None:
        """Note how far the users agreed in ``round``, now that it is over, and warn of those who
        have looked wrong for several rounds.
        """
        for user, of in self._means(round).items():
            for measure, value in of.items():
                self.note(round, user, measure, value)
        for words, users in lasting(self.measures, round).items():
            who = f"user{'s' * (len(users) > 1)} {', '.join(map(str, users))}"
            since = f"for {LASTING} rounds the representations of {who} {words}"
            _log.warning("round %d: %s; %s", round + 1, since, self._consequence(users))

    def _consequence(self, users: list[int]) -> str:
        """Say what follows from users' looking wrong."""
        if not self._robust:
            return "others are aligned with them all the same, as robust is off"
        if self._left_out.intersection(users):
            return "robust is on and passes over them"
        return "robust is on and passes over nobody, since half of the users or more look wrong"

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
        if type(user) is not int or user not in self.users:
            raise RefusedMessage(f"user {user} is not of this federation of {self.users}")

    def _unit_rows(self, user: int, message: object, rows: int, place: str) -> Tensor:
        return unit_rows(
            f"user {user}", message, (rows, self.dim), place, self._device, NORM_TOLERANCE
        )

    def take(
        self,
        user: int,
        round: int,
        message: Tensor,
        shape: tuple[int, ...],
        what: str,
        numbers: Numbers,
    ) -> Tensor:
        """Take a message of another kind than representations, such as predictions for the public
        set, and count it.

        Args:
            round: from 0; a user sends one message of a name in it.
            what: the message by name.
            numbers: which ones it may hold.

        Returns:
            A copy, which nobody else holds.

        Raises:
            RefusedMessage: from nobody it knows, for a round that is over, a second time, no dense
                tensor of such numbers on the server's device, of another shape, or not finite.
        """
        self._admit(user)
        if type(round) is not int or round < self._round:
            raise RefusedMessage(
                f"user {user} sent {what} for another round than the present one, {self._round + 1}"
            )
        if round > self._round:
            self._round, self._taken = round, set()
        if (user, what) in self._taken:
            raise RefusedMessage(f"user {user} sent {what} twice in round {round + 1}")
        copy = copied(f"user {user}", what, message, shape, self._device, numbers)
        if not torch.isfinite(copy).all():
            raise NotFinite(f"user {user} sent {what} that are not finite (round {round + 1})")
        low, high = map(float, copy.aminmax())
        if low < numbers.low or high > numbers.high:
            raise RefusedMessage(
                f"user {user} sent {what} from {low:g} to {high:g} (round {round + 1}); {numbers}"
                " are expected"
            )
        self._taken.add((user, what))
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
        """Count a reply to ``user`` and hand it over; raises RuntimeError if no batch is open."""
        if self._batch is None:
            raise RuntimeError(f"a reply to user {user} before any batch was opened")
        self.downlink[self._batch.round, user] += reply.nbytes
        return reply
