"""The rounds of a run: the server's pass, the participants', what the server makes of it,
evaluation, and an account of the cost.
"""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean
from typing import Any

from fedmuscle_lib.creamfl.build import SERVER, build
from fedmuscle_lib.creamfl.party import Party
from fedmuscle_lib.creamfl.retrieval import WHOLE, Recall, recalls
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.runs.system import Tick


class Rounds:
    """A federation between two rounds (see ``fedmuscle_lib.runs.system.Experiment``)."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.federation = build(settings)
        self.algorithm = settings.made()
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def round(self, round: int) -> Tick:
        """Do a round.

        Raises:
            Diverged: a loss, a weight or an embedding is not finite; the message names the party.
        """
        s, server, clients = self.settings, self.federation.server, self.federation.clients
        parties: dict[str, Party] = {SERVER: server} | {
            str(number): client for number, client in clients.items()
        }
        before = {name: party.meter.total for name, party in parties.items()}
        for party in parties.values():
            party.begin_round(round)
        local = server.fit(round)
        uploads = self.algorithm.gather(server, clients, round)
        distilled = self.algorithm.absorb(server, uploads, round) if uploads else math.nan
        server.check_weights()
        self._account(round, parties, before, (local, distilled))
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
        self,
        round: int,
        parties: dict[str, Party],
        before: dict[str, int],
        of_server: tuple[float, float],
    ) -> None:
        """A row of costs and losses for the server and each participant."""
        server, clients = self.federation.server, self.federation.clients
        rows = {SERVER: (SERVER, 0, 0, of_server)}
        for at in (at for at in server.downlink if at[0] == round):
            losses = self.algorithm.losses.get(at[1], (math.nan, math.nan))
            kind = clients[at[1]].kind.name
            rows[str(at[1])] = (kind, server.uplink[at], server.downlink[at], losses)
        for name, (kind, up, down, (local, public)) in rows.items():
            own = {"round": round + 1, "party": name}
            sent = {"kind": kind, "uplink_bytes": up, "downlink_bytes": down}
            flops = parties[name].meter.total - before[name]
            self.rows["costs"].append(own | sent | {"flops": flops})
            self.rows["losses"].append(own | {"local": local, "public": public})

    def state(self) -> dict[str, Any]:
        server, clients = self.federation.server, self.federation.clients
        return {
            "server": server.state(),
            "clients": {number: client.state() for number, client in clients.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.federation.server.restore(state["server"])
        for number, client in self.federation.clients.items():
            client.restore(state["clients"][number])

    def facts(self) -> dict[str, Any]:
        """Parameters that each kind of party trains, and samples of each client."""
        server, clients = self.federation.server, self.federation.clients
        by_kind = {client.kind.name: client.trained for client in clients.values()}
        return {
            "trained": {SERVER: server.trained} | by_kind,
            "samples": {str(number): len(client.rows) for number, client in clients.items()},
        }
