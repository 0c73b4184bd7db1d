"""FedMuscle, Algorithm 1 of the paper, and the same procedure with the two objectives of Table
7.
"""

from __future__ import annotations

from functools import partial
from statistics import fmean
from typing import Any

from pydantic import Field
from torch import Tensor

from fedmuscle_lib.fedmuscle import objectives
from fedmuscle_lib.fedmuscle.algorithms.algorithm import PHASES, Algorithm, Federation, Phase
from fedmuscle_lib.fedmuscle.messages import Batch, CountedReply
from fedmuscle_lib.muscle import gradient_reply, make_reply

Members = list[tuple[int, Tensor]]  # (whose, representation matrix of the batch)


class FedMuscle(Algorithm):
    """Users align their representations of public batches with those of M others, drawn per round
    and CL epoch.

    Subclasses change one of two things: :meth:`members`, what a user is aligned with, or
        :meth:`reply`, by which objective.
    """

    name, label = "fedmuscle", "FedMuscle"

    def phases(self) -> tuple[Phase, ...]:
        return PHASES if self.settings.order == "local_first" else PHASES[::-1]

    def communicate(self, federation: Federation, round: int) -> float | None:
        """Lines 7-13 of Algorithm 1, with one forward pass per user and batch."""
        losses = [
            loss
            for batch, rows in self.public_batches(round)
            for loss in self.align(federation, batch, rows)
        ]
        return fmean(losses) if losses else None

    def align(self, federation: Federation, batch: Batch, rows: Tensor) -> list[float]:
        """Lines 9-13 for one public batch; returns the clients' losses. No reply is made before
        everybody's Z^n was received.

        A user without members gets no reply and takes no step.
        """
        server = federation.server
        server.open(batch)
        for client in federation.clients:
            server.receive(client.user.number, batch, client.represent(rows))
        losses = []
        for client in federation.clients:
            user = client.user.number
            if members := self.members(federation, user, batch, rows):
                reply = self.reply(user, server.current(user), members)
                losses.append(client.align(server.send(user, reply)))
        return losses

    def members(self, federation: Federation, user: int, batch: Batch, rows: Tensor) -> Members:
        """The M matrices that ``user`` is aligned with in this batch."""
        server = federation.server
        return [
            (other, server.current(other))
            for other in server.draw_others(user, batch.round, batch.epoch)
        ]

    def reply(self, user: int, anchor: Tensor, members: Members) -> CountedReply:
        """The server's answer by the Muscle loss, in the form that the settings ask for.

        With one member the loss is InfoNCE. It has no tau_prime, which stands between two members,
        and does not read it.
        """
        numbers = [user, *(number for number, _ in members)]
        tau = self._temperature("tau", numbers)
        tau_prime = self._temperature("tau_prime", numbers) if len(members) > 1 else tau
        names = [f"user {number}" for number in numbers]
        return make_reply(
            self.settings.reply, anchor, [z for _, z in members], tau, tau_prime, names
        )

    def _temperature(self, name: str, numbers: list[int]) -> float | list[list[float]]:
        """The setting's number, or a matrix of what it is between each two of ``numbers``, anchor
        first.
        """
        value = getattr(self.settings, name)
        if isinstance(value, float):
            return value
        return [[self.settings.temperature(name, i, j) for j in numbers] for i in numbers]


class Pairwise(FedMuscle):
    """FedMuscle with pairwise alignment (Section 4.1, Table 7): a sum of InfoNCE losses, which is
    the Muscle loss at gamma = 0.

    The paper does not state its temperature; ours is tau, at which Appendix B makes the two equal
    when no vectors depend.
    """

    name, label = "pairwise", "Pairwise alignment"
    ignores = ("tau_prime",)

    def reply(self, user: int, anchor: Tensor, members: Members) -> CountedReply:
        tau = self._temperature("tau", [user, *(number for number, _ in members)])
        return make_reply(self.settings.reply, anchor, [z for _, z in members], tau, tau)


class Gramian(FedMuscle):
    """FedMuscle with the Gramian-based loss of Cicchetti et al. (2025) (Appendix L, Table 7)."""

    name, label = "gramian", "Gramian loss"
    ignores = ("tau", "tau_prime")

    class Options(FedMuscle.Options):
        tau: float = Field(
            0.2,
            gt=0,
            description=(
                "Not stated in the paper; ours is the Muscle loss's. Its authors' is learnt from"
                " 0.07."
            ),
        )

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        if (kind := self.settings.reply) != "gradient":
            raise ValueError(
                "reply: the Gramian loss does not factor over users and travels as 'gradient'"
                f" alone, not {kind!r}"
            )

    def reply(self, user: int, anchor: Tensor, members: Members) -> CountedReply:
        return gradient_reply(
            partial(objectives.gramian, tau=self.options.tau), anchor, [z for _, z in members]
        )
