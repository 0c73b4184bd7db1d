"""Base of all tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor

from fedmuscle_lib.core.errors import NoFile
from fedmuscle_lib.core.versions import Versioned
from fedmuscle_lib.data.encodings import Encoding, Modality
from fedmuscle_lib.data.layout import refuse_unfinished
from fedmuscle_lib.data.samples import Samples

Head = Literal["two layers", "linear", "decoder", "language model"]


@dataclass(frozen=True)
class Task(Versioned, ABC):
    """A kind of supervision.

    Attributes:
        name: the paper's abbreviation (Section 6.1).
        folder: where its users' files lie below ``data_dir``.
        own: whether the folder is a user's own, and not one that `data_prep` writes.
        suffix: of these files.
        reads: the modality of its inputs.
        metric: name of the metric in the paper's tables.
        lower_is_better: whether an improvement is a smaller metric.
        head: the kind of prediction head (Appendix H).
        evaluation_batch: samples a forward pass of the evaluation; small for tasks with many
            outputs a sample.
        version: of what this class computes (see ``fedmuscle_lib.core.versions``).
    """

    name: str
    folder: str
    own: bool = field(default=False, kw_only=True)
    suffix: ClassVar[str] = ".pkl"
    reads: ClassVar[Modality] = "images"
    metric: ClassVar[str]
    lower_is_better: ClassVar[bool] = False
    head: ClassVar[Head] = "two layers"
    evaluation_batch: ClassVar[int] = 256

    def read(
        self,
        data_dir: Path,
        client: int,
        split: str,
        encoding: Encoding,
        images: Path | None = None,
    ) -> tuple[Samples, tuple[int, ...]]:
        """A user's samples, and its class ids in the order of the outputs (none where targets are
        no classes).

        Args:
            data_dir: root of the README's layout (``fedmuscle_lib.data.layout``).
            client: index of the user's files, ``client_<client>``.
            split: "train", "val" or "test".
            encoding: how the user's model reads its inputs.
            images: folder of the images that a COCO file names, if not below ``data_dir``.

        Raises:
            DataError: a file is missing, unfinished or damaged; the message names it, its row where
                there is one, and what is wrong.
            ValueError: the encoding is of another modality than the task.
        """
        if encoding.reads != self.reads:
            raise ValueError(
                f"{self.name} is a task on {self.reads}; a model that reads {encoding.reads} can't"
                " do it"
            )
        folder = data_dir / self.folder
        refuse_unfinished(folder)
        try:
            return self._read(
                self.file(data_dir, client, split), images or folder / "images" / split, encoding
            )
        except NoFile as error:
            how = "`python -m data_prep` makes the data sets"
            if self.own:
                how = f"{folder} needs train/, val/ and test/ with client_<i>{self.suffix} in each"
            raise NoFile(f"{error}; {how}") from None

    def file(self, data_dir: Path, client: int, split: str) -> Path:
        """Path of a user's samples."""
        return data_dir / self.folder / split / f"client_{client}{self.suffix}"

    @abstractmethod
    def _read(self, path: Path, images: Path, encoding: Any) -> tuple[Samples, tuple[int, ...]]:
        """Read the file ``path`` and the folder ``images``, by ``Pixels`` or ``Tokens`` as
        ``reads`` says; return as :meth:`read`.
        """

    def n_outputs(self, classes: tuple[int, ...]) -> int:
        """Width of the head's output for a user with these classes."""
        return len(classes)

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The local loss L^n, a scalar mean over the batch."""

    @abstractmethod
    def count(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """A batch's part of the metric. The parts are added up over the evaluation set."""

    @abstractmethod
    def score(self, counts: Tensor) -> float:
        """The metric from the sum of all counts; in per cent, unless the class says otherwise."""

    @abstractmethod
    def trivial(self, train: Tensor, evaluation: Tensor) -> float:
        """The metric of an answer that ignores its input.

        It is made from the training targets and scored on the evaluation targets.
        """


@dataclass(frozen=True)
class Classification(Task):
    """A task whose outputs are classes, in the terms in which algorithms that exchange or invent
    labels are written.

    A sample asks for ``k`` decisions between ``c`` outcomes: one between all classes, or one a
        class between absent and present.
    """

    @property
    @abstractmethod
    def outcomes(self) -> int:
        """c."""

    def labels(self, targets: Tensor) -> Tensor:
        """The outcome of each decision, (n, k), from the targets of n samples."""
        return targets.reshape(len(targets), -1).long()

    @abstractmethod
    def decisions(self, outputs: Tensor) -> Tensor:
        """Log-probabilities (n, k, c) from the outputs (n, classes)."""

    @abstractmethod
    def outputs(self, log_p: Tensor) -> Tensor:
        """Outputs (n, classes) that have these decisions, the inverse of :meth:`decisions`: how
        decisions travel.
        """

    @abstractmethod
    def certainty(self, log_p: Tensor) -> Tensor:
        """Certainty of each sample's prediction, (n,), from its decisions.

        Pseudo-labelling ranks samples by it.
        """

    @abstractmethod
    def alike(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Two (b, b) masks: which samples have the same label, themselves included, and which have
        nothing in common.
        """
