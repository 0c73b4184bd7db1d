"""The aggregator: who takes part in a round, what they sent, and what FedMuscle's server answers.
It knows no transport and no model.

A transport calls ``hello`` to ``finished`` from any thread, a thread for each party that waits;
``run`` does the rounds in its own. The algorithm and the server are those of a run in one process:
a party's seat stands in a client's place.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from threading import Condition, Lock
from typing import Any, cast

from torch import Tensor

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import Federation
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.fedmuscle.server import Server
from fedmuscle_lib.network import keys
from fedmuscle_lib.network.history import LOST, History, listed
from fedmuscle_lib.network.messages import (
    Challenge,
    Finished,
    Join,
    Next,
    Reply,
    Roster,
    Sent,
    Welcome,
    packed_reply,
)
from fedmuscle_lib.network.terms import Bounds, Terms

POLL = 20.0  # seconds after which a party that waits is told for whom, and asks again
NEAR_0 = 1.0  # a local metric below it, in per cent, turns any change into a large relative gain


class NoSession(RuntimeError):
    """The secret is of no session, such as one from before the server was started again: the party
    joins again.
    """


class LeftOut(RuntimeError):
    """The round goes on without this party; the text says why."""


class StillWaiting(RuntimeError):
    """Nothing is wrong, but others are not there yet; the text names them."""


class Waited(RuntimeError):
    """A bound is reached; the text says for whom the server waited."""


class _Gone(Exception):
    """A party leaves the round that is running; ``there`` if that is not its doing, so that the
    server goes on waiting for it.
    """

    def __init__(self, user: int, why: str, refused: bool = False, there: bool = False) -> None:
        super().__init__(why)
        self.user, self.refused, self.there = user, refused, there


@dataclass(frozen=True)
class _User:
    """What FedMuscle asks of a client's user."""

    number: int


class _Seat:
    """A party's place in a round, which FedMuscle speaks to as to a client."""

    def __init__(self, number: int, lock: Lock) -> None:
        self.user = _User(number)
        self.arrived, self.answered = Condition(lock), Condition(lock)
        self.message: tuple[Batch, bytes] | None = (
            None  # where the last message belongs, and its digest
        )
        self.earlier = set[tuple[Batch, bytes] | None]()  # the messages before it
        self.z: Tensor | None = None  # of a message that is not answered yet
        self.answer: bytes | None = None
        self.gone, self.refused, self.back = (
            "",
            False,
            False,
        )  # why, if it is; whether for what it sent; whether it has joined again
        self.deadline = 0.0  # of what comes next, by the monotonic clock

    def represent(self, rows: Tensor) -> tuple[Batch, Tensor]:
        """What the party sent, and for which batch, as it says."""
        with self.arrived:
            if not self.arrived.wait_for(
                lambda: self.z is not None or self.gone, max(0, self.deadline - time.monotonic())
            ):
                self.leave("no representations came in time")
            if self.z is None or self.message is None or self.gone:
                raise _Gone(self.user.number, self.gone, self.refused)
            return self.message[0], self.z

    def align(self, reply: Reply) -> float:
        """Answer the party.

        The loss is what it will find, since it is the anchor's that it sent.
        """
        assert self.z is not None
        value, answer = float(reply.loss(self.z)), packed_reply(reply)
        with self.answered:
            self.z, self.answer = None, answer
            self.answered.notify_all()
        return value

    def leave(self, why: str, refused: bool = False) -> None:
        """Take no further part in the round. The lock is held."""
        if not self.gone:
            self.gone, self.refused = why, refused
        self.arrived.notify_all()
        self.answered.notify_all()


class _RoundServer(Server):
    """FedMuscle's server of a round.

    A party that sends something else than was asked for leaves the round.
    """

    def receive(self, user: int, batch: Batch, z: Any) -> None:
        """Take what a seat gives: the batch that the party says, and Z^n."""
        try:
            super().receive(user, *z)
        except RefusedMessage as error:
            raise _Gone(user, str(error), refused=True) from None


class Aggregator:
    """One federation's rounds.

    Args:
        terms: what every party is asked.
        keys: the public key of each user who may join, by number.
        history: of the rounds so far; they are resumed behind it.
        bounds: of every wait.
        tell: takes lines of progress.

    Attributes:
        users: who may join.
    """

    def __init__(
        self,
        terms: Terms,
        keys: Mapping[int, str],
        history: History,
        bounds: Bounds,
        tell: Callable[[str], object] = print,
    ) -> None:
        self.terms, self.history, self.bounds, self._keys, self._tell = (
            terms,
            history,
            bounds,
            dict(keys),
            tell,
        )
        self.users = sorted(keys)
        self.algorithm = cast(FedMuscle, algorithms.get(terms.algorithm)(terms))
        self._lock = Lock()
        self._changed, self._closed = (
            Condition(self._lock),
            Condition(self._lock),
        )  # parties came or reported; a round's roster is closed
        self._nonces = {user: secrets.token_hex(32) for user in keys}  # what each user signs next
        self._sessions: dict[
            str, int | None
        ] = {}  # users by the secrets of their sessions; None for one that is over
        self._calls: dict[int, int] = defaultdict(
            int
        )  # of each user; a newer one ends the wait of those before
        self._expected = set(self._keys)  # whom a round waits for
        self._ready, self._joined = (
            set[int](),
            set[int](),
        )  # who is ready for the next round; who joined and has said nothing since
        self._round, self._seats = -1, dict[int, _Seat]()  # the running round
        self._absent: dict[int, str] = {}  # why a user took no part in it, or left
        self._next: int | None = (
            history.finished if history.finished < terms.rounds else None
        )  # the round that may be joined
        if self._next is None:
            self._expected = history.took_part(terms.rounds)

    # --- what parties ask, from any thread

    def hello(self, user: int) -> Challenge:
        """Say what a user has to sign: the same until it has joined, so that nobody who asks in its
        name keeps it out.

        Raises:
            RefusedMessage: it is none who may join.
        """
        if user not in self._keys:
            raise RefusedMessage(
                f"user {user} may not join {self.terms.name!r}: its server's file has"
                f" {listed(self._keys)}"
            )
        with self._lock:
            return Challenge(nonce=self._nonces[user], terms=self.terms)

    def join(self, message: Join) -> Welcome:
        """Begin a session of a party, and end the one that it had.

        Raises:
            RefusedMessage: naming the user; its key is unknown, its signature is not by this key,
                or its public set is another.
            NoSession: what it signed was drawn before the server was started again, or is signed
                already: an answer that was lost.
        """
        user, key, reads, public = message.user, message.key, message.reads, message.public
        if key != self._keys.get(user):
            raise RefusedMessage(
                f"user {user}: the key {key[:16]!r}... is unknown; the server's file has another"
                " one for this user"
            )
        if not keys.signed(key, message.signature, self.terms.name, user, message.nonce):
            raise RefusedMessage(f"user {user}: the signature is not by its key")
        if (ours := self.terms.public.get(reads)) is None:
            raise RefusedMessage(f"user {user} reads {reads}, which the public set has not")
        if public != ours:
            raise RefusedMessage(
                f"user {user} has another public set: its {reads} have the SHA-256"
                f" {public[:16]!r}..., ours {ours[:16]}..."
            )
        with self._lock:
            if message.nonce != self._nonces[user]:
                raise NoSession("what the user signed is of another session")
            self._nonces[user] = secrets.token_hex(32)
            self._end_sessions(user)
            if seat := self._seats.get(user):
                seat.leave(f"user {user} was started again")
                seat.back = True
            self._sessions[secret := secrets.token_hex(16)] = user
            self._joined.add(user)
            self._begun(user)
            return Welcome(session=secret, round=self._next)

    def user_of(self, secret: str) -> int:
        """The user of a session; raises NoSession if there is none, RefusedMessage if it is
        over.
        """
        with self._lock:
            if secret not in self._sessions:
                raise NoSession("no such session; the server was started again")
            if (user := self._sessions[secret]) is None:
                raise RefusedMessage("the session is over; the same user joined from elsewhere")
            return user

    def ready(self, user: int, round: int) -> Roster:
        """Wait until it is decided who takes part in a round, or for POLL seconds."""
        with self._lock:
            call = self._begun(user)
            if round == self._next:
                self._ready.add(user)
                self._changed.notify_all()
                self._closed.wait_for(
                    lambda: self._next != round or self._calls[user] != call, POLL
                )
                if self._next == round:
                    return Roster(round=round, waiting=tuple(sorted(self._expected - self._ready)))
            seat = self._seats.get(user)
            if round == self._round and seat and not seat.gone:
                return Roster(round=round, users=tuple(sorted(self._seats)))
            return Roster(round=self._next)

    def exchange(self, user: int, message: Sent, z: Tensor, content: bytes) -> bytes:
        """Take representations and wait for the answer, for at most POLL seconds. The same message
        again gets the same answer.

        Raises:
            LeftOut, StillWaiting: as they say.
            RefusedMessage: naming the user and what it sent instead.
        """
        arrived = (message.batch, hashlib.sha256(content).digest())
        with self._lock:
            call = self._begun(user)
            seat = self._seats.get(user)
            if seat is None or message.round != self._round:
                raise LeftOut(f"user {user} takes no part in round {message.round + 1}")
            if arrived in seat.earlier:
                raise LeftOut(
                    f"user {user} sent {message.batch} again, after a later one"
                )  # by a network that delays; nobody waits for it
            if seat.message != arrived and not seat.gone:
                if seat.message and (seat.message[0] == message.batch or seat.z is not None):
                    self._refuse(
                        user, f"user {user} sent representations twice for {message.batch}"
                    )
                    raise RefusedMessage(seat.gone)
                seat.earlier.add(seat.message)
                seat.message, seat.z, seat.answer = arrived, z, None
                seat.arrived.notify_all()
            seat.answered.wait_for(
                lambda: seat.answer or seat.gone or self._calls[user] != call, POLL
            )
            if seat.message == arrived and seat.answer:
                return seat.answer
            if seat.gone:
                raise (RefusedMessage if seat.refused else LeftOut)(seat.gone)
            late = listed(n for n, s in self._seats.items() if not s.gone and s.message != arrived)
            raise StillWaiting(f"{message.batch}: waiting for {late}")

    def refuse(self, user: int, why: str) -> None:
        """Take a party out of the running round, whose message can't be read."""
        with self._lock:
            self._refuse(user, why)

    def _refuse(self, user: int, why: str) -> None:
        """The party's session ends; it is waited for when it joins again."""
        self._expected.discard(user)
        self._end_sessions(user)
        if seat := self._seats.get(user):
            seat.leave(why, refused=True)
            self._changed.notify_all()

    def _end_sessions(self, user: int) -> None:
        self._ready.discard(user)
        self._sessions = {
            secret: None if of == user else of for secret, of in self._sessions.items()
        }

    def finished(self, user: int, message: Finished) -> Next:
        """Note that a party is through with a round, and what it reports."""
        with self._lock:
            self._begun(user)
            seat = self._seats.get(user)
            if user in self._joined:  # and says what its checkpoint has
                self._joined.discard(user)
                if seat and message.round < self._round:
                    self._absent.setdefault(user, LOST)  # the round may not be accounted for yet
                self.history.lost(message.round, user)
            if message.report and message.round < (
                self.terms.rounds if self._next is None else self._next
            ):
                self.history.report(message.round, user, message.report)
            if (
                self._next is None
            ):  # kept, so that a server that is started again does not wait for who has left
                self.history.over.add(user)
                self.history.keep()
            return Next(round=self._next)

    def _begun(self, user: int) -> int:
        """Note that a party is there, also one that was not expected any more, and end the wait of
        its earlier call.
        """
        self._calls[user] += 1
        self._expected.add(user)
        if seat := self._seats.get(user):
            seat.answered.notify_all()
        self._closed.notify_all()
        self._changed.notify_all()
        return self._calls[user]

    def end(self) -> None:
        """Let every call that waits come back at once."""
        with self._lock:
            for user in self.users:
                self._begun(user)

    # --- the rounds, in one thread

    def run(self) -> None:
        """Do the rounds that are left, and wait until the parties of the last one are through.

        Raises:
            Waited: too few came for a round; what was done is kept.
        """
        for round in range(self.history.finished, self.terms.rounds):
            began = time.monotonic()
            seats = self._gather(round)
            waited = time.monotonic()
            losses = self._align(round, seats)
            self._account(round, losses, waited - began, time.monotonic() - waited)
        with self._lock:
            self._wait(lambda: self._expected - self.history.over, self.bounds.round)
            self.history.keep()
        self._tell(", ".join(["all rounds are over", *self._delta(self.terms.rounds)]))

    def _wait(self, lacking: Callable[[], set[int]], seconds: float) -> None:
        """Wait until nobody is lacking, and tell who is now and then. The lock is held."""
        end = time.monotonic() + seconds
        while (
            not self._changed.wait_for(
                lambda: not lacking(), max(0, min(POLL, end - time.monotonic()))
            )
            and time.monotonic() < end
        ):
            self._tell(f"waiting for {listed(lacking())}")

    def _gather(self, round: int) -> list[_Seat]:
        """Wait for the parties and close the round's roster."""
        seconds, fewest = (
            (self.bounds.start if self._round < 0 else self.bounds.round),
            self.bounds.fewest,
        )
        everybody = set(self.users)
        with self._lock:
            self._wait(
                lambda: (
                    self._expected - self._ready
                    or (everybody - self._ready if len(self._ready) < fewest else set())
                ),
                seconds,
            )
            if len(self._ready) < fewest:
                what = f"round {round + 1} needs {fewest} users and has {listed(self._ready)}"
                raise Waited(f"waited {seconds:g} s for {listed(everybody - self._ready)}: {what}")
            self._absent = dict.fromkeys(everybody - self._ready, "absent")
            self._absent |= {
                user: f"not ready within {seconds:g} s" for user in self._expected - self._ready
            }
            self._seats = {user: _Seat(user, self._lock) for user in sorted(self._ready)}
            self._round, self._expected, self._ready = round, self._ready, set()
            self._next = round + 1 if round + 1 < self.terms.rounds else None
            self._closed.notify_all()
            return list(self._seats.values())

    def _align(self, round: int, seats: list[_Seat]) -> list[float]:
        """Every batch of the round with those who are there."""
        losses: list[float] = []
        self._server = self._new_server(seats)
        for batch, rows in self.algorithm.public_batches(round):
            for seat in seats:
                seat.deadline = time.monotonic() + self.bounds.batch
            while seats:
                counted = dict(self._server.uplink)
                try:
                    losses += self.algorithm.align(
                        Federation(cast(Any, seats), self._server), batch, rows
                    )
                    break
                except _Gone as gone:  # before any reply to the batch
                    self._left(gone, batch)
                    seats = [seat for seat in seats if seat.user.number != gone.user]
                    if len(seats) == 1:
                        self._left(
                            _Gone(seats.pop().user.number, "nobody else is left", there=True), batch
                        )
                    before, self._server = self._server, self._new_server(seats)
                    self._server.uplink.update(counted)
                    self._server.downlink.update(before.downlink)
        return losses

    def _new_server(self, seats: list[_Seat]) -> _RoundServer:
        """FedMuscle's server of those who are there, which draws the others' M among them."""
        users = [seat.user.number for seat in seats]
        return _RoundServer(users, self.terms.others, self.terms.proj_dim, (self.terms.seed,))

    def _left(self, gone: _Gone, batch: Batch) -> None:
        with self._lock:
            self._absent[gone.user] = f"left in {batch}: {gone}"
            if not (seat := self._seats[gone.user]).back:
                if not gone.there:
                    self._expected.discard(gone.user)
                if gone.refused:
                    self._refuse(gone.user, str(gone))
                seat.leave(str(gone))
        self._tell(f"user {gone.user} {self._absent[gone.user]}")

    def _account(self, round: int, losses: list[float], waiting: float, exchange: float) -> None:
        """A row a user, and one of the round."""
        loss, about = (
            fmean(losses) if losses else None,
            {
                "waiting_seconds": waiting,
                "exchange_seconds": exchange,
            },
        )
        with self._lock:
            for user in self.users:
                cost = {
                    "uplink_bytes": self._server.uplink[round, user],
                    "downlink_bytes": self._server.downlink[round, user],
                }
                there = {"took_part": user in self._seats, "why_not": self._absent.get(user)}
                self.history.add("users", round=round + 1, user=user, **there, **cost)
            self.history.add(
                "rounds", round=round + 1, users=len(self._seats), alignment_loss=loss, **about
            )
            self.history.finished = round + 1
            self.history.keep()
            parts = [f"round {round + 1}/{self.terms.rounds}: {listed(self._seats)}"]
            parts += [f"without {listed(self._absent)}"] if self._absent else []
            parts += [f"alignment loss {loss:.3f}"] if losses else []
            parts += [f"waited {waiting:.1f} s, exchanged {exchange:.2f} s", *self._delta(round)]
        self._tell(", ".join(parts))

    def _delta(self, round: int) -> list[str]:
        """Words on Delta of a round, from 1, if anybody reported, and on metrics near 0, of which a
        relative gain says nothing.
        """
        rows = [
            row
            for row in self.history.rows["users"]
            if row["round"] == round and row["gain_percent"] is not None
        ]
        low = {row["user"] for row in rows if abs(row["local"]) < NEAR_0}
        told = f"{len(rows)} reported" + (
            f"; says little: the local metric of {listed(low)} is below {NEAR_0:g}" if low else ""
        )
        return (
            [
                f"Delta of round {round}: {fmean(row['gain_percent'] for row in rows):+.2f} %"
                f" ({told})"
            ]
            if rows
            else []
        )
