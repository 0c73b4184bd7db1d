"""The rounds of a run: training, evaluation, and an account of what they cost."""

from __future__ import annotations

from typing import Any

import torch

from fedmuscle_lib.data.labelled_sets import FOLDER
from fedmuscle_lib.fedloge.build import Federation, build
from fedmuscle_lib.fedloge.evaluation import ALL
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs.address import files_digest
from fedmuscle_lib.runs.system import FederatedRounds, Tick


def inputs(settings: Settings) -> dict[str, str]:
    """A hash of the set that a run reads, by its folder; empty if it is not there."""
    folder = f"{FOLDER}/{settings.data}"
    return {folder: files_digest(settings.data_dir / folder)}


class Rounds(FederatedRounds[Settings]):
    """A federation between two rounds (see ``fedmuscle_lib.runs.system.Experiment``)."""

    federation: Federation

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, build(settings))

    def round(self, round: int) -> Tick:
        """The drawn clients train, the server averages; evaluate where it is due.

        Raises:
            Diverged: a loss, a tensor or a prediction is not finite; the message names the client.
        """
        s, server = self.settings, self.federation.server
        mean = self.federation.round(round)
        drawn = server.participants(round)
        for client in drawn:
            own = {"round": round + 1, "client": client}
            up, down = server.uplink[round, client], server.downlink[round, client]
            self.rows["costs"].append(own | {"uplink_bytes": up, "downlink_bytes": down})
            self.rows["losses"].append(own | {"local": self.federation.clients[client].loss})
        due = (round + 1) % s.evaluate_every == 0 or round == s.rounds - 1
        rows = self.federation.evaluate(round + 1) if due else []
        self.rows["metrics"] += rows
        first = {
            row["scope"]: row["value"]
            for row in reversed(rows)
            if row["group"] == ALL and not row["masked"]
        }  # of each scope's heads
        metrics = tuple(sorted(first.items()))
        return Tick(s.title, round + 1, s.rounds, len(drawn), mean, metrics=metrics)

    def facts(self) -> dict[str, Any]:
        """Training samples of each class, and the groups of classes."""
        federation = self.federation
        own = [client.data.counts for client in federation.clients.values()]
        counts = torch.stack(own).sum(0).tolist()
        return {
            "samples": dict(zip(federation.classes, counts, strict=True)),
            "groups": {
                name: [federation.classes[c] for c in members]
                for name, members in federation.groups.items()
            },
        }
