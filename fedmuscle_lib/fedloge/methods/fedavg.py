"""FedAvg (McMahan et al., 2017): clients train the global model, and the server averages it."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmuscle_lib.fedloge.methods.method import Heads, Method, Visit


class FedAvg(Method):
    """Network and head are shared and trained by cross-entropy. Each client's own model is the
    global one.

    In the runs of the authors' logs every client took part, but its weight in the mean was another
    client's number of samples. Here it is its own, as in their code at f4cac52.
    """

    name, label = "fedavg", "FedAvg"

    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(visit.shared["head"](visit.shared["backbone"](x)), y)

    def global_heads(self, shared: nn.ModuleDict) -> Heads:
        return {"head": shared["head"]}
