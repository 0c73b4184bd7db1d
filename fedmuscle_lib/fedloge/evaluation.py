"""The balanced test set: features computed once a backbone, and accuracies by group of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.data.samples import Samples
from fedmuscle_lib.fedloge.preprocessing import features

ALL = "all"


class TestSet:
    """The test samples.

    Args:
        samples: of all classes; clients' local tests are rows of them.
        classes: c.
        groups: classes by the name of their group, such as "head", "middle" and "tail"; each class
            is in one.
    """

    __test__ = False  # pytest collects nothing here

    def __init__(
        self,
        samples: Samples,
        classes: int,
        groups: Mapping[str, Sequence[int]],
    ) -> None:
        self.images, self.labels, self.classes = samples.inputs, samples.targets, classes
        every = torch.arange(classes, device=self.labels.device)
        self._groups = {  # whether a class is in it, (c,)
            name: torch.isin(every, self.labels.new_tensor(list(members)))
            for name, members in {ALL: range(classes), **groups}.items()
        }

    def features(self, backbone: nn.Module, rows: Tensor | slice = slice(None)) -> Tensor:
        """Features (n, d) of the test images, or of some rows of them."""
        return features(backbone, self.images[rows])

    def sizes(self, rows: Tensor | slice = slice(None)) -> dict[str, int]:
        """Return how many of the samples, or of some rows of them, are of each group, "all"
        first.
        """
        labels = self.labels[rows]
        return {name: int(members[labels].sum()) for name, members in self._groups.items()}

    def accuracies(self, logits: Tensor, rows: Tensor | slice = slice(None)) -> dict[str, float]:
        """Return the share of hits in per cent by group, "all" first; a group without samples among
        the rows is left out.

        Args:
            logits: (n, c), of these rows.
        """
        labels = self.labels[rows]
        hits = (logits.argmax(1) == labels).cpu().double()
        found = {name: hits[members[labels].cpu()] for name, members in self._groups.items()}
        return {name: 100 * float(own.mean()) for name, own in found.items() if len(own)}


def finite(whose: str, head: str, logits: Tensor) -> Tensor:
    """Return the logits (n, c) of a model's head.

    Raises:
        Diverged: they are not finite, so that what is largest of them means nothing.
    """
    if not torch.isfinite(logits).all():
        raise Diverged(
            f"{whose}: the logits of the head {head!r} are not finite; is lr or an option too"
            " large?"
        )
    return logits
