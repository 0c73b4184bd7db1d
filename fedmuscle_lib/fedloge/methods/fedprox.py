"""FedProx (Li et al., 2020): FedAvg with a term that keeps each client near the global model."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedmuscle_lib.fedloge.methods.fedavg import FedAvg
from fedmuscle_lib.fedloge.methods.method import Visit, proximity


class FedProx(FedAvg):
    """The local loss has (mu / 2) ||w - w_t||^2 added, w_t being the model as it was received.

    FedLoGe's authors add mu ||w - w_t||, not squared, and leave it out of each epoch's first batch;
    here it is the paper's, in every one.
    """

    name, label = "fedprox", "FedProx"

    class Options(FedAvg.Options):
        mu: float = Field(
            0.01,
            ge=0,
            description=(
                "FedLoGe's authors: 0.01. FedProx's README: \"You might want to tune mu from"
                ' {0.001, 0.01, 0.1, 0.5, 1}".'
            ),
        )

    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(visit, x, y) + self.options.mu * proximity(visit.shared, visit.received)
