"""The server: a party with a model of both modalities. It draws participants, sends its embeddings,
checks answers, and counts bytes.

Of what a client sends it keeps a copy, which it checks, and every client gets a copy of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import RefusedMessage, line_of, shown
from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.core.tensors import unit_rows
from fedmuscle_lib.creamfl.party import Party
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
        self._awaited: dict[
            int, int
        ] = {}  # the round, by the client who is asked for embeddings in it
        self._received: dict[int, dict[str, Tensor]] = {}

    def participants(self, round: int, count: int) -> tuple[int, ...]:
        """Draw who takes part in ``round``: without replacement, uniformly over clients of all
        kinds, in the order of numbers.
        """
        numbers = sorted(self.clients)
        order = torch.randperm(
            len(numbers), generator=generator("participants", *self.address, round)
        )
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

    def receive(self, client: int, round: int, embeddings: object) -> None:
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
        if not type(client) is type(round) is int or self._awaited.get(client) != round:
            who, when = (
                client if type(client) is int else shown(client),
                (round + 1 if type(round) is int else shown(round)),
            )
            raise RefusedMessage(
                f"client {who} sent embeddings in round {when} that nobody asked it for"
            )
        expected = sorted(self.clients[client])
        if type(embeddings) is not dict:
            raise RefusedMessage(
                f"client {client} sent embeddings as a {type(embeddings).__name__}; {expected} are"
                " expected"
            )
        if any(type(name) is not str for name in embeddings) or sorted(embeddings) != expected:
            found = line_of(", ".join(sorted(map(shown, embeddings))))
            raise RefusedMessage(
                f"client {client} sent embeddings of [{found}]; {expected} are expected"
            )
        sent, ours = {}, self.represent()
        for modality in expected:
            n, d = ours[modality].shape
            place = f"the public {modality} in round {round + 1}"
            sent[modality] = unit_rows(
                f"client {client}",
                embeddings[modality],
                (n, d),
                place,
                self._device,
                NORM_TOLERANCE,
            )
        self._received[client] = {
            modality: z.to(ours[modality].dtype) for modality, z in sent.items()
        }
        del self._awaited[client]
        self.uplink[round, client] += sum(z.nbytes for z in sent.values())

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
        self.uplink, self.downlink = (
            defaultdict(int, state[ledger]) for ledger in ("uplink", "downlink")
        )
