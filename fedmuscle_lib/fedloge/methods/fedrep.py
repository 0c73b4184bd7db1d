"""FedRep (Collins et al., 2021): each client fits its head to the network that it received, then
the network to its head.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field
from torch import nn

from fedmuscle_lib.fedloge.methods.fedper import FedPer
from fedmuscle_lib.fedloge.methods.method import Visit


class FedRep(FedPer):
    """FedPer's shared and private parts. The network then has the epochs that other methods have,
    the paper's one or five.

    Batch norm's running statistics follow the client's data from the first epoch on, the head's
    included. FedLoGe's authors report FedRep without a script or a log of it.
    """

    name, label = "fedrep", "FedRep"

    class Options(FedPer.Options):
        head_epochs: int = Field(
            10,
            ge=1,
            description=(
                'Of the head alone. The paper: "ten local epochs of SGD with momentum to train the'
                ' local head, followed by one or five epochs for the representation".'
            ),
        )

    def phases(self, visit: Visit) -> Iterator[tuple[int, list[nn.Parameter]]]:
        yield self.options.head_epochs, list(visit.private.parameters())
        yield visit.recipe.epochs, list(visit.shared.parameters())
