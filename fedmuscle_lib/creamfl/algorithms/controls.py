"""Controls: what is left of a gain without weights of tuples, without what clients know, without
clients, or without any loss in the server's second pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.creamfl.algorithms.creamfl import CreamFL
from fedmuscle_lib.creamfl.algorithms.creamfl_muscle import CreamFLMuscle
from fedmuscle_lib.creamfl.client import Client
from fedmuscle_lib.creamfl.party import Embeddings, PublicLoss
from fedmuscle_lib.creamfl.server import Server


class Pairwise(CreamFLMuscle):
    """Pairwise alignment in place of the Muscle loss: the sum of InfoNCE over the others, which is
    the Muscle loss at gamma = 0, without its weights of tuples.
    """

    name, label, source = "pairwise", "CreamFL + pairwise", "control"

    def muscle(self, z: Embeddings, others: list[Tensor], tau: float, tau_prime: float) -> Tensor:
        return super().muscle(z, others, tau, tau)


class Shuffled(CreamFLMuscle):
    """Each client's embeddings are in a random order when the server sees them.

    It is drawn once for both of its modalities.
    """

    name, label, source = "shuffled", "Embeddings shuffled", "control"

    def gather(self, server: Server, clients: Mapping[int, Client], round: int) -> list[Embeddings]:
        shuffled: list[Embeddings] = []
        for k, own in enumerate(super().gather(server, clients, round)):
            n = len(next(iter(own.values())))
            order = permutation(n, "shuffled", *server.address, round, k)
            shuffled.append({modality: z[order] for modality, z in own.items()})
        return shuffled


class Frozen(CreamFLMuscle):
    """Clients never train: they send what their networks gave before any."""

    name, label, source = "frozen", "Clients frozen", "control"

    def visit(self, *_: Any) -> None:
        pass


class _Alone:
    """No client takes part: the server's own embeddings of the round stand in place of theirs."""

    def gather(self, server: Server, *_: Any) -> list[Embeddings]:
        return [server.represent()]


class Own(_Alone, CreamFLMuscle):
    """The server aligns with its own embeddings."""

    name, label, source = "own", "Server's own embeddings", "control"


class Momentum(_Alone, CreamFL):
    """The server's second pass has no loss: only its optimiser's momentum moves the weights."""

    name, label, source = "momentum", "Server's momentum alone", "control"

    def server_loss(self, *_: Any) -> PublicLoss:
        return lambda z, *_: 0 * torch.stack([own.sum() for own in z.values()]).sum()
