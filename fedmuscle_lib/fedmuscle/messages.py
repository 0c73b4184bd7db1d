"""What users and server exchange, and what an algorithm tells a client to do, as values.

A message holds no model, client or server, so it can travel: a client behind a network computes what a client in this process does.
The protocols are losses and rules that an algorithm defines and a client applies to what it alone has.
Letters: ``b`` batch, ``d`` dimension, ``n`` public samples, ``k`` decisions a sample and ``c`` outcomes a decision
(see ``fedmuscle_lib.tasks.task.Classification``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedmuscle_lib.fedmuscle.objectives import divergence, hard_label_loss

if TYPE_CHECKING:  # a server loads no augmentations
    from fedmuscle_lib.fedmuscle.augmentation import View

# --- between users and server ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Address of a public batch: communication round, CL epoch and position, all from 0, and its size.

    As text it counts from 1, as tables and lines of progress do.

    Raises:
        ValueError: one of them is no whole number, or negative.
    """

    round: int
    epoch: int
    position: int
    size: int

    def __post_init__(self) -> None:
        if any(type(number) is not int or number < 0 for number in (self.round, self.epoch, self.position, self.size)):
            raise ValueError("the address of a public batch is of whole numbers from 0")

    def __str__(self) -> str:
        return f"round {self.round + 1}, CL epoch {self.epoch + 1}, batch {self.position + 1}"


@dataclass(frozen=True)
class Numbers:
    """Which numbers a message may hold: from ``low`` to ``high``, both included, with a fractional part or ``whole``."""

    low: float = -inf
    high: float = inf
    whole: bool = False

    @property
    def types(self) -> tuple[torch.dtype, ...]:
        """Types of tensors that they can come in."""
        return _WHOLE if self.whole else _FRACTIONAL

    def __str__(self) -> str:
        kind = "whole numbers" if self.whole else "floating-point numbers"
        return kind if self == Numbers(whole=self.whole) else f"{kind} from {self.low:g} to {self.high:g}"


_WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64)
_FRACTIONAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# A model's outputs. None that learns has larger ones; a few larger ones would overflow where users' outputs are added up.
OUTPUTS = Numbers(-1e6, 1e6)


@dataclass(frozen=True)
class LabelSpace:
    """A user's task, by name, and the ids of its classes in the order of its outputs.

    Users with equal label spaces can exchange predictions.
    """

    task: str
    classes: tuple[int, ...]


class Reply(Protocol):
    """Aligns a client by a loss of the representations (b, d) that it last computed."""

    def loss(self, anchor: Tensor) -> Tensor: ...


class CountedReply(Reply, Protocol):
    """A reply that the server sends, with its size in bytes (see ``fedmuscle_lib.muscle.wire``)."""

    @property
    def nbytes(self) -> int: ...


# --- from an algorithm to a client -------------------------------------------------------------------------------------------


class Labels(Protocol):
    """Labels of a public batch, as a loss of the client's decisions: log-probabilities (b, k, c)."""

    def loss(self, log_p: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """Probabilities (b, k, c), a weight for each decision (b, k), 1 by default, and a weight for the loss."""

    probabilities: Tensor
    mask: Tensor | None = None
    weight: float = 1.0

    def loss(self, log_p: Tensor) -> Tensor:
        return self.weight * divergence(log_p, self.probabilities, self.mask)


@dataclass(frozen=True, eq=False)
class HardLabels:
    """Outcomes (b, k), -1 for none, and a weight for each outcome of each decision (k, c), 1 by default."""

    outcomes: Tensor
    weights: Tensor | None = None

    def loss(self, log_p: Tensor) -> Tensor:
        return hard_label_loss(log_p, self.outcomes, self.weights)


class Teacher(Protocol):
    """Labels public samples from the client's own prediction."""

    def labels(self, rows: Tensor, log_p: Tensor) -> Labels | None:
        """Return the labels, or None where there is nothing to learn.

        Args:
            rows: of the public set.
            log_p: (b, k, c), the client's decisions for these rows.
        """


class Labelling(Protocol):
    """Labels the whole public set from the client's own predictions."""

    def labels(self, log_p: Tensor, certainty: Tensor) -> Tensor:
        """Return outcomes (n, k), -1 for none.

        Args:
            log_p: (n, k, c), the client's decisions.
            certainty: (n,), how certain the prediction of each sample is, by the client's task.
        """


@runtime_checkable
class Contrast(Protocol):
    """Adds a term on the features of each batch of local data to the task's loss."""

    def value(self, levels: list[Tensor], same: Tensor, different: Tensor) -> Tensor:
        """Return the term for a batch of local data, its weight included.

        Args:
            levels: features from shallow to deep, each (b, width).
            same: (b, b) mask of samples with the same label, themselves included.
            different: (b, b) mask of samples that have nothing in common.
        """


@dataclass(frozen=True, eq=False)
class Aligned:
    """Adds a reply's loss of the representations of public samples, the same ``rows`` at every local step, to the task's loss."""

    rows: Tensor
    reply: Reply


@dataclass(frozen=True, eq=False)
class Taught:
    """Adds the loss of a teacher's labels for the next ``size`` public samples to the task's loss at every local step.

    The teacher labels the view ``predicted`` and the client learns the view ``trained``; it extends their addresses by its own and the
    step. Samples come in shuffled passes over the public set.
    """

    teacher: Teacher
    size: int
    predicted: View
    trained: View


LocalTerm = Contrast | Aligned | Taught
