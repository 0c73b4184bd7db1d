"""The server: draws each round's participants, averages what they send, and counts the bytes.

Who aggregates, and where: :meth:`Server.aggregate`, once all participants have answered, by
:func:`weighted_mean`. The server is an object in the run's process, and holds tensors by name, no
network. Clients receive the shared tensors (:meth:`Server.send`) and return them after training
(:meth:`Server.receive`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.core.training import State

Tensors = Mapping[str, Tensor]  # parameters and buffers by name


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
        tensors: Tensors,
        participation: float,
        address: tuple[object, ...],
    ) -> None:
        self.clients, self.participation, self.address = tuple(clients), participation, address
        self.tensors = tensors
        self.uplink, self.downlink = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        self._received: dict[int, tuple[Tensors, int]] = {}

    def participants(self, round: int) -> tuple[int, ...]:
        """Draw who takes part in ``round``: the whole part of the share, at least one, without
        replacement, in the order of numbers.
        """
        count = max(1, int(self.participation * len(self.clients) + 1e-9))  # 0.29 * 100 is below 29
        order = permutation(len(self.clients), "participants", *self.address, round)
        return tuple(sorted(self.clients[i] for i in order[:count].tolist()))

    def send(self, client: int, round: int) -> Tensors:
        """Hand the shared tensors to a participant of ``round`` and count them."""
        self.downlink[round, client] += sum(tensor.nbytes for tensor in self.tensors.values())
        return self.tensors

    def receive(self, client: int, round: int, tensors: Tensors, samples: int) -> None:
        """Take what a participant of ``round`` trained on so many samples, and count it."""
        self._received[client] = tensors, samples
        self.uplink[round, client] += 8 + sum(tensor.nbytes for tensor in tensors.values())

    def aggregate(self) -> None:
        """Replace the shared tensors by the mean of those received, each client weighing as its
        number of samples.

        Buffers are averaged as parameters are, batch norm's running statistics among them. The mean
        of integers, such as batch norm's count of batches, is rounded to one.
        """
        parts, samples = zip(
            *(self._received[client] for client in sorted(self._received)), strict=True
        )
        self.tensors = weighted_mean(parts, samples)
        self._received = {}

    def state(self) -> State:
        """Return what changes from round to round, as tensors and plain containers."""
        return {
            "tensors": self.tensors,
            "uplink": dict(self.uplink),
            "downlink": dict(self.downlink),
        }

    def restore(self, state: State) -> None:
        """Go on with what :meth:`state` gave."""
        self.tensors = {
            name: state["tensors"][name].to(tensor.device) for name, tensor in self.tensors.items()
        }
        self.uplink, self.downlink = Counter(state["uplink"]), Counter(state["downlink"])


def weighted_mean(parts: Sequence[Tensors], samples: Sequence[int]) -> dict[str, Tensor]:
    """Mean of tensors by name, part k weighing as ``samples[k]``; summed in float64, on the
    CPU because not every device has it, and given as the tensors are.
    """
    total = sum(samples)
    means = {}
    for name, first in parts[0].items():
        mean = torch.zeros(first.shape, dtype=torch.float64)
        for part, count in zip(parts, samples, strict=True):
            mean.add_(part[name].cpu().double(), alpha=count / total)
        means[name] = mean.to(first) if first.is_floating_point() else mean.round().to(first)
    return means
