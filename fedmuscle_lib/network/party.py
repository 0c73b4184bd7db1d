"""One party: its model and its data, as answers to the server's questions.

Checkpoints of the last two rounds' ends are kept: a party that is killed needs the last one, and
the one before if a killed server is a round behind its parties.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Any

import pandas as pd
from torch import Tensor

from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import DataError, RefusedMessage, prefixed
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms.fedmuscle import FedMuscle
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.client import Client
from fedmuscle_lib.fedmuscle.messages import Batch
from fedmuscle_lib.muscle.wire import GradientReply
from fedmuscle_lib.network.messages import Answer, Question, Report, pack, unpack
from fedmuscle_lib.network.terms import PartyFile, Terms
from fedmuscle_lib.runs.settings import try_device
from fedmuscle_lib.runs.store import packed, unpacked


class Party:
    """A party's side of a federation.

    Args:
        file: the party's own.
        user: its number.
        tell: takes lines of progress.

    Attributes:
        over: whether the server said that there is no other round.
    """

    def __init__(self, file: PartyFile, user: int, tell: Callable[[str], object] = print) -> None:
        self.file, self.user, self._tell, self.over = file, user, tell, False
        self._last, self._before = file.state / "checkpoint.pt", file.state / "checkpoint_before.pt"
        self._terms: Terms | None = None  # that were agreed on
        self._clients: list[Client] = []  # with it, and the copy that trains on local data alone
        self._rows: list[dict[str, Any]] = []  # of history.csv
        self._finished = inf  # rounds behind the clients' state, where that is a round's end
        self._round = -1  # the last that was begun

    def answer(self, message: bytes) -> bytes:
        """The answer to a question.

        Raises:
            RefusedMessage: the server asks for what the party does not do.
            Diverged: training gives no finite numbers any more.
            DataError: data or a checkpoint can't be read, or the public set is another.
        """
        question, reply = unpack("the server", Question, message)
        if question.step == "over":
            self.over = True
            self._tell(f"user {self.user}: all rounds are over")
            return pack(Answer())
        if question.terms:
            self._agree(question.terms)
        elif self._round != question.round:
            return pack(Answer(began_anew=True))
        with fixed_state(self._settings.threads):
            if question.terms:
                self._begin(question.round)
            if reply:
                parts = {name: part.to(self._settings.device) for name, part in reply.items()}
                self._clients[0].align(GradientReply(**parts))
            if question.step == "represent":
                return pack(Answer(), {"z": self._represent(question.batch)})
            return pack(Answer(report=self._end() if question.step == "end" else Report()))

    def _agree(self, terms: Terms) -> None:
        """Check the terms, once, and build what the rounds need."""
        if terms == self._terms:
            return
        if self._terms:
            raise RefusedMessage(f"the terms are not those agreed on: {terms}")
        self._tell(f"user {self.user}: {terms}")
        self.file.check_public(terms)
        self._algorithm = FedMuscle(terms)
        self._build(terms)
        self._terms = terms

    def _build(self, terms: Terms) -> None:
        """Make the party's client and, if it compares, the copy that trains on local data alone."""
        self._settings = self.file.training(self.user, terms)
        try_device(self._settings.device)
        self._local = algorithms.get("local")(self._settings)
        with fixed_state(self._settings.threads):
            for sees_public in (True, False)[: 1 + self.file.compare]:
                client = build(self._settings).clients[0]
                client.prepare(public=sees_public)
                self._clients.append(client)

    def _begin(self, round: int) -> None:
        """Stand at the round's beginning, and train on local data."""
        if self._finished > round:
            self._go_back(round)
        self._round, self._finished, self._began = round, inf, time.perf_counter()
        self._batches = dict(self._algorithm.public_batches(round))
        for client in self._clients:
            client.begin_round(round)
            self._local.local_phase(client, round)
        self._clients[0].check_weights()

    def _represent(self, batch: Batch | None) -> Tensor:
        """Z^n for a batch that was not asked for before in the round, (b, d)."""
        if batch not in self._batches:
            raise RefusedMessage(f"the server asks for {batch} again, or for what is no batch")
        return self._clients[0].represent(self._batches.pop(batch))

    def _end(self) -> Report:
        """Evaluate the model and the copy, where it is due, and keep a checkpoint; returns what the
        server is told.
        """
        self._clients[0].check_weights()
        report = Report()
        if self._settings.evaluates(self._round):
            value, *local = (client.evaluate() for client in self._clients)
            metric = self._clients[0].task.metric
            report = Report(metric=metric, value=value, local=local[0] if local else None)
        losses, number = self._clients[0].take_losses(), self._round + 1
        row = {
            "round": number,
            "local_loss": losses["local"],
            "alignment_loss": losses["alignment"],
            **report.model_dump(),
            "seconds": time.perf_counter() - self._began,
        }
        self._rows.append(row)
        self._keep(number)
        numbers = [f"{name} {row[name]:.4g}" for name in row if isinstance(row[name], float)]
        told = ", ".join(numbers)
        self._tell(f"user {self.user}, round {number}/{self._settings.rounds}: {told}")
        return report if self.file.report else Report()

    def _keep(self, finished: int) -> None:
        """Write a checkpoint, and the history."""
        state = {
            "terms": str(self._terms),
            "finished": finished,
            "rows": self._rows,
            "clients": [client.state() for client in self._clients],
        }
        if self._last.exists():
            self._last.replace(self._before)
        files.put(self._last, packed(state))
        table = pd.DataFrame(self._rows).to_csv(index=False)
        files.write(self.file.state / "history.csv", table)
        self._finished = finished

    def _go_back(self, round: int) -> None:
        """Restore the newest checkpoint that is not ahead of a round; without any, keep one of the
        state before all training.
        """
        there = [path for path in (self._last, self._before) if path.exists()]
        for path in there:
            with prefixed(f"{path}: not a checkpoint of this party", (ValueError, KeyError)):
                state = unpacked(files.read_bytes(path))
                if state["terms"] != str(self._terms) or state["finished"] > round:
                    continue
                for client, own in zip(self._clients, state["clients"], strict=True):
                    client.restore(own)
                    client.take_losses()  # of a round that was begun
            path.replace(self._last)  # the one ahead is of a round that is done again
            self._rows = state["rows"]
            self._tell(f"user {self.user}: from its checkpoint after round {state['finished']}")
            return
        if there:
            raise DataError(
                f"{self.file.state}: its checkpoints are of other terms, or ahead of the server's"
                f" round {round + 1}; name another folder"
            )
        self._keep(0)
