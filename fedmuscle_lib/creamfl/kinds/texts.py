"""Clients with labelled texts: the paper's ten with AG's News."""

from __future__ import annotations

from torch import Tensor

from fedmuscle_lib.creamfl.kinds.kind import Labelled
from fedmuscle_lib.tasks import TextClassification


class Texts(Labelled):
    """Of 4 classes.

    With the setting ``label_order`` a batch's texts are sorted by length, the longest first, and
    their labels are not, as in the authors' code: clients then learn how frequent labels are, and
    little else.
    """

    name, modalities, classes, task = "texts", ("texts",), 4, TextClassification

    def read_order(self, rows: Tensor) -> Tensor:
        if not self._settings.label_order:
            return rows
        lengths = (self.samples.inputs[rows] != 0).sum(1)
        return rows[lengths.argsort(descending=True, stable=True)]
