"""Labelled sets, which long-tailed federations divide: all labels are read at once, images by their
rows.

A set is a folder of the data directory, ``FedLT/<name>``, as ``python -m data_prep`` writes it:

    classes.json                  a list of the classes' names, no two alike; a label is a place
                                  in it, and each is a training image's
    train.npz, test.npz           arrays ``images``, uint8 (n, h, w, 3), and ``labels``, (n,)
    train.txt, test.txt, images/  instead, for a set too large for an array: a line "path label"
                                  for each image below ``images``

Images of a list are opened when they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedmuscle_lib.core.errors import DataError, shown, unreadable
from fedmuscle_lib.core.files import parse_json, read_bytes
from fedmuscle_lib.data.client_files import check_images, checked_labels
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.layout import refuse_unfinished
from fedmuscle_lib.data.samples import Samples

FOLDER = "FedLT"  # below the data directory; data_prep.io.writers writes it


@dataclass(frozen=True)
class Images:
    """Images and their labels.

    Attributes:
        path: the file that they are from.
        classes: the classes' names; a label is a place in it.
        image_size: side in pixels that images are resized to, without keeping their aspect ratio;
            None leaves them as they are.
        labels: (n,) int64.
        content: the images, (n, h, w, 3) uint8, or a list's names of files below ``images``.
    """

    path: Path
    classes: tuple[str, ...]
    image_size: int | None
    labels: np.ndarray
    content: np.ndarray | tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def samples(self, rows: Sequence[int] | np.ndarray) -> Samples:
        """Return the images of these rows, (rows, 3, h, w) uint8, and their labels, (rows,) int64,
        in the order of ``rows``.

        Raises:
            DataError: naming the file; an image is missing or can't be read.
        """
        chosen = np.asarray(rows, np.int64)
        return Samples(self._load(chosen), torch.from_numpy(self.labels[chosen]), self.classes)

    def _load(self, rows: np.ndarray) -> Tensor:
        if isinstance(self.content, tuple):
            assert self.image_size  # checked before the list was read
            folder = self.path.parent / "images"
            return Pixels(self.image_size).load([folder / self.content[row] for row in rows])
        images = torch.from_numpy(np.ascontiguousarray(self.content[rows].transpose(0, 3, 1, 2)))
        return images if self.image_size is None else Pixels(self.image_size).resize(images)


def read(data_dir: Path, name: str, image_size: int | None = None) -> tuple[Images, Images]:
    """Training and test images of a set, checked as far as can be before an image of a list is
    opened.

    Raises:
        DataError: naming the file, and the line of a list; something is missing, damaged or not
            what the layout says.
    """
    folder = data_dir / FOLDER / name
    if not folder.is_dir():
        there = ", ".join(sorted(path.name for path in (data_dir / FOLDER).glob("*/"))) or "none"
        raise DataError(
            f"{folder}: no such set; `python -m data_prep` makes them, and there are: {there}"
        )
    refuse_unfinished(folder)
    path = folder / "classes.json"
    classes = tuple(parse_json(read_bytes(path), str(path), list))
    if len(set(classes)) < len(classes):
        raise DataError(f"{path}: two classes have the same name")
    train, test = (_split(folder, split, classes, image_size) for split in ("train", "test"))
    if absent := set(range(len(classes))) - set(train.labels.tolist()):
        label = min(absent)
        raise DataError(
            f"{train.path}: no image has the label {label}, {shown(classes[label])} of"
            " classes.json; every class needs a training image"
        )
    return train, test


def _split(folder: Path, split: str, classes: tuple[str, ...], image_size: int | None) -> Images:
    listed, path = folder / f"{split}.txt", folder / f"{split}.npz"
    if listed.exists():
        return _read_list(listed, classes, image_size)
    with (
        unreadable(f"{path}: lacks readable arrays `images` and `labels`"),
        np.load(path) as packed,
    ):
        images, labels = packed["images"], packed["labels"]
    check_images(path, images)
    return Images(
        path, classes, image_size, checked_labels(path, labels, len(images), len(classes)), images
    )


def _read_list(path: Path, classes: tuple[str, ...], image_size: int | None) -> Images:
    if image_size is None:
        raise DataError(
            f"{path}: the images of a list differ in size: say what size to give them (image_size)"
        )
    names, labels = [], []
    for row, line in enumerate(path.read_text(encoding="utf8").splitlines()):
        name, _, label = line.rpartition(" ")
        if not name or not label.isdecimal() or int(label) >= len(classes):
            raise DataError(
                f'{path}: line {row + 1}: {shown(line)} is not "path label" with a label from 0 to'
                f" {len(classes) - 1}, the classes of classes.json"
            )
        names.append(name)
        labels.append(int(label))
    return Images(path, classes, image_size, np.array(labels, np.int64), tuple(names))
