"""A federated method: what all share, what each keeps, a loss, and how the models predict. Most
methods are little more.

Letters: ``b`` batch, ``n`` samples, ``d`` dimension of the features, ``c`` classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.core.randomness import seeded
from fedmuscle_lib.core.registry import Registered
from fedmuscle_lib.core.versions import Versioned
from fedmuscle_lib.fedloge.networks import NETWORKS, Network
from fedmuscle_lib.fedloge.preprocessing import LocalData

Head = Callable[[Tensor], Tensor]  # features (n, d) -> logits (n, c)
Heads = dict[str, Head]  # ways in which a model predicts, by name
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Problem:
    """The problem that a method's modules are made for.

    Attributes:
        network: the backbone, by its name in ``NETWORKS``.
        classes: c.
        seed: prefix of the address of all initial weights. Methods with one seed start from the
            same backbone and head.
        device: a torch device.
    """

    network: str
    classes: int
    seed: int
    device: str = "cpu"


@dataclass(frozen=True)
class Recipe:
    """Local training by SGD, whose momentum begins anew at every visit.

    The values are those of the authors' commands.
    """

    lr: float = 0.03
    momentum: float = 0.5
    weight_decay: float = 0.0
    batch_size: int = 8
    epochs: int = 5

    def optimiser(self, parameters: Iterable[nn.Parameter]) -> torch.optim.SGD:
        """Make the SGD of a visit."""
        return torch.optim.SGD(
            parameters,
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            fused=True,
        )


@dataclass(frozen=True, eq=False)
class Visit:
    """One client in one round, as a method sees it.

    Attributes:
        shared: the shared modules, as they were received and then as the client trains them.
        private: the client's own modules, which stay.
        received: the shared tensors by name, as the server sent them; nobody changes them.
        data: the client's samples.
        recipe: of local training.
        round: from 0; in an evaluation, the number of finished rounds.
    """

    shared: nn.ModuleDict
    private: nn.ModuleDict
    received: Mapping[str, Tensor]
    data: LocalData
    recipe: Recipe
    round: int


class Method(Registered, Versioned, ABC, family="method"):
    """One row of a table. Subclasses that set ``name`` register themselves.

    A client trains parameters of ``shared`` and ``private`` by one loss. Where a paper has several
    losses with an optimiser each, their sum does the same: SGD treats every parameter on its own,
    and ``detach`` says which loss reaches which.

    Attributes:
        name: for settings and files.
        label: for legends and tables.
        own_heads: whether each client keeps a linear head of its own.
        version: of what this class computes (see ``fedmuscle_lib.core.versions``).
        realignments: of its heads, if it has any: whose model ("global" or "personal"), two ways in
            which it predicts, of which the second has a realigned head in the first one's place,
            and whose way of predicting that is.
    """

    label: ClassVar[str]
    own_heads: ClassVar[bool] = False
    realignments: ClassVar[tuple[tuple[str, str, str, str], ...]] = ()

    def __init__(self, problem: Problem, options: Mapping[str, Any] = {}) -> None:
        self.problem = problem
        self.options: Any = self.Options(**options)  # of the class's own kind

    # --- what there is

    def shared(self) -> nn.ModuleDict:
        """Make what all clients share as it is before the first round: the global model, with its
        network as "backbone". By default, network and head.
        """
        return nn.ModuleDict({"backbone": self.backbone(), "head": self.head()})

    def private(self, client: int) -> nn.ModuleDict:
        """Make what client ``client`` keeps to itself, as it is before its first round."""
        return nn.ModuleDict({"head": self.head(client)} if self.own_heads else {})

    def initial(self, build: Callable[[], M], *address: object) -> M:
        """Build a module with initial weights drawn by address."""
        with seeded("initial weights", self.problem.seed, *address):
            return build()

    def backbone(self) -> Network:
        """Make the network with its initial weights, the same for all methods."""
        return self.initial(NETWORKS[self.problem.network], "backbone")

    @cached_property
    def dim(self) -> int:
        """d."""
        with torch.device("meta"):
            return NETWORKS[self.problem.network]().dim

    def head(self, *owner: object) -> nn.Linear:
        """Make a linear head, (d) -> (c); without an owner, the first shared one, the same for all
        methods.
        """
        return self.initial(partial(nn.Linear, self.dim, self.problem.classes), "head", *owner)

    # --- training

    @abstractmethod
    def loss(self, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch: network inputs (b, 3, h, w) and labels (b,)."""

    def phases(self, visit: Visit) -> Iterator[tuple[int, list[nn.Parameter]]]:
        """Yield what a visit trains, phase by phase: a number of epochs and the parameters.

        By default, all of them at once.
        """
        yield visit.recipe.epochs, [*visit.shared.parameters(), *visit.private.parameters()]

    def train(self, visit: Visit) -> float:
        """Train the visit's modules in place; return the mean loss of the last epoch (0 for none).

        Raises:
            Diverged: the loss is not finite; the message names the client.
        """
        recipe, mean, epoch = visit.recipe, 0.0, 0
        for passes, trained in self.phases(visit):
            for modules in (visit.shared, visit.private):
                modules.requires_grad_(False)
            for parameter in trained:
                parameter.requires_grad_(True)
            optimiser = recipe.optimiser(trained)
            for _ in range(passes):
                batches = visit.data.batches(visit.round, epoch, recipe.batch_size)
                losses = [self._step(optimiser, visit, x, y) for x, y in batches]
                mean = float(torch.stack(losses).mean())
                epoch += 1
                if not math.isfinite(mean):
                    raise Diverged(
                        f"client {visit.data.client}: the local loss is not finite in round"
                        f" {visit.round + 1}, epoch {epoch}; is lr = {recipe.lr} too large?"
                    )
        return mean

    def _step(self, optimiser: torch.optim.Optimizer, visit: Visit, x: Tensor, y: Tensor) -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss = self.loss(visit, x, y)
        loss.backward()
        optimiser.step()
        return loss.detach()

    # --- predicting

    @abstractmethod
    def global_heads(self, shared: nn.ModuleDict) -> Heads:
        """Return the ways in which the global model predicts from its features, by name; none if it
        has no head.
        """

    def personal_heads(self, visit: Visit) -> Heads:
        """Return the ways in which a client's own model predicts from its features, by name; by
        default, the global model's.
        """
        return self.global_heads(visit.shared)

    def personal_backbone(self, visit: Visit) -> nn.Module:
        """Return the network of the client's own model; by default, the global model's."""
        return visit.shared["backbone"]


def affine(weight: Tensor, bias: Tensor) -> Head:
    """A head of this weight (c, d) and bias (c,)."""
    return partial(linear, weight=weight, bias=bias)


def added(first: Head, second: Head) -> Head:
    """A head whose logits are the sum of two heads' logits."""
    return lambda features: first(features) + second(features)


def balanced_softmax(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Mean cross-entropy of logits (b, c) to which the logarithms of class counts (c,) are added;
    classes without samples take no part.

    Source:
        Ren et al. (2020), "Balanced Meta-Softmax", equation (3).
    """
    return cross_entropy(logits + counts.to(logits.dtype).log(), labels)


def proximity(module: nn.Module, anchor: Mapping[str, Tensor]) -> Tensor:
    """Half the squared distance of a module's parameters from tensors of the same names; (mu / 2)
    ||w - w_t||^2 is mu times this.
    """
    return (
        sum(
            ((p - anchor[name]).square().sum() for name, p in module.named_parameters()),
            torch.tensor(0.0),
        )
        / 2
    )
