"""Pickled samples: a dict of ``data`` (images) or ``texts``, and ``labels``, each checked before a
task (``tasks/``) uses it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedmuscle_lib.core.errors import DataError, prefixed
from fedmuscle_lib.data.pickles import load_pickle


def text_fault(text: object) -> str:
    """Return why a value is no text that is read, such as "is empty"; empty if it is one."""
    if not isinstance(text, str):
        return f"is a {type(text).__name__}, no text"
    return "" if text.strip() else "is empty"


class Pickled:
    """A pickled dict that has at least these fields.

    Attributes:
        content: the dict.

    Raises:
        DataError: naming the file; it can't be read or lacks a field. Every method raises it
            likewise for what it finds wrong.
    """

    def __init__(self, path: Path, *fields: str) -> None:
        self.path = path
        self.content: dict[str, Any] = load_pickle(path)
        if missing := set(fields) - self.content.keys():
            raise DataError(f"{path}: lacks {sorted(missing)}")

    def images(self) -> Tensor:
        """``data``, an array (n, h, w, 3) of uint8 whose images have pixels, as (n, 3, h, w)."""
        images = self._array("data")
        if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8 or not images.size:
            raise DataError(
                f"{self.path}: data is {images.dtype} {images.shape}, not uint8 (n, h, w, 3)"
            )
        return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))

    def labels(self, n: int, n_classes: int, task: str) -> Tensor:
        """``labels`` of ``n`` samples, (n,) int64, from 0 to ``n_classes`` - 1; errors name the
        ``task``.
        """
        labels = self._array("labels")
        if labels.shape != (n,) or labels.dtype.kind not in "iu":
            raise DataError(f"{self.path}: {labels.dtype} labels {labels.shape} for {n} samples")
        if labels.min() < 0 or labels.max() >= n_classes:
            raise DataError(
                f"{self.path}: {task} has labels 0..{n_classes - 1}, found"
                f" {labels.min()}..{labels.max()}"
            )
        return torch.from_numpy(labels.astype(np.int64))

    def texts(self) -> list[str]:
        """``texts``, a list of strings none of which is empty."""
        given = self.content["texts"]
        if not isinstance(given, list | tuple):
            raise DataError(f"{self.path}: texts are a {type(given).__name__}, not a list")
        if not given:
            raise DataError(f"{self.path}: holds no text")
        for row, text in enumerate(given):
            if fault := text_fault(text):
                raise DataError(f"{self.path}: row {row} {fault}")
        return list(given)

    def _array(self, field: str) -> np.ndarray:
        with prefixed(f"{self.path}: {field}", ValueError):  # its parts differ in shape
            return np.asarray(self.content[field])
