"""One user. It owns its data and model; fit, represent, align and evaluate are what Algorithm 1 asks of it.

Nothing leaves a client but what it makes of public data, representations or predictions, which is what the server's ledger counts; its
local data and its weights never do.
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
from fedmuscle_lib.objectives import hard_label_loss
from fedmuscle_lib.randomness import batches
from fedmuscle_lib.setups import User
from fedmuscle_lib.tasks import Task
from fedmuscle_lib.views import View

REFERENCE_BATCH = 256  # public samples at once, where no step follows


LocalLoss = Callable[[UserModel, Samples], Tensor]
OutputLoss = Callable[[Tensor], Tensor]  # of the head's outputs for a batch


class Reply(Protocol):
    """What a client is aligned by, such as the server's answer (see ``fedmuscle_lib.muscle.wire``)."""

    def loss(self, anchor: Tensor) -> Tensor: ...


@dataclass
class FlopMeter:
    """Floating-point operations by torch's counter, measured once a kind and shape of step and multiplied from then on.

    It counts matrix products and convolutions, and on a CPU not those inside fused attention (3 to 4 % of mini's models').
    """

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
        classes: ids of its classes, in the order of the outputs; users with the same task and classes share a label space.
        train: D^n.
        evaluation: held-out samples for the metric.
        public: the shared public set, as its model reads it: (n, 3, h, w) uint8 pictures, or (n, l) token ids of their captions.
        batch_size: B, for local and public batches alike.
        lr, weight_decay: of AdamW. Local training and alignment have an optimiser each, since their gradients differ in scale.
        address: prefix of every draw's address, such as the seed.
    """

    def __init__(
        self,
        user: User,
        task: Task,
        model: UserModel,
        classes: tuple[int, ...],
        train: Samples,
        evaluation: Samples,
        public: Tensor,
        *,
        batch_size: int,
        lr: float,
        weight_decay: float,
        address: tuple[object, ...],
    ) -> None:
        self.user, self.task, self.model, self.classes = user, task, model, classes
        self.train, self.evaluation, self.public = train, evaluation, public
        self.batch_size, self.address = batch_size, (*address, user.number)
        self.meter = FlopMeter()
        self._adamw = {"lr": lr, "weight_decay": weight_decay, "fused": True}
        self._new_optimisers()
        self._epochs = 0
        self._pending: Tensor | None = None

    def _new_optimisers(self) -> None:
        self._local = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], **self._adamw)
        self._alignment = torch.optim.AdamW(self.model.representation_parameters(), **self._adamw)

    def freeze_representation(self) -> None:
        """Train the head alone from here on (the control ``head_only``)."""
        for parameter in self.model.representation_parameters():
            parameter.requires_grad_(False)

    def restart(self, weights: dict[str, Tensor]) -> None:
        """Begin training anew from ``weights``, by name; both optimisers forget what they have seen."""
        self._load(weights)
        self._new_optimisers()

    def _load(self, weights: dict[str, Tensor]) -> None:
        ours = self.model.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, value in weights.items():
                ours[name].copy_(value)

    # --- local data ----------------------------------------------------------------------------------------------------------

    def fit(self, epochs: int, loss: LocalLoss | None = None) -> float:
        """LocalUpdate of Algorithm 1: ``epochs`` passes over D^n; returns the mean loss of the last pass (0 for none).

        Args:
            loss: by default the task's, which is L^n of the paper.
        """
        self.model.train()
        losses: list[float] = []
        for _ in range(epochs):
            parts = batches(len(self.train), self.batch_size, "local order", *self.address, self._epochs)
            losses = [self.meter.run(("fit", len(rows)), lambda rows=rows: self.fit_batch(rows, loss)).item() for rows in parts]
            self._epochs += 1
            if not all(map(math.isfinite, losses)):
                raise ValueError(f"user {self.user.number}: the local loss is not finite in epoch {self._epochs}; is lr too large?")
        return sum(losses) / max(1, len(losses))

    def fit_batch(self, rows: Tensor, loss: LocalLoss | None = None) -> Tensor:
        """One step on the samples ``rows`` of D^n; returns the loss."""
        return self._step(self._local, (loss or self._supervised)(self.model, self.train.take(rows)))

    def _supervised(self, model: UserModel, part: Samples) -> Tensor:
        return self.task.loss(model(part.inputs), part.targets)

    @staticmethod
    def _step(optimiser: torch.optim.Optimizer, loss: Tensor) -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return loss.detach()

    # --- public data ---------------------------------------------------------------------------------------------------------

    def represent(self, rows: Tensor, view: View | None = None) -> Tensor:
        """Z^n for a public batch, (b, d), detached. The pass that made it is kept, so that :meth:`align` needs no second one.

        Args:
            rows: of the public set.
            view: what the pictures are augmented by; there may be more of them afterwards.

        Raises:
            ValueError: a view of what is no picture.
        """
        self.model.train()
        inputs = self._seen(rows, view)
        self._pending = self.meter.run(("represent", len(inputs)), lambda: self.model.represent(inputs))
        return self._pending.detach()

    def _seen(self, rows: Tensor, view: View | None) -> Tensor:
        if view and self.public.ndim != 4:
            raise ValueError(f"user {self.user.number} reads texts, of which there are no augmented views")
        return view(self.public[rows]) if view else self.public[rows]

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
        return self._step(self._alignment, reply.loss(anchor))

    def fit_public(self, rows: Tensor, loss: OutputLoss, view: View | None = None) -> float:
        """One step of all of theta^n by a loss of the head's outputs for a public batch; returns its value.

        It is a loss of labels, as the local one is, and shares the local optimiser.
        """
        self.model.train()
        inputs = self._seen(rows, view)
        step = lambda: self._step(self._local, loss(self.model(inputs)))  # noqa: E731
        return self.meter.run(("fit public", len(inputs)), step).item()

    def fit_labels(self, labels: Tensor, weights: Tensor | None, *address: object) -> list[float]:
        """An epoch over the public samples that somebody labelled; returns the loss of each batch, none if fewer than two samples are.

        Args:
            labels: (n, k), outcomes of each decision (see ``Classification``), or -1.
            weights: (k, c), as ``objectives.hard_label_loss`` takes them.
            address: of the order.
        """
        labels, weights = (x if x is None else x.to(self.public.device) for x in (labels, weights))
        labelled = (labels >= 0).any(1).nonzero().flatten()
        if len(labelled) < 2:
            return []
        losses = []
        for part in batches(len(labelled), self.batch_size, "labelled order", *self.address, *address):
            rows = labelled[part]
            known = labels[rows]
            losses.append(self.fit_public(rows, lambda outputs, known=known: hard_label_loss(self.task.decisions(outputs), known, weights)))
        return losses

    @torch.no_grad()
    def predict(self, rows: Tensor, view: View | None = None) -> Tensor:
        """The head's outputs for public pictures, (b, classes)."""
        self.model.eval()
        parts = self._seen(rows, view).split(REFERENCE_BATCH)
        return torch.cat([self.meter.run(("predict", len(part)), lambda part=part: self.model(part)) for part in parts])

    @torch.no_grad()
    def predict_all(self) -> Tensor:
        """The head's outputs for the whole public set, (n, classes)."""
        return self.predict(torch.arange(len(self.public)))

    @torch.no_grad()
    def represent_all(self) -> Tensor:
        """Representations of the whole public set, (n, d), without a step to follow."""
        self.model.eval()
        parts = self.public.split(REFERENCE_BATCH)
        return torch.cat([self.meter.run(("reference", len(part)), lambda part=part: self.model.represent(part)) for part in parts])

    # --- measuring, and going on ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def evaluate(self) -> float:
        """The task's metric on the evaluation samples."""
        self.model.eval()
        size = self.task.evaluation_batch
        parts = zip(self.evaluation.inputs.split(size), self.evaluation.targets.split(size), strict=True)
        return self.task.score(sum(self.task.count(self.model(inputs), targets) for inputs, targets in parts))

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
        self._load(state["model"])
        self._local.load_state_dict(state["local"])
        self._alignment.load_state_dict(state["alignment"])
        self._epochs, self.meter.total = state["epochs"], state["flops"]
