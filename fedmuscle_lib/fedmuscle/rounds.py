"""The rounds of a run: local updates and alignment, evaluation, and an account of what they
cost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import peft
import transformers

from fedmuscle_lib.data.encodings import Words
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import Algorithm, Phase
from fedmuscle_lib.fedmuscle.build import build, local_data
from fedmuscle_lib.fedmuscle.client import Client
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import task_of
from fedmuscle_lib.runs.system import Tick
from fedmuscle_lib.tasks import TextClassification


class Rounds:
    """A federation between two rounds (see ``fedmuscle_lib.runs.system.Experiment``)."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.federation = build(settings)
        self.algorithm: Algorithm = algorithms.get(settings.algorithm)(settings)
        self.algorithm.begin(self.federation)
        self._count()
        for client in self.federation.clients:
            client.prepare(public=not self.algorithm.views_only)
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def round(self, round: int) -> Tick:
        """Both phases, in the algorithm's order.

        Raises:
            Diverged: a loss, a weight or a prediction is not finite; the message names the user and
                the batch.
        """
        clients, s = self.federation.clients, self.settings
        due = s.evaluates(round)
        for client in clients:
            client.begin_round(round)
        for phase in self.algorithm.phases():
            if phase == "after_local":
                local_loss = self.algorithm.local_update(self.federation, round)
            else:
                alignment_loss = self.algorithm.communicate(self.federation, round)
            for client in clients:
                client.check_weights()
            if due:
                self._evaluate(round, phase)
        self._account(round)
        metrics = (
            tuple((row["user"], row["value"]) for row in self.rows["metrics"][-len(clients) :])
            if due
            else ()
        )
        return Tick(s.title, round + 1, s.rounds, len(clients), local_loss, alignment_loss, metrics)

    def _evaluate(self, round: int, phase: Phase) -> None:
        metrics = self.rows["metrics"]
        if (
            phase == "after_alignment" and not self.algorithm.communicates
        ):  # nothing happened since the last evaluation
            metrics += [row | {"phase": phase} for row in metrics[-len(self.federation.clients) :]]
            return
        for client in self.federation.clients:
            user = client.user
            whose = {
                "round": round + 1,
                "phase": phase,
                "user": user.number,
                "model": user.model,
                "task": user.task,
            }
            metrics.append(
                whose | {"metric": client.task.metric, "value": self._value(client, round)}
            )

    def _value(self, client: Client, round: int) -> float:
        """The metric of the user's model or, with ``refit``, of a copy of it that trains on its
        local data for one more phase.
        """
        if not self.settings.refit:
            return client.evaluate()
        with client.as_copy():
            self.algorithm.local_phase(client, round)
            return client.evaluate()

    def _count(self) -> None:
        """Keep how many operations each user's training has taken, and how many of them ran."""
        self._counted = [(c.meter.total, c.meter.done) for c in self.federation.clients]

    def _account(self, round: int) -> None:
        """A row a user of what the round cost, of its losses, and of what the server measured."""
        server = self.federation.server
        for client, (total, done) in zip(self.federation.clients, self._counted, strict=True):
            user = client.user.number
            own = {"round": round + 1, "user": user}
            bytes_ = {
                "uplink_bytes": server.uplink[round, user],
                "downlink_bytes": server.downlink[round, user],
            }
            flops = {"flops": client.meter.total - total, "flops_done": client.meter.done - done}
            self.rows["costs"].append(own | bytes_ | flops)
            self.rows["losses"].append(own | client.take_losses())
        self._count()
        self.rows["measures"] += [
            measure | {"round": round + 1}
            for measure in server.measures
            if measure["round"] == round
        ]

    def state(self) -> dict[str, Any]:
        server = self.federation.server
        return {
            "clients": [client.state() for client in self.federation.clients],
            "algorithm": self.algorithm.state(),
            "uplink": dict(server.uplink),
            "downlink": dict(server.downlink),
            "measures": server.measures,
        }

    def restore(self, state: dict[str, Any]) -> None:
        for client, saved in zip(self.federation.clients, state["clients"], strict=True):
            client.restore(saved)
        self._count()
        self.algorithm.restore(state["algorithm"])
        server = self.federation.server
        server.uplink, server.downlink = Counter(state["uplink"]), Counter(state["downlink"])
        server.measures += state["measures"]

    def facts(self) -> dict[str, Any]:
        """Versions of what models are built with, each user's metric by answers that need no model,
        and shares of pools.
        """
        by_words = {}  # what the words of its texts alone would give each user who classifies texts
        for user in self.settings.members:
            if isinstance(task := task_of(user), TextClassification):
                train, evaluation, _ = local_data(self.settings, user, Words())
                by_words[str(user.number)] = task.by_words(train, evaluation)
        return {
            "transformers": transformers.__version__,
            "peft": peft.__version__,
            "trivial": {
                str(c.user.number): c.task.trivial(
                    c.train.targets.cpu(), c.evaluation.targets.cpu()
                )
                for c in self.federation.clients
            },
            "tfidf": by_words,
            "class_counts": {  # training samples of each class of users who divide a pool
                str(c.user.number): c.train.targets.bincount(minlength=len(c.classes)).tolist()
                for c in self.federation.clients
                if c.user.sharers
            },
        }
