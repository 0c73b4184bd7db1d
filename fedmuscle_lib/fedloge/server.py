"""The server: draws each round's participants, averages what they send, and counts the bytes.

The server is an object in the run's process, and holds tensors by name, no network. Clients receive
a copy of the shared tensors (:meth:`Server.send`) and return them after training
(:meth:`Server.receive`). :meth:`Server.aggregate` averages them once all have answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.fedloge.messages import Message, Update, check


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
    """

    def __init__(
        self,
        clients: Sequence[int],
        tensors: Mapping[str, Tensor],
        participation: float,
        address: tuple[object, ...],
    ) -> None:
        self.clients, self.participation, self.address = tuple(clients), participation, address
        self.tensors = dict(tensors)
        self.uplink: dict[tuple[int, int], int] = defaultdict(int)
        self.downlink: dict[tuple[int, int], int] = defaultdict(int)
        self._received: dict[int, Update] = {}

    def participants(self, round: int) -> tuple[int, ...]:
        """Draw who takes part in ``round``: the whole part of the share, at least one, without
        replacement, in the order of numbers.
        """
        count = max(1, int(self.participation * len(self.clients) + 1e-9))  # 0.29 * 100 is below 29
        order = permutation(len(self.clients), "participants", *self.address, round)
        return tuple(sorted(self.clients[i] for i in order[:count].tolist()))

    def send(self, client: int, round: int) -> Message:
        """Hand the shared tensors to a participant of ``round`` and count them."""
        message = Message({name: tensor.clone() for name, tensor in self.tensors.items()})
        self.downlink[round, client] += message.nbytes
        return message

    def receive(self, client: int, round: int, update: Update) -> None:
        """Take what a participant of ``round`` trained, and count it.

        Raises:
            RefusedMessage: naming the client, if the update can't be averaged (``messages.check``).
        """
        check(client, update, self.tensors)
        self._received[client] = update
        self.uplink[round, client] += update.nbytes

    def aggregate(self) -> None:
        """Replace the shared tensors by the mean of those received, each client weighing as its
        number of samples.

        Buffers are averaged as parameters are, batch norm's running statistics among them. The mean
        of integers, such as batch norm's count of batches, is rounded to one.
        """
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
        self.tensors = {
            name: state["tensors"][name].to(tensor.device) for name, tensor in self.tensors.items()
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
