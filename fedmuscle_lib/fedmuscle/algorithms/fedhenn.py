"""FedHeNN (Makhija et al., 2022): users pull the similarities of a few public samples towards their
mean over users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib.core.randomness import permutation
from fedmuscle_lib.fedmuscle import objectives
from fedmuscle_lib.fedmuscle.algorithms.algorithm import (
    NO_ALIGNMENT,
    Algorithm,
    ClientSide,
    Federation,
)

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client


@dataclass(frozen=True, eq=False)
class _Similarities(ClientSide):
    """The Gram matrix K = Z Z^T of public samples, (l, l)."""

    samples: Tensor

    def __call__(self, client: Client) -> Tensor:
        z = client.over_public(client.model.represent, self.samples)
        return z @ z.T


@dataclass(frozen=True, eq=False)
class _Pulled(ClientSide):
    """A local step with one more term: weight * (1 - CKA) of the user's Gram matrix of ``samples``
    and the mean one, (l, l).
    """

    samples: Tensor
    mean: Tensor
    weight: float

    def __call__(self, client: Client, rows: Tensor, number: int) -> Tensor:
        own, public = client.local_loss(rows), client.public_inputs(self.samples)

        def loss() -> Tensor:
            z = client.model.represent(public)
            return own() + self.weight * (1 - objectives.cka(z @ z.T, self.mean))

        return client.step(("pulled", len(rows), len(self.samples)), loss)


class FedHeNN(Algorithm):
    """Users of any model and task send the Gram matrix K = Z Z^T of l public samples, and get the
    mean of all users' back.

    Up: l x l numbers a round; down: as many, and which samples. They are exchanged before the local
        updates, for fresh samples. Every local
    step of the round then adds eta_r (1 - CKA(mean K, K)) to the local loss, with K of the model as
    it is and eta_r = eta sqrt(r), r from 0, as in the authors' code; round 0 is local training.

    Choices that the paper leaves open. The authors take l = 1000 samples. The operations in the
    paper's Table 1, 34 against local training's 29, are those of 32 samples a round, so ours are
    32; all of them pass at every local step, which about doubles it. CKA of so few samples is near
    1 whatever they are. Z has rows of unit norm, which theirs has not, so
    that no user's scale outweighs the others'. The mean holds the user's own matrix, as in their
    code, and gives it no gradient, which there it does.
    """

    name, label = "fedhenn", "FedHeNN"
    version = 2
    ignores = (*NO_ALIGNMENT, "cl_epochs", "public_batch_size")

    class Options(Algorithm.Options):
        samples: int = Field(
            32,
            ge=4,
            description=(
                "l, at most the public set. Not stated in the paper; the cost in its Table 1. 1000"
                " in the authors' code."
            ),
        )
        eta: float = Field(0.01, ge=0, description="Not stated in the paper; the authors' code.")
        # an address has all options, and stored runs had this one
        debiased: Literal[False] = Field(False, description="CKA is biased, as theirs.")

    def local_update(self, federation: Federation, round: int) -> float:
        if round:
            self._exchange(federation, round)
        return super().local_update(federation, round)

    def _exchange(self, federation: Federation, round: int) -> None:
        server, s = federation.server, self.settings
        n = min(self.options.samples, s.public_size)
        rows = permutation(s.public_size, "alignment set", s.seed, round)[:n]
        sent = {c.user.number: c.do(_Similarities(rows)) for c in federation.clients}
        kernels = [
            server.take(user, round, kernel, (n, n), "similarities")
            for user, kernel in sent.items()
        ]
        mean = torch.stack(kernels).mean(0)
        weight = self.options.eta * round**0.5
        for user in sent:
            samples, kernel = server.give(user, round, rows), server.give(user, round, mean)
            self.steps[user] = _Pulled(samples, kernel, weight)
