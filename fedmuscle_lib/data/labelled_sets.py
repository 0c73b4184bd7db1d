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

import math
import os
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedmuscle_lib.core.errors import DataError, line_of, remark, shown, unreadable
from fedmuscle_lib.core.files import MOST_BYTES, opened, parse_any, read_bytes
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.layout import refuse_unfinished
from fedmuscle_lib.data.samples import MOSTLY, Samples, share_in

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_DIGITS = 18  # of a label
FOLDER = "FedLT"  # below the data directory; data_prep.io.writers writes it


@dataclass(frozen=True)
class Images(ABC):
    """Images and their labels.

    Attributes:
        path: the file that they are from.
        classes: the classes' names; a label is a place in it.
        image_size: side in pixels that images are resized to, without keeping their aspect ratio;
            None leaves them as they are.
        labels: (n,) int64.
    """

    path: Path
    classes: tuple[str, ...]
    image_size: int | None
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def samples(self, rows: Sequence[int] | np.ndarray) -> Samples:
        """Return the images of these rows, (rows, 3, h, w) uint8, and their labels, (rows,) int64,
        in the order of ``rows``.

        Raises:
            DataError: naming the file, and the line of a list; an image is missing or can't be
                read.
        """
        chosen = np.asarray(rows, np.int64)
        return Samples(self._load(chosen), torch.from_numpy(self.labels[chosen]), self.classes)

    @abstractmethod
    def _load(self, rows: np.ndarray) -> Tensor: ...

    @abstractmethod
    def share_in(self, others: Images) -> float:
        """Return the share of the images that are also among others: in arrays of the same pixels,
        in lists of the same name.
        """


class LabelledSet(NamedTuple):
    """A set of images."""

    train: Images
    test: Images


def read(data_dir: Path, name: str, image_size: int | None = None) -> LabelledSet:
    """Read a set's names and labels, and check all that can be checked before an image of a list is
    opened.

    If most test images are also training images, a warning names both files.

    Raises:
        DataError: naming the file, and the line of a list; something is missing, damaged or not
            what the layout says.
    """
    folder = data_dir / FOLDER / name
    if Path(name).name != name or not folder.is_dir():
        there = ", ".join(sorted(path.name for path in (data_dir / FOLDER).glob("*/"))) or "none"
        raise DataError(
            f"{folder}: no such set; `python -m data_prep` makes them, and there are: {there}"
        )
    refuse_unfinished(folder)
    classes = _classes(folder / "classes.json")
    train, test = (_split(folder, split, classes, image_size) for split in ("train", "test"))
    if (absent := np.flatnonzero(np.bincount(train.labels, minlength=len(classes)) == 0)).size:
        name = shown(classes[absent[0]])
        raise DataError(
            f"{train.path}: no image has the label {absent[0]}, {name} of classes.json; every class"
            " needs a training image"
        )
    if test.share_in(train) > MOSTLY:
        remark(
            "most images of %s are also in %s: models are tested on what they learn from",
            test.path,
            train.path,
        )
    return LabelledSet(train, test)


def _classes(path: Path) -> tuple[str, ...]:
    names = parse_any(read_bytes(path), str(path))
    if (
        not isinstance(names, list)
        or len(names) < 2
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise DataError(f"{path}: not a list of the names of two classes or more")
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise DataError(
            f"{path}: {times} classes are called {shown(name)}; every class needs a name of its own"
        )
    return tuple(names)


def _split(folder: Path, split: str, classes: tuple[str, ...], image_size: int | None) -> Images:
    listed = folder / f"{split}.txt"
    if listed.exists():
        return _read_list(listed, classes, image_size)
    return _read_arrays(folder / f"{split}.npz", classes, image_size)


@dataclass(frozen=True)
class _Stored(Images):
    images: np.ndarray  # (n, h, w, 3) uint8

    def _load(self, rows: np.ndarray) -> Tensor:
        images = torch.from_numpy(np.ascontiguousarray(self.images[rows].transpose(0, 3, 1, 2)))
        return (
            images if self.image_size is None else Pixels(self.image_size).resize(images, self.path)
        )

    def share_in(self, others: Images) -> float:
        return (
            share_in(torch.tensor(self.images), torch.tensor(others.images))
            if isinstance(others, _Stored)
            else 0.0
        )


def _read_arrays(path: Path, classes: tuple[str, ...], image_size: int | None) -> Images:
    with (
        opened(path) as file,
        unreadable(f"{path}: lacks readable arrays `images` and `labels`"),
        zipfile.ZipFile(file) as packed,
    ):
        images, labels = _array(packed, "images.npy"), _array(packed, "labels.npy")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or not images.size:
        raise DataError(f"{path}: images are {images.dtype} {images.shape}, not uint8 (n, h, w, 3)")
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise DataError(
            f"{path}: labels are {labels.dtype} {labels.shape}, not integers for {len(images)}"
            " images"
        )
    if labels.min() < 0 or labels.max() >= len(classes):
        raise DataError(
            f"{path}: labels from {labels.min()} to {labels.max()}; classes.json has names for 0 to"
            f" {len(classes) - 1}"
        )
    return _Stored(path, classes, image_size, labels.astype(np.int64), images)


def _array(packed: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of an npz file. The size that its header promises is compared with what is there
    before there is memory for it.

    Raises:
        ValueError, and what zipfile and zlib raise: there is no such array, or it is of objects.
    """
    size = packed.getinfo(name).file_size
    with packed.open(name) as content:
        shape, fortran, dtype = _HEADERS[np.lib.format.read_magic(content)](content)
        wanted = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0 or not wanted <= size <= MOST_BYTES:
            raise ValueError(f"{name}: {dtype} {shape} in {size:,} bytes")
        found = content.read(wanted)
    if len(found) < wanted:
        raise ValueError(f"{name}: {len(found):,} bytes of {wanted:,}")
    flat = np.frombuffer(found, dtype) if wanted else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


@dataclass(frozen=True)
class _Listed(Images):
    names: tuple[str, ...]  # relative to images/

    def _load(self, rows: np.ndarray) -> Tensor:
        assert self.image_size  # checked before the list was read
        paths = [self.path.parent / "images" / self.names[row] for row in rows]
        for row, path in zip(rows, paths, strict=True):
            if not os.path.isfile(path):  # pathlib's raises for a name that is too long
                raise DataError(f"{self.path}: line {row + 1}: no such image: {line_of(str(path))}")
        return Pixels(self.image_size).load(paths)

    def share_in(self, others: Images) -> float:
        known = set(others.names) if isinstance(others, _Listed) else set()
        return sum(name in known for name in self.names) / len(self)


def _read_list(path: Path, classes: tuple[str, ...], image_size: int | None) -> Images:
    if image_size is None:
        raise DataError(
            f"{path}: the images of a list differ in size: say what size to give them (image_size)"
        )
    try:
        lines = read_bytes(path).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error})") from None
    names, labels = [], np.empty(len(lines), np.int64)
    for row, line in enumerate(lines):
        name, _, label = line.removesuffix("\r").rpartition(" ")
        if not name or name != name.strip() or not (label.isascii() and label.isdecimal()):
            raise DataError(f'{path}: line {row + 1}: {shown(line)} is not "path label"')
        if name.startswith("/") or "\\" in name or ".." in name.split("/"):
            raise DataError(f"{path}: line {row + 1}: {shown(name)} leaves the folder of images")
        if len(label) > _DIGITS or int(label) >= len(classes):
            told = (
                f"label {line_of(label, _DIGITS)}; classes.json has names for 0 to"
                f" {len(classes) - 1}"
            )
            raise DataError(f"{path}: line {row + 1}: {told}")
        names.append(name)
        labels[row] = int(label)
    return _Listed(path, classes, image_size, labels, tuple(names))
