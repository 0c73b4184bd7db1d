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


def check_images(path: Path, images: np.ndarray) -> None:
    """Raise DataError, naming the file, unless images are uint8 (n, h, w, 3) and have pixels."""
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8 or not images.size:
        raise DataError(f"{path}: images are {images.dtype} {images.shape}, not uint8 (n, h, w, 3)")


def checked_labels(path: Path, labels: np.ndarray, n: int, n_classes: int) -> np.ndarray:
    """Return labels (n,) from 0 to ``n_classes`` - 1 as int64; raises DataError, naming the file,
    for others.
    """
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise DataError(f"{path}: {labels.dtype} labels {labels.shape} for {n} samples")
    if labels.min() < 0 or labels.max() >= n_classes:
        raise DataError(
            f"{path}: labels from {labels.min()} to {labels.max()}; 0 to {n_classes - 1} are known"
        )
    return labels.astype(np.int64)


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
        check_images(self.path, images)
        return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))

    def labels(self, n: int, n_classes: int) -> Tensor:
        """``labels`` of ``n`` samples, (n,) int64, from 0 to ``n_classes`` - 1."""
        return torch.from_numpy(checked_labels(self.path, self._array("labels"), n, n_classes))

    def texts(self) -> list[str]:
        """``texts``, a list of strings none of which is empty."""
        given = self.content["texts"]
        if not isinstance(given, list | tuple) or not given:
            raise DataError(f"{self.path}: texts are no list, or an empty one")
        for row, text in enumerate(given):
            if fault := text_fault(text):
                raise DataError(f"{self.path}: row {row} {fault}")
        return list(given)

    def _array(self, field: str) -> np.ndarray:
        with prefixed(f"{self.path}: {field}", ValueError):  # its parts differ in shape
            return np.asarray(self.content[field])
