"""The server's rounds, over whatever can ask parties: it knows no network and no model.

The algorithm and the server are those of a run in one process; a seat stands in a client's place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import RefusedMessage, line_of
from fedmuscle_lib.core.tensors import unit_rows
from fedmuscle_lib.fedmuscle.algorithms import Federation
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.muscle import NORM_TOLERANCE
from fedmuscle_lib.muscle.wire import GradientReply
from fedmuscle_lib.network.history import History, listed
from fedmuscle_lib.network.messages import Answer, Question, Report, pack, unpack
from fedmuscle_lib.network.terms import Terms

# Questions by user -> answers of those who gave one in time.
Ask = Callable[[dict[int, bytes]], dict[int, bytes]]
Answers = dict[int, tuple[Answer, Tensor]]
Replies = dict[int, Mapping[str, Tensor]]


class TooFew(RuntimeError):
    """Fewer than two parties are left in a round; the text says who is missing, and why."""


@dataclass
class _Seat:
    """A party's place in a batch, to which FedMuscle speaks as to a client."""

    user: SimpleNamespace  # with its number
    z: Tensor  # what it sent, (b, d)
    reply: GradientReply | None = None

    def represent(self, rows: Tensor) -> Tensor:
        return self.z

    def align(self, reply: GradientReply) -> float:
        self.reply = reply
        return reply.value.item()


class Rounds:
    """The rounds that are left.

    Args:
        terms: what every party is asked.
        users: who may take part.
        ask: see ``Ask``.
        history: of the rounds so far; they are resumed behind it.
        tell: takes lines of progress.
    """

    def __init__(
        self,
        terms: Terms,
        users: Iterable[int],
        ask: Ask,
        history: History,
        tell: Callable[[str], object] = print,
    ) -> None:
        self.terms, self.users, self.history = terms, sorted(users), history
        self._ask, self._tell, self._algorithm = ask, tell, FedMuscle(terms)
        self._server = Server(self.users, terms.others, terms.proj_dim, (terms.seed,))

    def run(self) -> None:
        """Do the rounds that are left.

        Raises:
            TooFew: fewer than two parties are left in a round; the rounds before are kept.
        """
        for round in range(len(self.history.rounds), self.terms.rounds):
            self._round(round)

    def _round(self, round: int) -> None:
        self._asked = list[tuple[Question, Replies]]()
        self._why = dict[int, str]()  # what keeps users from ending the round
        began, losses, replies = time.monotonic(), list[float](), Replies()
        begin = Question(step="begin", round=round, terms=self.terms)
        there = self._answers(begin, self.users, replies)
        for batch, rows in self._algorithm.public_batches(round):
            question = Question(step="represent", round=round, batch=batch)
            there, replies = self._answers(question, there, replies), Replies()
            seats = {user: _Seat(SimpleNamespace(number=user), z) for user, (_, z) in there.items()}
            self._server.users = tuple(seats)
            federation = Federation(cast(Any, seats.values()), self._server)
            losses += self._algorithm.align(federation, batch, rows)
            replies = {user: vars(seat.reply) for user, seat in seats.items()}
        ended = self._answers(Question(step="end", round=round), there, replies)
        row = {
            "round": round + 1,
            "users": len(ended),
            "alignment_loss": fmean(losses),
            "seconds": time.monotonic() - began,
        }
        users = [
            {
                "round": round + 1,
                "user": user,
                "why_not": self._why.get(user),
                "uplink_bytes": self._server.uplink[round, user],
                "downlink_bytes": self._server.downlink[round, user],
                **(ended[user][0].report if user in ended else Report()).model_dump(),
            }
            for user in self.users
        ]
        self.history.add(row, users)
        told = f"alignment loss {row['alignment_loss']:.3f}, {row['seconds']:.1f} s"
        self._tell(f"round {round + 1}/{self.terms.rounds}: {listed(ended)}, {told}")

    def _answers(self, question: Question, users: Iterable[int], replies: Replies) -> Answers:
        """Ask users, with replies to what they sent before, and leave out of the round who does not
        answer. A party that began anew is asked all questions of the round again.
        """
        self._asked.append((question, replies))
        answers = self._read(-1, users)
        anew = [user for user in answers if answers[user][0].began_anew]
        for step in range(len(self._asked) if anew else 0):
            again = self._read(step, anew, again=True)
            answers = {user: answers[user] for user in answers if user not in anew} | again
            anew = list(again)
        if len(answers) < 2:
            where = f"round {question.round + 1}"
            raise TooFew(f"{where} needs two users and has {listed(answers)}: {self._why}")
        return dict(sorted(answers.items()))

    def _read(self, step: int, users: Iterable[int], again: bool = False) -> Answers:
        """Ask a question of the round; returns answers that can be read, of parties who stay."""
        question, replies = self._asked[step]
        answers = self._ask({user: pack(question, replies.get(user, {})) for user in users})
        found = Answers()
        for user in users:
            name, batch, z = f"user {user}", question.batch, torch.empty(0)
            try:
                if user not in answers:
                    raise RefusedMessage("no answer in time")
                answer, tensors = unpack(name, Answer, answers[user])
                if answer.leaves or answer.began_anew and again:
                    raise RefusedMessage(answer.leaves or "began anew twice")
                if batch and not answer.began_anew:
                    sent, shape = tensors.get("z"), (batch.size, self.terms.proj_dim)
                    z = unit_rows(name, sent, shape, str(batch), NORM_TOLERANCE)
                found[user] = answer, z
            except RefusedMessage as error:
                self._why[user] = line_of(str(error))
                self._tell(f"the round goes on without user {user}: {self._why[user]}")
        return found
