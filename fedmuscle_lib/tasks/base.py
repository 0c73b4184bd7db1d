"""What every task says about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor


@dataclass(frozen=True)
class Task(ABC):
    """A kind of supervision.

    Attributes:
        name: the paper's abbreviation (Section 6.1).
        folder: where its users' files lie below ``data_dir``.
        metric: name of the metric in the paper's tables.
        lower_is_better: whether an improvement is a smaller metric.
        head: the kind of prediction head (Appendix H).
        evaluation_batch: how many samples are evaluated at once, which outputs of many numbers a sample bound.
    """

    name: str
    folder: str
    metric: ClassVar[str]
    lower_is_better: ClassVar[bool] = False
    head: ClassVar[Literal["two layers", "linear", "decoder", "language model"]] = "two layers"
    evaluation_batch: ClassVar[int] = 256

    def n_outputs(self, classes: tuple[int, ...]) -> int:
        """Width of the head's output for a user with these classes."""
        return len(classes)

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The local loss L^n, a scalar mean over the batch."""

    @abstractmethod
    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What the metric is made of, float64: counts of a batch, which add up over the evaluation set."""

    @abstractmethod
    def score(self, counts: Tensor) -> float:
        """The metric from the counts of the whole evaluation set; in per cent, unless its name says otherwise."""

    @abstractmethod
    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """The metric of an answer that looks at no input, made from the training targets, on the evaluation targets."""


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
