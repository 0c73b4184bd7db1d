"""FedHeNN (Makhija et al., 2022): users pull the similarities of a few public samples towards their mean over users."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib import objectives
from fedmuscle_lib.algorithms.base import NO_PEERS, Algorithm, Federation
from fedmuscle_lib.randomness import generator


@dataclass(frozen=True)
class _Kernel:
    """What a user is aligned by: weight * (1 - CKA) of its Gram matrix and the mean one, (l, l)."""

    mean: Tensor
    weight: float
    debiased: bool

    def loss(self, anchor: Tensor) -> Tensor:
        return self.weight * (1 - objectives.cka(anchor @ anchor.T, self.mean, self.debiased))


class FedHeNN(Algorithm):
    """Users of any model and task send the Gram matrix K = Z Z^T of l public samples, and get the mean of all users' back.

    Up: l x l numbers a round; down: as many, and which samples. A user then takes one step of eta_r (1 - CKA(mean K, K)), with
    eta_r = eta sqrt(r) and r from 0, as in the authors' code; there is none in round 0.

    Choices that the paper leaves open. The authors' code evaluates the term on all l = 1000 samples at every local step, beside the local
    loss. The operations in the paper's Table 1, 34 against local training's 29, leave room for one pass over 32 samples a round. Ours is
    one step a round, by the alignment optimiser, on more than 32 fresh samples, which was better on a development seed. Adam is blind to a
    constant factor, so what is left of eta_r is its growth. Z has rows of unit norm, which theirs has not, so that no user's scale
    outweighs the others'. The mean holds the user's own matrix, as in their code, and gives it no gradient, which there it does.
    """

    name, label = "fedhenn", "FedHeNN"
    ignores = (*NO_PEERS, "cl_epochs", "public_batch_size")

    class Options(Algorithm.Options):
        samples: int = Field(256, ge=4, description="l, at most the public set. Not stated in the paper; 1000 in the authors' code.")
        eta: float = Field(0.01, gt=0, description="Not stated in the paper; the authors' code.")
        debiased: bool = Field(False, description="CKA by the unbiased estimator, which is not near 1 for few samples. Theirs is biased.")

    def communicate(self, federation: Federation, round: int) -> float | None:
        if round == 0:
            return None
        server, s = federation.server, self.settings
        n = min(self.options.samples, s.public_size)
        rows = torch.randperm(s.public_size, generator=generator("alignment set", s.seed, round))[:n]
        kernels = []
        for client in federation.clients:
            kernels.append(server.take(client.user.number, round, client.similarities(rows), (n, n), "similarities"))
        mean = torch.stack(kernels).mean(0)
        weight = self.options.eta * round**0.5
        losses = []
        for client in federation.clients:
            server.give(client.user.number, round, rows)
            received = server.give(client.user.number, round, mean)
            losses.append(client.align(_Kernel(received, weight, self.options.debiased)))
        return fmean(losses)
