"""The server: draws each round's participants, averages what they send, and keeps the ledger of
bytes. It knows no network.

Of what a client sends it keeps a copy, which it checks, and every client gets a copy of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import RefusedMessage
from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.core.tensors import like
from fedmuscle_lib.fedloge.messages import Message, Update, accepted


class Server:
    """One federation's server.

    Args:
        clients: numbers of those who can take part.
        tensors: what they share, by name, as it is before the first round.
        participation: share of the clients in a round.
        address: prefix of every draw's address, such as the seed.

    Attributes:
        tensors: the shared tensors after the last round.
        uplink, downlink: bytes by (round, client), rounds from 0.

    Raises:
        ValueError: for no clients or a share outside (0, 1].
    """

    def __init__(
        self,
        clients: Sequence[int],
        tensors: Mapping[str, Tensor],
        participation: float,
        address: tuple[object, ...],
    ) -> None:
        if not clients:
            raise ValueError("a federation without clients: nobody has samples")
        if not 0 < participation <= 1:
            raise ValueError(f"participation = {participation}: a share in (0, 1] is needed")
        self.clients, self.participation, self.address = tuple(clients), participation, address
        self.tensors = dict(tensors)
        self.uplink: dict[tuple[int, int], int] = defaultdict(int)
        self.downlink: dict[tuple[int, int], int] = defaultdict(int)
        self._awaited: dict[
            int, int
        ] = {}  # the round, by the client who is asked for an update in it
        self._received: dict[int, Update] = {}

    def participants(self, round: int) -> tuple[int, ...]:
        """Draw who takes part in ``round``: the whole part of the share, at least one, without
        replacement, in the order of numbers.
        """
        count = max(1, int(self.participation * len(self.clients) + 1e-9))  # 0.29 * 100 is below 29
        order = torch.randperm(
            len(self.clients), generator=generator("participants", *self.address, round)
        )
        return tuple(sorted(self.clients[i] for i in order[:count].tolist()))

    def send(self, client: int, round: int) -> Message:
        """Hand the shared tensors to a participant of ``round`` and count them."""
        message = Message({name: tensor.clone() for name, tensor in self.tensors.items()})
        self._awaited[client] = round
        self.downlink[round, client] += message.nbytes
        return message

    def receive(self, client: int, round: int, update: Update) -> None:
        """Take what a participant of ``round`` trained, and count it.

        Raises:
            RefusedMessage: naming the client, if nothing was sent to it in this round, it has
                answered already, or ``messages.accepted`` refuses the update.
        """
        if type(client) is not int or self._awaited.get(client) != round:
            raise RefusedMessage(
                f"client {client} sent an update in round {round + 1} that nobody asked it for"
            )
        self._received[client] = update = accepted(client, update, self.tensors)
        del self._awaited[client]
        self.uplink[round, client] += update.nbytes

    def aggregate(self) -> None:
        """Replace the shared tensors by the mean of those received, each client weighing as its
        number of samples.

        Buffers are averaged as parameters are, batch norm's running statistics among them. The mean
        of integers, such as batch norm's count of batches, is rounded to one.

        Raises:
            RefusedMessage: naming the clients that were asked and have not answered.
        """
        if self._awaited:
            raise RefusedMessage(f"no update from clients {sorted(self._awaited)}")
        updates = [self._received[client] for client in sorted(self._received)]
        self.tensors = weighted_mean(
            [update.tensors for update in updates], [update.samples for update in updates]
        )
        self._received = {}

    def state(self) -> dict[str, Any]:
        """Return what changes from round to round, as tensors and plain containers."""
        return {
            "tensors": self.tensors,
            "uplink": dict(self.uplink),
            "downlink": dict(self.downlink),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with what :meth:`state` gave."""
        found = state["tensors"]
        for name in self.tensors.keys() ^ found.keys() or [
            name for name in found if not like(found[name], self.tensors[name])
        ]:
            raise ValueError(f"{name!r} is none of the shared tensors")
        self.tensors = {
            name: found[name].to(tensor.device) for name, tensor in self.tensors.items()
        }
        self.uplink, self.downlink = (
            defaultdict(int, state[ledger]) for ledger in ("uplink", "downlink")
        )


def weighted_mean(
    parts: Sequence[Mapping[str, Tensor]], samples: Sequence[int]
) -> dict[str, Tensor]:
    """Mean of tensors by name, part k weighing as ``samples[k]``; summed in float64 and given in
    the tensors' own type.
    """
    total = sum(samples)
    means = {}
    for name, first in parts[0].items():
        mean = torch.zeros_like(first, dtype=torch.float64)
        for part, count in zip(parts, samples, strict=True):
            mean.add_(part[name].double(), alpha=count / total)
        means[name] = (
            mean.to(first.dtype) if first.is_floating_point() else mean.round().to(first.dtype)
        )
    return means
