"""Kinds of clients: which modalities each reads, the private data of all its clients, and their own
loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from fedmuscle_lib.core.training import Loss
from fedmuscle_lib.core.versions import Versioned
from fedmuscle_lib.creamfl.losses import ClassHead, PairHead
from fedmuscle_lib.creamfl.party import Party, Recipe, drops
from fedmuscle_lib.data.captioned import Captioned
from fedmuscle_lib.data.encodings import Pixels, Tokens
from fedmuscle_lib.data.partition import balanced_partition, shards
from fedmuscle_lib.tasks import (
    ImageClassification,
    SingleLabelClassification,
    TextClassification,
)

Encodings = Mapping[str, Pixels | Tokens]  # how the networks read each modality
Sets = Mapping[str, Captioned]  # the run's captioned sets by name
LEAST = 10  # samples that every client with labels has
SHARDS = 10  # of a client with pairs, code


class Kind(Versioned, ABC):
    """One kind, with the data that its clients divide.

    Args:
        settings: of the run.
        encodings: how the clients' networks read each of the kind's modalities, "images", "texts"
            or both.
        sets: the run's captioned sets by name.

    Attributes:
        name: for settings.
        recipe: how its clients train.
        head: makes what a client's own loss has beside its networks.
        version: of what this class computes (see ``fedmuscle_lib.core.versions``).

    Raises:
        DataError: data are missing or damaged; the message names the file.
    """

    name: ClassVar[str]
    recipe: Recipe
    head: Callable[[], nn.Module]

    @abstractmethod
    def __init__(self, settings: Any, encodings: Encodings, sets: Sets) -> None: ...

    @classmethod
    def folder(cls, settings: Any) -> str:
        """What the kind reads below ``data_dir``."""
        return getattr(settings, f"{cls.name}_folder")

    @abstractmethod
    def shares(self, clients: int) -> Sequence[np.ndarray]:
        """Return each client's rows of the data; raises ValueError if there are too few."""

    @abstractmethod
    def loss(self, party: Party, rows: Tensor) -> Loss:
        """Read a batch of the data and return its loss, to be computed within a step."""


class Labelled(Kind):
    """A kind with one modality and labels, which clients divide by Dirichlet.

    Attributes:
        classes: how many.
        task: reads the pool, "train/client_0.pkl" below :meth:`folder`.
    """

    classes: ClassVar[int]
    task: ClassVar[type[SingleLabelClassification]]

    def __init__(self, settings: Any, encodings: Encodings, sets: Sets) -> None:
        s = self._settings = settings
        ((self._modality, encoding),) = encodings.items()
        self.recipe = Recipe(
            s.labelled_optimiser, s.labelled_lr, s.labelled_batch, s.batch_size, drops(s.drops)
        )
        self.head = partial(ClassHead, s.dim, self.classes)
        task = self.task(self.name, folder=self.folder(s), n_classes=self.classes)
        samples, _ = task.read(s.data_dir, 0, "train", encoding)
        self.samples = samples.to(s.device)

    def shares(self, clients: int) -> Sequence[np.ndarray]:
        s = self._settings
        labels = self.samples.targets.cpu().numpy()
        return balanced_partition(labels, clients, s.alpha, LEAST, "partition", s.seed, self.name)

    def loss(self, party: Party, rows: Tensor) -> Loss:
        read = party.reading(self._modality, self.samples.inputs, rows)
        labels = self.samples.targets[rows]
        return lambda: party.head(read(), labels)


class Images(Labelled):
    """Clients with labelled images. Section 6.2: "CIFAR-100"."""

    name, classes, task = "images", 100, ImageClassification


class Texts(Labelled):
    """Clients with labelled texts. Section 6.2: "AG News"."""

    name, classes, task = "texts", 4, TextClassification

    @classmethod
    def folder(cls, settings: Any) -> str:
        return "TC/ag_news"


class Pairs(Kind):
    """Clients with image-text pairs: the paper's fifteen with Flickr30k.

    A sample is a caption with its image. Clients divide neighbouring captions, as in the code; the
    paper says by Dirichlet.
    """

    name = "pairs"

    def __init__(self, settings: Any, encodings: Encodings, sets: Sets) -> None:
        self._seed, self.head, own = settings.seed, PairHead, sets["pairs"]
        self.recipe = Recipe("adam", settings.pairs_lr, settings.batch_size, settings.batch_size)
        self.inputs = {m: own.encoded(each).to(settings.device) for m, each in encodings.items()}
        self.image_of = own.image_of.to(settings.device)

    def shares(self, clients: int) -> Sequence[np.ndarray]:
        return shards(len(self.image_of), clients, SHARDS, "shards", self._seed)

    def loss(self, party: Party, rows: Tensor) -> Loss:
        images = party.reading("images", self.inputs["images"], self.image_of[rows])
        texts = party.reading("texts", self.inputs["texts"], rows)
        return lambda: party.head(images(), texts())


KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Images, Texts, Pairs)}


def folders(settings: Any) -> list[str]:
    """What a run reads below ``data_dir``, sorted: public pairs, test set, and what each kind of
    its clients has.
    """
    own = {KINDS[name].folder(settings) for name in settings.kinds}
    return sorted({settings.public_folder, settings.test_folder} | own)
