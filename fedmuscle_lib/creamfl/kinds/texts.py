"""Clients with labelled texts: the paper's ten with AG's News."""

from __future__ import annotations

from fedmuscle_lib.creamfl.kinds.kind import Labelled
from fedmuscle_lib.tasks import TextClassification


class Texts(Labelled):
    """Of 4 classes."""

    name, modalities, classes, task = "texts", ("texts",), 4, TextClassification
