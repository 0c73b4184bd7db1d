"""Clients with labelled images: the paper's ten with CIFAR-100."""

from __future__ import annotations

from fedmuscle_lib.creamfl.kinds.kind import Labelled
from fedmuscle_lib.tasks import ImageClassification


class Images(Labelled):
    """Of 100 classes."""

    name, modalities, classes, task = "images", ("images",), 100, ImageClassification
