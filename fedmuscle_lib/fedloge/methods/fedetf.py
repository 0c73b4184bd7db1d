"""FedETF (Li et al., 2023, "No Fear of Classifier Biases"): all clients learn features for one
simplex ETF that is never trained.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from fedmuscle_lib.core.randomness import generator
from fedmuscle_lib.fedloge.etf import simplex_etf
from fedmuscle_lib.fedloge.methods.method import Heads, Method, Visit, balanced_softmax


class Projection(nn.Linear):
    """Features (b, d) -> unit vectors (b, c), and the temperature that their cosines are multiplied
    by.
    """

    def __init__(self, dim: int, classes: int, temperature: float) -> None:
        super().__init__(dim, classes)
        self.temperature = nn.Parameter(torch.tensor(temperature))

    def forward(self, features: Tensor) -> Tensor:
        return normalize(super().forward(features), dim=1)


class FedETF(Method):
    """Logits are cosines of a projection of the features with an ETF of c vectors in c dimensions,
    times a temperature that is learnt.

    From the authors' code: the linear projection to c dimensions and its norm, the learnt
    temperature, and the balanced softmax loss with the client's class counts. Network, projection
    and temperature are averaged; the ETF follows from the seed. The fine-tuning by which the paper
    personalises, of ETF and projection in turn, is not here: a client's own model is the global
    one.

    FedLoGe's authors have another FedETF: batch norm before the norm, a regression of the cosines
    on 1, and classes weighted by their counts in the batch, for ten classes whatever the data set.
    None of this is the paper's code, nor here.
    """

    name, label = "fedetf", "FedETF"

    class Options(Method.Options):
        temperature: float = Field(
            1.0, gt=0, description="Before the first round; learnt from then on. The authors' code."
        )

    @cached_property
    def etf(self) -> Tensor:
        """The classifier's rows, (c, c)."""
        classes = self.problem.classes
        return simplex_etf(classes, classes, generator("FedETF", self.problem.seed)).to(
            self.problem.device
        )

    def shared(self) -> nn.ModuleDict:
        make = lambda: Projection(self.dim, self.problem.classes, self.options.temperature)  # noqa: E731
        return nn.ModuleDict(
            {"backbone": self.backbone(), "projection": self.initial(make, "projection")}
        )

    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        logits = self.global_heads(visit.shared)["etf"](visit.shared["backbone"](x))
        return balanced_softmax(logits, y, visit.data.counts)

    def global_heads(self, shared: nn.ModuleDict) -> Heads:
        projection: Any = shared["projection"]
        return {
            "etf": lambda features: projection.temperature * linear(projection(features), self.etf)
        }
