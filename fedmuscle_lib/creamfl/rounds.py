"""The rounds of a run: the server's pass, the participants', what the server makes of it,
evaluation, and an account of the cost.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

from fedmuscle_lib.creamfl import algorithms
from fedmuscle_lib.creamfl.build import SERVER, Federation, build
from fedmuscle_lib.creamfl.party import Party
from fedmuscle_lib.creamfl.retrieval import WHOLE, Recall, recalls
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.runs.system import FederatedRounds, Tick


class Rounds(FederatedRounds[Settings]):
    """A federation between two rounds (see ``fedmuscle_lib.runs.system.Experiment``)."""

    federation: Federation

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, build(settings))
        kind = algorithms.get(settings.algorithm)
        self.algorithm = kind(settings.own_options, settings.participants, settings.local_epochs)

    def round(self, round: int) -> Tick:
        """Do a round.

        Raises:
            Diverged: a loss, a weight or an embedding is not finite; the message names the party.
        """
        s, server, clients = self.settings, self.federation.server, self.federation.clients
        for party in (server, *clients.values()):
            party.begin_round(round)
        local = server.fit(round)
        uploads = self.algorithm.gather(server, clients, round)
        distilled = self.algorithm.absorb(server, uploads, round) if uploads else math.nan
        server.check_weights()
        self._account(round, SERVER, SERVER, server, (local, distilled))
        for number in [number for r, number in server.downlink if r == round]:
            losses = self.algorithm.losses.get(number, (math.nan, math.nan))
            client = clients[number]
            self._account(round, number, client.kind.name, client, losses)
        due = (round + 1) % s.evaluate_every == 0 or round == s.rounds - 1
        found = self._evaluate(round) if due else []
        shown = tuple(
            (f"{each.direction} R@{each.k}", each.value)
            for each in found
            if each.gallery == WHOLE and each.k == 1
        )
        aligned = [public for _, public in self.algorithm.losses.values()]
        mean = fmean(aligned) if aligned else None
        return Tick(s.title, round + 1, s.rounds, len(aligned), local, mean, shown)

    def _evaluate(self, round: int) -> list[Recall]:
        server, test = self.federation.server, self.federation.test
        with server.meter.paused():
            z = {modality: server.embed(modality, inputs) for modality, inputs in test.items()}
        found = list(recalls(z["images"], z["texts"], self.federation.image_of))
        self.rows["metrics"] += [{"round": round + 1} | each._asdict() for each in found]
        return found

    def _account(
        self, round: int, who: int | str, kind: str, party: Party, losses: tuple[float, float]
    ) -> None:
        """A row of costs and losses for a party."""
        server, own = self.federation.server, {"round": round + 1, "party": str(who)}
        sent = {
            "uplink_bytes": server.uplink[round, who],
            "downlink_bytes": server.downlink[round, who],
        }
        self.rows["costs"].append(own | {"kind": kind} | sent | {"flops": party.flops})
        self.rows["losses"].append(own | dict(zip(("local", "public"), losses, strict=True)))

    def facts(self) -> dict[str, Any]:
        """Parameters that each kind of party trains, and samples of each client."""
        server, clients = self.federation.server, self.federation.clients
        by_kind = {client.kind.name: client.trained for client in clients.values()}
        return {
            "trained": {SERVER: server.trained} | by_kind,
            "samples": {str(number): len(client.rows) for number, client in clients.items()},
        }
