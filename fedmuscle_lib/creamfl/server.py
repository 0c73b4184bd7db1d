"""The server: a party with a model of both modalities. It draws participants, sends its embeddings,
checks answers, and counts bytes.

Of what a client sends it keeps a copy, which it checks, and every client gets a copy of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.core.tensors import unit_rows
from fedmuscle_lib.creamfl.party import Embeddings, Party
from fedmuscle_lib.muscle import NORM_TOLERANCE


class Server(Party):
    """One federation's server.

    Args:
        clients: the modalities of each client, by its number.
        party: as :class:`Party`'s.

    Attributes:
        uplink, downlink: bytes by (round, client), rounds from 0.
    """

    def __init__(self, clients: Mapping[int, tuple[str, ...]], **party: Any) -> None:
        super().__init__("the server", **party)
        self.clients = dict(clients)
        self.uplink: dict[tuple[int, int], int] = defaultdict(int)
        self.downlink: dict[tuple[int, int], int] = defaultdict(int)
        self._awaited: dict[int, int] = {}  # a client's round, while its embeddings are due
        self._received: dict[int, dict[str, Tensor]] = {}

    def participants(self, round: int, count: int) -> tuple[int, ...]:
        """Draw who takes part in ``round``: without replacement, uniformly over clients of all
        kinds, in the order of numbers.
        """
        numbers = sorted(self.clients)
        order = permutation(len(numbers), "participants", *self.address, round)
        return tuple(sorted(numbers[i] for i in order[:count].tolist()))

    def fit(self, round: int) -> float:
        """One pass over the public pairs by the server's own loss; returns its mean.

        Raises:
            Diverged: a loss is not finite.
        """
        return self.over_public(
            lambda z, *_: self.head(z["images"], z["texts"]),
            "contrast",
            "server order",
            *self.address,
            round,
        )

    def send(self, client: int, round: int) -> dict[str, Tensor]:
        """Hand the embeddings of all public pairs, (n, d) by modality, to a participant of
        ``round`` and count them.
        """
        message = {modality: z.clone() for modality, z in self.represent().items()}
        self._awaited[client] = round
        self.downlink[round, client] += sum(z.nbytes for z in message.values())
        return message

    def receive(self, client: int, round: int, embeddings: Embeddings) -> None:
        """Take a participant's embeddings of all public pairs, (n, d) for each of its modalities,
        and count them.

        They may be of any floating-point type. The server's copy has its own type, and the ledger
        the bytes that were sent. After a refusal the client can answer again, and what others sent
        is still there.

        Raises:
            RefusedMessage: naming the client, if nothing was sent to it in this round, it has
                answered already, a modality is missing or not its own, or a matrix is no dense
                floating-point tensor on the server's device, of another shape, not finite, or not
                of unit norm.
        """
        who, when = f"client {client}", f"in round {round + 1}"
        if self._awaited.get(client) != round:
            raise RefusedMessage(f"{who} sent embeddings {when} that nobody asked it for")
        if sorted(embeddings) != (expected := sorted(self.clients[client])):
            raise RefusedMessage(
                f"{who} sent embeddings of {sorted(embeddings)}; {expected} are expected"
            )
        kept: dict[str, Tensor] = {}
        for modality, ours in self.represent().items():
            if modality in embeddings:
                sent, place = embeddings[modality], f"the public {modality} {when}"
                shape = (len(ours), ours.shape[1])
                z = unit_rows(who, sent, shape, place, self._device, NORM_TOLERANCE)
                kept[modality] = z.to(ours.dtype)
        self._received[client] = kept
        del self._awaited[client]
        self.uplink[round, client] += sum(z.nbytes for z in embeddings.values())

    def collect(self) -> list[dict[str, Tensor]]:
        """Return what the round's participants sent, in the order of their numbers.

        Raises:
            RefusedMessage: naming the clients that were asked and have not answered.
        """
        if self._awaited:
            raise RefusedMessage(f"no embeddings from clients {sorted(self._awaited)}")
        received = [self._received[client] for client in sorted(self._received)]
        self._received = {}
        return received

    def state(self) -> dict[str, Any]:
        return super().state() | {"uplink": dict(self.uplink), "downlink": dict(self.downlink)}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.uplink, self.downlink = (defaultdict(int, state[n]) for n in ("uplink", "downlink"))
