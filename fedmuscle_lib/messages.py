"""What crosses between users and server, and what an algorithm tells a client to do, as values.

None of them holds a model, a client or a server, so each can travel: a client that is told something over a network computes what one
in this process does. A protocol here is a loss or a rule that the algorithm writes and the client applies to what it alone has.
Letters: ``b`` batch, ``d`` dimension, ``n`` public samples, ``k`` decisions a sample and ``c`` outcomes a decision
(see ``fedmuscle_lib.tasks.base.Classification``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedmuscle_lib.objectives import divergence, hard_label_loss

# --- between users and server ------------------------------------------------------------------------------------------------


class RefusedMessage(ValueError):
    """A client sent something else than the server asked for, such as no representation matrix; the message names the user."""


@dataclass(frozen=True)
class Batch:
    """Address of a public batch: communication round, CL epoch and position, all from 0, and its size."""

    round: int
    epoch: int
    position: int
    size: int

    def __str__(self) -> str:
        return f"round {self.round}, CL epoch {self.epoch}, batch {self.position}"


@dataclass(frozen=True)
class LabelSpace:
    """What a user's labels mean: its task, by name, and the ids of its classes in the order of its outputs.

    Users who announce the same label space can exchange predictions.
    """

    task: str
    classes: tuple[int, ...]


class Reply(Protocol):
    """Aligns a client: a loss of its representations of the batch that it last represented, (b, d)."""

    def loss(self, anchor: Tensor) -> Tensor: ...


class CountedReply(Reply, Protocol):
    """A reply that travels down, and knows its size (see ``fedmuscle_lib.muscle.wire``)."""

    @property
    def nbytes(self) -> int: ...


# --- from an algorithm to a client -------------------------------------------------------------------------------------------


class Labels(Protocol):
    """Labels of a public batch: a loss of the client's decisions, log-probabilities (b, k, c)."""

    def loss(self, log_p: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """Probabilities (b, k, c), how much each decision counts (b, k), 1 by default, and the weight of the whole loss."""

    probabilities: Tensor
    mask: Tensor | None = None
    weight: float = 1.0

    def loss(self, log_p: Tensor) -> Tensor:
        return self.weight * divergence(log_p, self.probabilities, self.mask)


@dataclass(frozen=True, eq=False)
class HardLabels:
    """Outcomes (b, k), -1 where there is none, and weights of the outcomes of each decision (k, c), 1 by default."""

    outcomes: Tensor
    weights: Tensor | None = None

    def loss(self, log_p: Tensor) -> Tensor:
        return hard_label_loss(log_p, self.outcomes, self.weights)


class Teacher(Protocol):
    """Labels a public batch by what the client itself predicts, log-probabilities (b, k, c); not at all where that would teach nothing."""

    def labels(self, log_p: Tensor) -> Labels | None: ...


class Labelling(Protocol):
    """Labels the public set by a client's own predictions."""

    def labels(self, log_p: Tensor, certainty: Tensor) -> Tensor:
        """Outcomes (n, k), -1 for none.

        Args:
            log_p: (n, k, c), the client's decisions.
            certainty: (n,), how sure its prediction of each sample is, by its task.
        """


class LocalTerm(Protocol):
    """A term of the local loss beside the task's."""

    def value(self, levels: list[Tensor], same: Tensor, different: Tensor) -> Tensor:
        """The term for a batch of local data, weighted.

        Args:
            levels: features from shallow to deep, each (b, width).
            same: (b, b) mask of samples with the same label, themselves included.
            different: (b, b) mask of samples that have nothing in common.
        """
