"""FedRCL (Seo et al., 2024): supervised contrast within each user, relaxed so that samples of one
class don't collapse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor

from fedmuscle_lib.fedmuscle.algorithms.algorithm import ClientSide
from fedmuscle_lib.fedmuscle.algorithms.local import LocalTraining
from fedmuscle_lib.fedmuscle.objectives import divergence_penalty, supervised_contrast

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.client import Client


@dataclass(frozen=True)
class _RelaxedContrast(ClientSide):
    """A local step with FedRCL's two terms, on features from shallow to deep."""

    tau: float
    weight: float

    def __call__(self, client: Client, rows: Tensor, number: int) -> Tensor:
        inputs, targets = client.own(rows), client.train.targets[rows]

        def loss() -> Tensor:
            outputs, levels = client.model.forward_with_levels(inputs)
            return client.task.loss(outputs, targets) + self._terms(
                levels, *client.classification.alike(targets)
            )

        return client.step(("contrast", len(rows)), loss)

    def _terms(self, levels: list[Tensor], same: Tensor, different: Tensor) -> Tensor:
        terms = [
            supervised_contrast(f, same, different, self.tau)
            + divergence_penalty(f, same, self.tau)
            for f in levels
        ]
        return self.weight * (reduce(torch.add, terms) / len(terms))


class FedRCL(LocalTraining):
    """Local training whose loss has two more terms, each a mean over levels of features; nothing is
    exchanged, no public data are seen.

    The authors average parameters, which different architectures can't; the paper's numbers for
    FedRCL are the same for all three public sets, so it has no other exchange either. Levels are a
    quarter, half, three quarters and all of the adapted blocks, each the mean of its positions, as
    our models pool, and the projected representation. Where one block is adapted, as in ``mini``,
    these are two levels and not five. Samples of MLC are alike if half of the classes of either are
    common to both, and negatives of each other if none is; neither the paper nor the authors say.

    Users with about one sample a class, as those with IC100, have no positive but themselves: what
        is left is to repel the nearest.
    """

    name, label = "fedrcl", "FedRCL"

    class Options(LocalTraining.Options):
        tau: float = Field(0.05, gt=0, description="Not stated in the paper; the authors' code.")
        weight: float = Field(
            1.0, ge=0, description="Of both terms. Not stated in the paper; the authors' code."
        )

    def local_step(self, client: Client) -> _RelaxedContrast:
        return _RelaxedContrast(self.options.tau, self.options.weight)
