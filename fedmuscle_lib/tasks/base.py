"""What every task says about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True)
class Task(ABC):
    """A kind of supervision.

    Attributes:
        name: the paper's abbreviation (Section 6.1).
        folder: where its users' files lie below ``data_dir``.
        metric: name of the metric in the paper's tables.
    """

    name: str
    folder: str
    metric: ClassVar[str]

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The local loss L^n, a scalar mean over the batch."""

    @abstractmethod
    def score(self, outputs: Tensor, targets: Tensor) -> float:
        """The metric in per cent, from the outputs for the whole evaluation set."""


@dataclass(frozen=True)
class Classification(Task):
    """A task whose outputs are classes, in the terms in which algorithms that exchange or invent labels are written.

    A sample asks for ``k`` decisions between ``c`` outcomes: one between all classes, or one a class between absent and present.
    """

    @property
    @abstractmethod
    def outcomes(self) -> int:
        """c."""

    @abstractmethod
    def decisions(self, outputs: Tensor) -> Tensor:
        """Log-probabilities (n, k, c) from the outputs (n, classes)."""

    @abstractmethod
    def outputs(self, log_p: Tensor) -> Tensor:
        """Outputs (n, classes) that have these decisions, the inverse of :meth:`decisions`: how decisions travel."""

    @abstractmethod
    def certainty(self, log_p: Tensor) -> Tensor:
        """How sure a sample's prediction is, (n,), from its decisions: what pseudo-labelling ranks samples by."""

    @abstractmethod
    def alike(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Two (b, b) masks: which samples have the same label, themselves included, and which have nothing in common."""
