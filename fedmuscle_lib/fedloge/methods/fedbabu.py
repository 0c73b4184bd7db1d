"""FedBABU (Oh et al., 2022): clients train the network on a random head that stays, and fine-tune a
head of their own to predict.
"""

from __future__ import annotations

import copy
from functools import cached_property

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmuscle_lib.core.randomness import batches
from fedmuscle_lib.fedloge.methods.method import Heads, Method, Visit


class FedBABU(Method):
    """The network alone is trained and averaged. The head is the others' first one and follows from
    the seed, so it does not travel.

    For an evaluation each client fine-tunes a copy of the head on the features of its training
    samples, as they are, by its recipe of local training, and discards it afterwards. The paper's
    abstract: "the head is fine-tuned for personalization during the evaluation process". The
    published code of FedBABU's authors fine-tunes network and head together, at a hundredth of the
    training's learning rate; their abstract is followed. FedLoGe's authors initialise theirs from a
    checkpoint that is not published; here it starts as all methods do.
    """

    name, label = "fedbabu", "FedBABU"

    class Options(Method.Options):
        tuned_epochs: int = Field(
            5,
            ge=1,
            le=1000,
            description=(
                "Of fine-tuning the head. The code of FedBABU's authors: personalization_epoch = 5."
            ),
        )

    @cached_property
    def random_head(self) -> nn.Linear:
        """The head that nobody trains."""
        return self.head().requires_grad_(False).to(self.problem.device)

    def shared(self) -> nn.ModuleDict:
        return nn.ModuleDict({"backbone": self.backbone()})

    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self.random_head(visit.shared["backbone"](x)), y)

    def global_heads(self, shared: nn.ModuleDict) -> Heads:
        return {"random": self.random_head}

    def personal_heads(self, visit: Visit) -> Heads:
        recipe, head = visit.recipe, copy.deepcopy(self.random_head).requires_grad_()
        if not len(visit.data):
            return {"fine-tuned": head}
        h = visit.data.features(visit.shared["backbone"])
        optimiser = recipe.optimiser(head.parameters())
        address = ("fine-tuning", self.problem.seed, visit.data.client, visit.round)
        with torch.enable_grad():
            for epoch in range(self.options.tuned_epochs):
                for rows in batches(len(h), recipe.batch_size, *address, epoch):
                    optimiser.zero_grad()
                    cross_entropy(head(h[rows]), visit.data.samples.targets[rows]).backward()
                    optimiser.step()
        return {"fine-tuned": head}
