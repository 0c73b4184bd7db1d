"""FedPer (Arivazhagan et al., 2019): the network is averaged, and each client keeps its head."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmuscle_lib.fedloge.methods.method import Heads, Method, Visit


class FedPer(Method):
    """Network and head are trained together. The linear head is the one personalisation layer, so
    the global model has no head.

    The paper also keeps residual blocks private; how many are best, and its learning rates, are not
    verified here. FedLoGe's authors report FedPer without a script or a log of it.
    """

    name, label = "fedper", "FedPer"
    own_heads = True

    def shared(self) -> nn.ModuleDict:
        return nn.ModuleDict({"backbone": self.backbone()})

    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(visit.private["head"](visit.shared["backbone"](x)), y)

    def global_heads(self, shared: nn.ModuleDict) -> Heads:
        return {}

    def personal_heads(self, visit: Visit) -> Heads:
        return {"head": visit.private["head"]}
