"""The rounds of a run: the server's pass, the participants', what the server makes of it,
evaluation, and an account of the cost.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

from fedmuscle_lib.creamfl import algorithms
from fedmuscle_lib.creamfl.build import SERVER, Federation, build
from fedmuscle_lib.creamfl.retrieval import WHOLE, Recall, recalls
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.runs.system import FederatedRounds, Tick


class Rounds(FederatedRounds[Settings]):
    """A federation between two rounds (see ``fedmuscle_lib.runs.system.Experiment``)."""

    federation: Federation

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, build(settings))
        self.algorithm = algorithms.get(settings.algorithm)(settings)

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
        losses: dict[Any, tuple[float, float]] = {SERVER: (local, distilled)}
        losses |= self.algorithm.losses
        for who in [SERVER, *(number for r, number in server.downlink if r == round)]:
            self._account(round, who, *losses.get(who, (math.nan, math.nan)))
        due = (round + 1) % s.evaluate_every == 0 or round == s.rounds - 1
        found = self._evaluate(round) if due else []
        shown = tuple(
            (f"{each.direction} R@1", each.value)
            for each in found
            if (each.gallery, each.k) == (WHOLE, 1)
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

    def _account(self, round: int, who: Any, local: float, public: float) -> None:
        """A row of costs and losses for the server, or for a client by its number."""
        server, client = self.federation.server, self.federation.clients.get(who)
        own = {"round": round + 1, "party": str(who)}
        cost = {
            "kind": client.kind.name if client else SERVER,
            "uplink_bytes": server.uplink[round, who],
            "downlink_bytes": server.downlink[round, who],
            "flops": (client or server).flops,
        }
        self.rows["costs"].append(own | cost)
        self.rows["losses"].append(own | {"local": local, "public": public})

    def facts(self) -> dict[str, Any]:
        """Parameters that each kind of party trains, and samples of each client."""
        server, clients = self.federation.server, self.federation.clients
        by_kind = {client.kind.name: client.trained for client in clients.values()}
        return {
            "trained": {SERVER: server.trained} | by_kind,
            "samples": {str(number): len(client.rows) for number, client in clients.items()},
        }
