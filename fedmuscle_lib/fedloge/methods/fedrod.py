"""Fed-RoD (Chen and Chao, 2022): a generic head trained as if classes were balanced, and a personal
head that adds what is the client's.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy

from fedmuscle_lib.fedloge.methods.fedavg import FedAvg
from fedmuscle_lib.fedloge.methods.method import Heads, Visit, added, balanced_softmax


class FedRoD(FedAvg):
    """Network and generic head g learn by the balanced softmax loss with the client's class counts,
    and are averaged.

    The personal head p never leaves its client. It learns on features without a gradient, by
    cross-entropy of g + p where g has none either; a client predicts by g + p. This is the paper's
    linear p; its other kind, made by a shared hypernetwork, is not here. Its authors publish no
    code.

    What FedLoGe's authors call fedrod_aggre has no balanced loss, averages g class by class, and
    pairs clients with others' numbers of samples; none of this is the paper's, nor here.
    """

    name, label = "fedrod", "Fed-RoD"
    own_heads = True

    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        h = visit.shared["backbone"](x)
        generic = visit.shared["head"](h)
        personal = generic.detach() + visit.private["head"](h.detach())
        return balanced_softmax(generic, y, visit.data.counts) + cross_entropy(personal, y)

    def personal_heads(self, visit: Visit) -> Heads:
        return {
            "generic + personal": added(visit.shared["head"], visit.private["head"]),
            "generic": visit.shared["head"],
        }
