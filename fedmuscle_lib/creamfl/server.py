"""The server: a party with a model of both modalities. It draws participants, sends its embeddings,
takes theirs, and counts bytes.

Who aggregates, and where: ``Algorithm.absorb`` (``algorithms/``) trains this server by what
:meth:`Server.receive` took. CreamFL's global-local aggregation is ``CreamFL.aggregate``, whose
arithmetic is ``losses.global_local``; the Muscle loss stands in its place in ``CreamFLMuscle``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.core.training import State
from fedmuscle_lib.creamfl.party import Embeddings, Party


class Server(Party):
    """One federation's server.

    Args:
        clients: their numbers.
        party: as :class:`Party`'s.

    Attributes:
        uplink, downlink: bytes by (round, client), rounds from 0.
    """

    def __init__(self, clients: Collection[int], **party: Any) -> None:
        super().__init__("the server", **party)
        self.clients = sorted(clients)
        self.uplink, self.downlink = Counter[tuple[int, Any]](), Counter[tuple[int, Any]]()

    def participants(self, round: int, count: int) -> list[int]:
        """Draw who takes part in ``round``: without replacement, uniformly over clients of all
        kinds, in the order of numbers.
        """
        order = permutation(len(self.clients), "participants", *self.address, round)
        return sorted(self.clients[i] for i in order[:count].tolist())

    def fit(self, round: int) -> float:
        """One pass over the public pairs by the server's own loss; returns its mean.

        Raises:
            Diverged: a loss is not finite.
        """
        return self.over_public(
            lambda z, *_: self.head(**z),
            "contrast",
            "server order",
            *self.address,
            round,
        )

    def send(self, client: int, round: int) -> Embeddings:
        """Hand the embeddings of all public pairs, (n, d) by modality, to a participant of
        ``round`` and count them.
        """
        message = self.represent()
        self.downlink[round, client] += sum(z.nbytes for z in message.values())
        return message

    def receive(self, client: int, round: int, embeddings: Embeddings) -> Embeddings:
        """Take a participant's embeddings of all public pairs, (n, d) for each of its modalities,
        and count them.
        """
        self.uplink[round, client] += sum(z.nbytes for z in embeddings.values())
        return embeddings

    def state(self) -> State:
        return super().state() | {"uplink": dict(self.uplink), "downlink": dict(self.downlink)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.uplink, self.downlink = Counter(state["uplink"]), Counter(state["downlink"])
