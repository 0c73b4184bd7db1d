"""One party: its model and its data in one long-running process, which trains, exchanges and keeps
checkpoints.

A checkpoint of the last two rounds' ends is kept, since a server that was killed may be a round
behind its parties.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import DataError, RefusedMessage, prefixed
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.data.encodings import Modality
from fedmuscle_lib.data.public import public_digest
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.client import Client
from fedmuscle_lib.network import keys
from fedmuscle_lib.network.aggregator import LeftOut, NoSession
from fedmuscle_lib.network.history import alone, columns_of, listed
from fedmuscle_lib.network.messages import (
    REPRESENTATIONS,
    Finished,
    Next,
    Ready,
    Reply,
    Report,
    Roster,
    Sent,
    pack,
    unpacked_reply,
)
from fedmuscle_lib.network.service import Connection
from fedmuscle_lib.network.terms import PartyFile, Terms
from fedmuscle_lib.runs.settings import try_device
from fedmuscle_lib.runs.store import packed, unpacked

AGAIN = 1.0  # seconds until a party that has no session joins again
LAST, BEFORE = "checkpoint.pt", "checkpoint_before.pt"
# Columns of the party's own history.csv; value is after both phases, local that of a copy that
# trains on local data alone.
COLUMNS = (
    "round",
    "took_part",
    "local_loss",
    "alignment_loss",
    "metric",
    "value",
    "local",
    "gain_percent",
    "seconds",
    "exchange_seconds",
)


class Party:
    """A party's side of a federation.

    Args:
        file: the party's own.
        tell: takes lines of progress.
    """

    def __init__(self, file: PartyFile, tell: Callable[[str], object] = print) -> None:
        self.file, self._tell = file, tell
        self._key = keys.private_key(file.key)
        self._agreed = False  # whether on the terms
        self._clients: list[Client] = []
        self._rows: list[dict[str, Any]] = []
        self._finished, self._clean = (
            0,
            False,
        )  # rounds behind the state, and whether a checkpoint has this state
        self._sent = 0  # bytes of representations
        self._others: tuple[int, ...] = ()  # who takes part in the round beside this party

    def run(self) -> None:
        """Take part until all rounds are over, with torch's threads and modes as in any run.

        Raises:
            RefusedMessage: the server refuses the party or what it sent, or asks for more than
                ``limits`` allow.
            TimeoutError: a limit of time is reached; names the server.
            Diverged: training gives no finite numbers any more.
            DataError: data, a key or a checkpoint can't be read.
            Busy: another process uses the party's state.
        """
        with (
            alone(self.file.state),
            Connection(
                self.file.server, self.file.root, self.file.limits, self._tell
            ) as self._connection,
        ):
            while True:
                try:
                    round = self._join()
                    while round is not None:
                        with fixed_state(self._settings.threads):
                            round = self._round(round)
                    self._tell(f"user {self.file.user}: all rounds are over")
                    return
                except NoSession as error:
                    self._tell(f"user {self.file.user} joins again: {error}")
                    time.sleep(AGAIN)

    def _join(self) -> int | None:
        """Be where the next round begins, and tell what the server may not know of the last one."""
        round = self._possible(self._connection.join(self.file.user, self._key, self._agree))
        self._stand_at(self._terms.rounds if round is None else round)
        self._say_finished()
        return round

    def _agree(self, terms: Terms) -> tuple[Modality, str]:
        """Check the terms against the party's own limits; returns what its model reads of the
        public set, and the SHA-256 of it.
        """
        if not self._agreed:
            self.file.limits.check(terms)
            reports = "reports" if self.file.limits.report else "does not report"
            what = (
                f"sends {terms.uplink_bytes / 1e6:.1f} MB of representations, takes {terms.reply}"
                f" replies, {reports} its metric"
            )
            self._tell(
                f"user {self.file.user}: {terms.name!r} at {self.file.server}, {terms.rounds}"
                f" rounds; {what}"
            )
            self._terms, self._agreed = terms, True
        if self._terms != terms:
            raise RefusedMessage("the server's terms are others than those that were agreed on")
        digest = public_digest(self.file.public_folder, terms.public_size, self.file.reads)
        if not self._clients:
            self._begin(terms)
        return self.file.reads, digest

    def _begin(self, terms: Terms) -> None:
        """Build what the rounds need: the party's client and, if it compares, the copy that trains
        on local data alone.
        """
        self._settings = self.file.training(terms)
        try_device(self._settings.device)
        self._algorithm, self._local = (
            algorithms.get(terms.algorithm)(terms),
            algorithms.get("local")(self._settings),
        )
        with fixed_state(self._settings.threads):
            clients = [build(self._settings).clients[0] for _ in range(1 + self.file.compare)]
            for client, sees_public in zip(clients, (True, False), strict=False):
                client.prepare(public=sees_public)
        self._clients = clients

    def _stand_at(self, round: int) -> None:
        """Have the state of a round's beginning: the present one, or that of the newest checkpoint
        that is not ahead of the round.
        """
        if self._clean and self._finished <= round:
            return
        for name in (LAST, BEFORE):
            path = self.file.state / name
            if path.exists() and (state := self._read(path))["finished"] <= round:
                with fixed_state(self._settings.threads):
                    for client, own in zip(self._clients, state["clients"], strict=True):
                        client.restore(own)
                        client.take_losses()  # of a round that was begun
                self._finished, self._rows, self._clean = state["finished"], state["rows"], True
                self._sent = max(self._sent, state["sent"])  # what was sent stays sent
                if (
                    name == BEFORE
                ):  # the server was killed, and may be again before this round's end
                    (self.file.state / LAST).unlink(missing_ok=True)
                if self._finished:
                    self._tell(
                        f"user {self.file.user}: from its checkpoint after round {self._finished}"
                    )
                return
        if any((self.file.state / name).exists() for name in (LAST, BEFORE)):
            raise DataError(
                f"{self.file.state}: its checkpoints are ahead of the server's round {round + 1};"
                " name another folder"
            )
        self._keep(0)

    def _read(self, path: Path) -> dict[str, Any]:
        with prefixed(str(path), (ValueError, KeyError, TypeError)):
            state = unpacked(files.read_bytes(path))
            known, terms = len(state["clients"]) == len(self._clients), state["terms"]
        if not known or terms != self._terms.model_dump_json():
            raise DataError(
                f"{path}: of other terms, or with another 'compare'; name another folder for a new"
                " federation"
            )
        return state

    def _keep(self, finished: int) -> None:
        last, state = self.file.state / LAST, [client.state() for client in self._clients]
        if last.exists():
            last.replace(self.file.state / BEFORE)
        about = {
            "terms": self._terms.model_dump_json(),
            "finished": finished,
            "rows": self._rows,
            "sent": self._sent,
        }
        files.put(last, packed(about | {"clients": state}))
        files.write(
            self.file.state / "history.csv",
            pd.DataFrame(self._rows, columns=list(COLUMNS)).to_csv(index=False),
        )
        self._finished, self._clean = finished, True

    def _round(self, round: int) -> int | None:
        """A round's two phases, evaluation, checkpoint; returns the next round."""
        began, self._clean = time.perf_counter(), False
        self._others, self._exchange_seconds = (), 0.0
        for client in self._clients:
            client.begin_round(round)
        for phase in self._algorithm.phases():
            if phase == "after_alignment":
                self._align(round)
            else:
                for client in self._clients:
                    self._local.local_phase(client, round)
            self._clients[0].check_weights()
        report = self._evaluated(round)
        losses = self._clients[0].take_losses()
        row = {
            "round": round + 1,
            "took_part": bool(self._others),
            "local_loss": losses["local"],
            "alignment_loss": losses["alignment"],
        }
        row |= columns_of(report) if report else {}
        row |= {"seconds": time.perf_counter() - began, "exchange_seconds": self._exchange_seconds}
        self._rows.append({name: row.get(name) for name in COLUMNS})
        self._keep(round + 1)
        self._tell(self._line(row))
        return self._possible(self._say_finished(), round + 1)

    def _say_finished(self) -> int | None:
        """Tell the server which round is behind this party, and its metric if it agrees to; returns
        the round to go on with.
        """
        row = self._rows[-1] if self._rows and self.file.limits.report else {}
        report = (
            Report(**{name: row[name] for name in Report.model_fields})
            if row.get("metric")
            else None
        )
        return self._connection.ask(
            "finished", Finished(round=self._finished - 1, report=report), Next
        ).round

    def _possible(self, round: int | None, first: int = 0) -> int | None:
        """The round that the server names, if it is one that can be next."""
        if round is not None and not first <= round < self._terms.rounds:
            raise RefusedMessage(
                f"the server names round {round + 1} as the next one, of {self._terms.rounds},"
                f" after {first}"
            )
        return round

    def _align(self, round: int) -> None:
        """Exchange every public batch of the round, unless the server goes on without this
        party.
        """
        roster = self._connection.ask("ready", Ready(round=round), Roster)
        while roster.round == round and not roster.users:
            self._tell(f"round {round + 1}: waiting for {listed(roster.waiting)}")
            roster = self._connection.ask("ready", Ready(round=round), Roster)
        self._others = tuple(user for user in roster.users if user != self.file.user)
        if not self._others:
            self._tell(f"round {round + 1} went on without this party")
            return
        for batch, rows in self._algorithm.public_batches(round):
            z = self._clients[0].represent(rows)
            self._sent += z.nbytes
            if self._sent > self.file.limits.megabytes * 1e6:
                raise RefusedMessage(
                    f"limits.megabytes: {self.file.limits.megabytes:g} MB of representations were"
                    " sent"
                )
            began = time.perf_counter()
            try:
                reply = self._exchanged(Sent(**vars(batch)), z)
            except LeftOut as error:
                self._tell(f"{batch}: the round goes on without this party ({error})")
                return
            self._exchange_seconds += time.perf_counter() - began
            self._clients[0].align(reply)

    def _exchanged(self, message: Sent, z: Tensor) -> Reply:
        content = self._connection.call("exchange", pack(message, {REPRESENTATIONS: z}))
        return unpacked_reply(self._terms.reply, content, z.device)

    def _evaluated(self, round: int) -> Report | None:
        """The metric, and that of the copy that trains on local data alone, where an evaluation is
        due.
        """
        if not self._settings.evaluates(round):
            return None
        value, *local = (client.evaluate() for client in self._clients)
        return Report(
            metric=self._clients[0].task.metric, value=value, local=local[0] if local else None
        )

    def _line(self, row: dict[str, Any]) -> str:
        parts = [f"user {self.file.user}, round {row['round']}/{self._settings.rounds}"]
        if row.get("metric"):
            beside = (
                f" ({row['local']:.1f} by local training alone)" if row["local"] is not None else ""
            )
            parts.append(f"{row['metric']} {row['value']:.1f}{beside}")
        if self._others:
            parts.append(
                f"alignment loss {row['alignment_loss']:.3f}, {row['exchange_seconds']:.2f} s of"
                f" exchange with {listed(self._others)}"
            )
        return ", ".join([*parts, f"{row['seconds']:.1f} s"])
