"""One user. It owns its data and model; fit, represent, align and evaluate are what Algorithm 1 asks of it.

Nothing leaves a client but representations of public data, which are what the server's ledger counts; its local data and its
weights never do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fedmuscle_lib.data import Samples
from fedmuscle_lib.models import UserModel
from fedmuscle_lib.randomness import batches
from fedmuscle_lib.setups import User
from fedmuscle_lib.tasks import Task

EVALUATION_BATCH = 256


class Reply(Protocol):
    """What a client needs of the server's answer (see ``fedmuscle_lib.muscle.wire``)."""

    def loss(self, anchor: Tensor) -> Tensor: ...


@dataclass
class FlopMeter:
    """Floating-point operations by torch's counter, measured once a kind and shape of step and multiplied from then on."""

    total: int = 0
    _per_step: dict[tuple, int] = field(default_factory=dict)

    def run(self, key: tuple, step: Callable[[], Tensor]) -> Tensor:
        known = self._per_step.get(key)
        counter = FlopCounterMode(display=False) if known is None else nullcontext()
        with counter:
            result = step()
        self._per_step.setdefault(key, counter.get_total_flops() if known is None else 0)
        self.total += self._per_step[key]
        return result


class Client:
    """A user's side of Algorithm 1.

    Args:
        user: who it is.
        task: what it learns.
        model: theta^n.
        train: D^n.
        evaluation: held-out samples for the metric.
        public: the shared public set, (n, 3, h, w) uint8.
        batch_size: B, for local and public batches alike.
        lr, weight_decay: of AdamW. Local training and alignment have an optimiser each, since their gradients differ in scale.
        address: prefix of every draw's address, such as the seed.
    """

    def __init__(
        self,
        user: User,
        task: Task,
        model: UserModel,
        train: Samples,
        evaluation: Samples,
        public: Tensor,
        *,
        batch_size: int,
        lr: float,
        weight_decay: float,
        address: tuple[object, ...],
    ) -> None:
        self.user, self.task, self.model = user, task, model
        self.train, self.evaluation, self.public = train, evaluation, public
        self.batch_size, self.address = batch_size, (*address, user.number)
        self.meter = FlopMeter()
        options = {"lr": lr, "weight_decay": weight_decay, "fused": True}
        self._local = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], **options)
        self._alignment = torch.optim.AdamW(model.representation_parameters(), **options)
        self._epochs = 0
        self._pending: Tensor | None = None

    def freeze_representation(self) -> None:
        """Train the head alone from here on (the control ``head_only``)."""
        for parameter in self.model.representation_parameters():
            parameter.requires_grad_(False)

    def fit(self, epochs: int) -> float:
        """LocalUpdate of Algorithm 1: ``epochs`` passes over D^n; returns the mean loss of the last pass (0 for none)."""
        self.model.train()
        losses: list[float] = []
        for _ in range(epochs):
            parts = batches(len(self.train), self.batch_size, "local order", *self.address, self._epochs)
            losses = [self.meter.run(("fit", len(rows)), lambda rows=rows: self.fit_batch(rows)).item() for rows in parts]
            self._epochs += 1
            if not all(map(math.isfinite, losses)):
                raise ValueError(f"user {self.user.number}: the local loss is not finite in epoch {self._epochs}; is lr too large?")
        return sum(losses) / max(1, len(losses))

    def fit_batch(self, rows: Tensor) -> Tensor:
        """One step on the samples ``rows`` of D^n; returns the loss."""
        part = self.train.take(rows)
        loss = self.task.loss(self.model(part.images), part.targets)
        self._local.zero_grad(set_to_none=True)
        loss.backward()
        self._local.step()
        return loss.detach()

    def represent(self, rows: Tensor) -> Tensor:
        """Z^n for a public batch, (b, d), detached. The pass that made it is kept, so that :meth:`align` needs no second one."""
        self.model.train()
        self._pending = self.meter.run(("represent", len(rows)), lambda: self.model.represent(self.public[rows]))
        return self._pending.detach()

    def align(self, reply: Reply) -> float:
        """Update w^n by the loss of equation (5) on the batch last represented; returns its value.

        Raises:
            RuntimeError: nothing was represented since the last alignment.
        """
        if self._pending is None:
            raise RuntimeError(f"user {self.user.number}: align() before represent()")
        anchor, self._pending = self._pending, None
        return self.meter.run(("align", len(anchor)), lambda: self._alignment_step(reply, anchor)).item()

    def _alignment_step(self, reply: Reply, anchor: Tensor) -> Tensor:
        loss = reply.loss(anchor)
        self._alignment.zero_grad(set_to_none=True)
        loss.backward()
        self._alignment.step()
        return loss.detach()

    @torch.no_grad()
    def represent_all(self) -> Tensor:
        """Representations of the whole public set, (n, d), without a step to follow."""
        self.model.eval()
        parts = self.public.split(EVALUATION_BATCH)
        return torch.cat([self.meter.run(("reference", len(part)), lambda part=part: self.model.represent(part)) for part in parts])

    @torch.no_grad()
    def evaluate(self) -> float:
        """The task's metric on the evaluation samples, in per cent."""
        self.model.eval()
        outputs = torch.cat([self.model(part) for part in self.evaluation.images.split(EVALUATION_BATCH)])
        return self.task.score(outputs, self.evaluation.targets)

    def state(self) -> dict[str, object]:
        """Everything that training changed, as tensors and numbers; what :meth:`restore` takes."""
        return {
            "model": self.model.trainable_state(),
            "local": self._local.state_dict(),
            "alignment": self._alignment.state_dict(),
            "epochs": self._epochs,
            "flops": self.meter.total,
        }

    def restore(self, state: dict) -> None:
        """Continue as if training had never stopped."""
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in state["model"].items():
                parameters[name].copy_(value)
        self._local.load_state_dict(state["local"])
        self._alignment.load_state_dict(state["alignment"])
        self._epochs, self.meter.total = state["epochs"], state["flops"]
