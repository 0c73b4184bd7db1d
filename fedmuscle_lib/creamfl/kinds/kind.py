"""A kind of client: which modalities it reads, the private data of all its clients, and their own
loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from fedmuscle_lib.core.registry import Registered
from fedmuscle_lib.core.versions import Versioned
from fedmuscle_lib.creamfl.losses import ClassHead
from fedmuscle_lib.creamfl.party import Party, Recipe, drops
from fedmuscle_lib.data.captioned import Captioned
from fedmuscle_lib.data.encodings import Pixels, Tokens
from fedmuscle_lib.data.partition import balanced_partition
from fedmuscle_lib.tasks import SingleLabelClassification

LEAST = 10  # samples that every client with labels has


class Kind(Registered, Versioned, ABC, family="kind of client"):
    """One kind, with the data that its clients divide. Subclasses that set ``name`` register
    themselves.

    Args:
        settings: of the run.
        encodings: how the clients' networks read each modality.
        sets: the run's captioned sets by name.

    Attributes:
        name: for settings.
        modalities: "images", "texts" or both.
        version: of what this class computes (see ``fedmuscle_lib.core.versions``).

    Raises:
        DataError: data are missing or damaged; the message names the file.
    """

    modalities: ClassVar[tuple[str, ...]]

    @abstractmethod
    def __init__(
        self, settings: Any, encodings: Mapping[str, Pixels | Tokens], sets: Mapping[str, Captioned]
    ) -> None: ...

    @classmethod
    def folders(cls, settings: Any) -> tuple[str, ...]:
        """Return what the kind reads below ``data_dir``: by default what the setting
        ``<name>_folder`` says.
        """
        return (getattr(settings, f"{cls.name}_folder"),)

    @abstractmethod
    def shares(self, clients: int) -> Sequence[np.ndarray]:
        """Return each client's rows of the data.

        Raises:
            ValueError: there are too few.
        """

    @abstractmethod
    def recipe(self) -> Recipe:
        """How its clients train."""

    @abstractmethod
    def head(self) -> nn.Module:
        """Make what a client's own loss has beside its networks."""

    @abstractmethod
    def loss(self, party: Party, rows: Tensor) -> Callable[[], Tensor]:
        """Read a batch of the data and return its loss, to be computed within a step."""


class Labelled(Kind):
    """A kind with one modality and labels, which clients divide by Dirichlet.

    Attributes:
        classes: how many.
        task: reads the pool, "train/client_0.pkl" below :meth:`folders`.
    """

    classes: ClassVar[int]
    task: ClassVar[type[SingleLabelClassification]]

    def __init__(
        self, settings: Any, encodings: Mapping[str, Pixels | Tokens], sets: Mapping[str, Captioned]
    ) -> None:
        self._settings, (self._modality,) = settings, self.modalities
        (folder,) = self.folders(settings)
        samples, _ = self.task(self.name, folder=folder, n_classes=self.classes).read(
            settings.data_dir, 0, "train", encodings[self._modality]
        )
        self.samples = samples.to(settings.device)

    def shares(self, clients: int) -> Sequence[np.ndarray]:
        s = self._settings
        labels = self.samples.targets.cpu().numpy()
        return balanced_partition(labels, clients, s.alpha, LEAST, "partition", s.seed, self.name)

    def recipe(self) -> Recipe:
        s = self._settings
        return Recipe(
            s.labelled_optimiser, s.labelled_lr, s.labelled_batch, s.batch_size, drops(s.drops)
        )

    def head(self) -> nn.Module:
        return ClassHead(self._settings.dim, self.classes)

    def loss(self, party: Party, rows: Tensor) -> Callable[[], Tensor]:
        read = party.reading(self._modality, self.samples.inputs, rows)
        labels = self.samples.targets[rows]
        return lambda: party.head(read(), labels)
