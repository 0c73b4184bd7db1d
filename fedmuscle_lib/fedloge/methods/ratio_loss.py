"""Ratio loss (Wang et al., 2021, "Addressing Class Imbalance in Federated Learning"): rare classes
weigh more in the cross-entropy.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmuscle_lib.fedloge.methods.fedavg import FedAvg
from fedmuscle_lib.fedloge.methods.method import Visit


class Proportions(nn.Module):
    """Share of each class among the samples of a round's participants, (c,); 0 before the first
    mean.
    """

    classes: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("classes", torch.zeros(classes))


class RatioLoss(FedAvg):
    """FedAvg whose loss of a sample of class c is (alpha + beta R_c) times its cross-entropy; R_c
    compares class c with the others.

    In the paper the server has balanced auxiliary data and infers R_c from how far a class's data
    moves the head's weights, against the mean of the other classes' data; nobody reveals counts.
    Our server has no data, so ours differs: participants send the shares of their classes with
    their weights, and R_c is the mean share of the other classes divided by that of c, in the last
    round's mean. A class that none of them had counts as the rarest that they had. The first round
    has weights of 1, as the authors' code has.

    In FedLoGe's authors' version all weights stay 1, and the logarithm is of a softmax that can be
    0, so that their runs collapse; ours is taken of logits.
    """

    name, label = "ratio_loss", "Ratio loss"

    class Options(FedAvg.Options):
        alpha: float = Field(1.0, ge=0, description="Weight of every class. The authors' code.")
        beta: float = Field(0.1, ge=0, description="Weight of the ratio. The authors' code.")

    def shared(self) -> nn.ModuleDict:
        modules = super().shared()
        modules["proportions"] = Proportions(self.problem.classes)
        return modules

    def train(self, visit: Visit) -> float:
        proportions: Any = visit.shared["proportions"]
        counts = visit.data.counts
        proportions.classes.copy_(counts / counts.sum())  # what this client adds to the mean
        return super().train(visit)

    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(
            visit.shared["head"](visit.shared["backbone"](x)), y, reduction="none"
        )
        return (self.weights(visit.received["proportions.classes"])[y] * losses).mean()

    def weights(self, proportions: Tensor) -> Tensor:
        """alpha + beta R_c of each class, (c,), given their shares (c,); 1 where nobody knows them
        yet.
        """
        if not proportions.any():
            return torch.ones_like(proportions)
        shares = proportions.clamp(min=proportions[proportions > 0].min())
        others = (shares.sum() - shares) / (len(shares) - 1)
        return self.options.alpha + self.options.beta * others / shares
