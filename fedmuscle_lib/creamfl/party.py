"""A party: networks for one or two modalities, public pairs, and training. Server and clients are
parties.

Letters: ``b`` batch, ``d`` dimension, ``n`` public pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.core.randomness import batches
from fedmuscle_lib.core.training import FlopMeter, Loss, State, check_finite, put_weights
from fedmuscle_lib.models import FrozenStates

CLIP = 2.0  # largest norm of a gradient with Adam; the authors' code
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-5  # of SGD; likewise
AT_ONCE = 256  # samples that are embedded at once, where no step follows
Embeddings = Mapping[str, Tensor]  # of public pairs by modality, (b, d) or (n, d)
Schedule = Callable[[int], float]  # the share of a learning rate in a round, from 0
PublicLoss = Callable[
    [Embeddings, Tensor, int], Tensor
]  # of a batch's embeddings, its rows, and its position in the pass


def cosine(rounds: int) -> Schedule:
    """Half a cosine over ``rounds``."""
    return lambda round: (1 + math.cos(math.pi * round / rounds)) / 2


def drops(at: Sequence[int]) -> Schedule:
    """A tenth from each of these rounds on."""
    return lambda round: 0.1 ** sum(round >= drop for drop in at)


@dataclass(frozen=True)
class Recipe:
    """How a party trains.

    Attributes:
        optimiser: "adam" (without weight decay, gradients clipped) or "sgd" (with momentum).
        lr: before any schedule.
        schedule: of the learning rate.
        batch_size, public_batch: samples in a step on its own data and on public pairs.
    """

    optimiser: Literal["adam", "sgd"]
    lr: float
    batch_size: int
    public_batch: int
    schedule: Schedule = lambda round: 1.0

    def made(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if self.optimiser == "adam":
            return torch.optim.Adam(parameters, lr=self.lr, fused=True)
        return torch.optim.SGD(parameters, lr=self.lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


class Party:
    """Networks that share a space, and what trains them.

    Args:
        name: for errors, such as "client 3".
        models: a network for each modality (:mod:`fedmuscle_lib.creamfl.networks`); parties share
            the weights that nobody trains.
        head: what its own loss has beside them.
        public: the public pairs, by modality, as the networks read them; n rows each.
        states: the frozen states of the run's samples, which its parties share.
        recipe: of training.
        address: prefix of every draw's address.

    Attributes:
        meter: floating-point operations so far.
        trained: parameters that it trains.
    """

    def __init__(
        self,
        name: str,
        models: Mapping[str, Any],
        head: nn.Module,
        public: Mapping[str, Tensor],
        states: FrozenStates,
        recipe: Recipe,
        address: tuple[object, ...],
    ) -> None:
        self.name, self.models, self.head = name, models, head
        self.public, self.recipe, self.address = public, recipe, address
        self.meter, self._states = FlopMeter(), states
        self._modules = nn.ModuleList([*models.values(), head])
        self._trained = [p for p in self._modules.parameters() if p.requires_grad]
        self.trained = sum(p.numel() for p in self._trained)
        self._optimiser = recipe.made(self._trained)
        self._epochs = 0
        self._embedded: dict[str, Tensor] | None = None
        # whether the embeddings that the weights give were computed, here or before a break
        self._counted = False

    def begin_round(self, round: int) -> None:
        """Set the learning rate to that of ``round`` (from 0)."""
        for group in self._optimiser.param_groups:
            group["lr"] = self.recipe.lr * self.recipe.schedule(round)
        self._before = self.meter.total

    @property
    def flops(self) -> int:
        """Floating-point operations of the round so far."""
        return self.meter.total - self._before

    def reading(self, modality: str, inputs: Tensor, rows: Tensor) -> Loss:
        """Read ``inputs[rows]``, computing and counting what is frozen, and return what embeds them
        within a step: () -> (b, d).
        """
        model = self.models[modality]
        kept = self._states.of(model, inputs)
        self.meter.done += kept.bill()
        self.meter.total += kept.flops * len(rows)
        return partial(model.represent, kept.take(rows))

    def over_public(self, loss: PublicLoss, what: str, *address: object) -> float:
        """One pass of steps over the public pairs in an order drawn by the address; returns the
        mean loss.

        Its steps have the optimiser of all others, as in the authors' code. Adam's moments then are
        mostly those of the party's own loss: a far smaller loss takes far smaller steps, and a pass
        of few steps goes on as the last ones went.

        Args:
            what: the loss by name.

        Raises:
            Diverged: a loss is not finite; the message names the party.
        """
        first = next(iter(self.public.values()))

        def step(position: int, rows: Tensor) -> Tensor:
            reads = {m: self.reading(m, inputs, rows) for m, inputs in self.public.items()}
            return self._step(
                (what, len(rows)),
                lambda: loss(
                    {m: read() for m, read in reads.items()}, rows.to(first.device), position
                ),
            )

        order = batches(len(first), self.recipe.public_batch, *address)
        return self._mean([step(*each) for each in enumerate(order)], f"{what} on public pairs")

    def over_own(self, rows: Tensor, loss: Callable[[Tensor], Loss]) -> float:
        """One pass over own samples; returns the mean loss.

        Args:
            rows: of these samples, (m,).
            loss: of a batch of them, read before the step that it is computed in.

        Raises:
            Diverged: a loss is not finite; the message names the party.
        """
        parts = batches(
            len(rows), self.recipe.batch_size, "local order", *self.address, self._epochs
        )
        self._epochs += 1
        return self._mean(
            [self._step(("local", len(part)), loss(rows[part])) for part in parts], "local loss"
        )

    def _step(self, key: tuple, loss: Loss) -> Tensor:
        for module in self._modules:
            if not module.training:
                module.train()
        self._embedded, self._counted = None, False

        def once() -> Tensor:
            self._optimiser.zero_grad(set_to_none=True)
            value = loss()
            value.backward()
            if self.recipe.optimiser == "adam":
                nn.utils.clip_grad_norm_(self._trained, CLIP)
            self._optimiser.step()
            return value.detach()

        return self.meter.run(key, once)

    def _mean(self, losses: list[Tensor], what: str) -> float:
        mean = float(torch.stack(losses).mean())
        if not math.isfinite(mean):
            raise Diverged(
                f"{self.name}: the {what} is not finite; is a temperature too small, or a learning"
                " rate too large?"
            )
        return mean

    def represent(self) -> dict[str, Tensor]:
        """Embeddings (n, d) of the public pairs by modality, detached.

        They are computed once for each state of the weights.
        """
        if self._embedded is None:
            with self.meter.paused() if self._counted else nullcontext():
                self._embedded = {m: self.embed(m, inputs) for m, inputs in self.public.items()}
            self._counted = True
        return self._embedded

    @torch.no_grad()
    def embed(self, modality: str, inputs: Tensor) -> Tensor:
        """Embeddings of inputs, (m, d), in evaluation mode."""
        self.models[modality].eval()
        parts = torch.arange(len(inputs)).split(AT_ONCE)
        return torch.cat(
            [
                self.meter.run(("embed", modality, len(rows)), self.reading(modality, inputs, rows))
                for rows in parts
            ]
        )

    def check_weights(self) -> None:
        """Raise ``Diverged`` if training left a weight that is not finite, as the last step can
        whose own loss was finite.
        """
        for modality, model in self.models.items():
            check_finite(f"{self.name}, {modality}", model.trainable_state())

    def state(self) -> State:
        """Everything that training changed, as tensors and numbers; what :meth:`restore` takes."""
        return {
            "models": {
                modality: model.trainable_state() for modality, model in self.models.items()
            },
            "head": dict(self.head.state_dict()),
            "optimiser": self._optimiser.state_dict(),
            "epochs": self._epochs,
            "counted": self._counted,
            "flops": (self.meter.total, self.meter.done),
            "per_step": [
                (list(key), flops) for key, flops in self.meter.per_step.items()
            ],  # a GRU's depend on the first batch's texts
        }

    def restore(self, state: State) -> None:
        """Continue as if training had never stopped.

        Raises:
            ValueError: naming the party; the state is not of its models.
        """
        for modality, model in self.models.items():
            put_weights(self.name, model, model.trainable_state(), state["models"][modality])
        put_weights(self.name, self.head, self.head.state_dict(), state["head"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._epochs, self._counted, self._embedded = state["epochs"], state["counted"], None
        self.meter.total, self.meter.done = state["flops"]
        self.meter.per_step = {tuple(key): flops for key, flops in state["per_step"]}
