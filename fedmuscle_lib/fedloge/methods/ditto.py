"""Ditto (Li et al., 2021): FedAvg, beside which each client trains a model of its own that stays
near the global one.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmuscle_lib.fedloge.methods.fedavg import FedAvg
from fedmuscle_lib.fedloge.methods.method import Heads, Visit, proximity


class Ditto(FedAvg):
    """A client's own model v starts at the first global one and has the loss F(v) + (lambda / 2)
    ||v - w_t||^2, w_t as received.

    Both models see the same batches, as in Ditto's authors' code. FedLoGe's authors anchor v at its
    own previous weights and average nothing, so their global model never changes; here w is
    averaged and is the anchor.
    """

    name, label = "ditto", "Ditto"

    class Options(FedAvg.Options):
        coefficient: float = Field(
            1.0,
            ge=0,
            description=(
                "lambda. The commands in Ditto's README have 1, and its code chooses among 0.1, 1"
                " and 2 by validation. 0.01 in FedLoGe's authors' version."
            ),
        )

    def private(self, client: int) -> nn.ModuleDict:
        return self.shared()

    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        own = cross_entropy(visit.private["head"](visit.private["backbone"](x)), y)
        return (
            super().loss(visit, x, y)
            + own
            + self.options.coefficient * proximity(visit.private, visit.received)
        )

    def personal_heads(self, visit: Visit) -> Heads:
        return {"head": visit.private["head"]}

    def personal_backbone(self, visit: Visit) -> nn.Module:
        return visit.private["backbone"]
