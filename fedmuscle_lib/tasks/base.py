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
