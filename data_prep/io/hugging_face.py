"""A Hugging Face data set, or images in a folder a class, as a user's file: ``write_client``.

The package ``datasets`` is not a requirement: what is given may be a ``datasets.Dataset`` or any
list of rows with named columns. Only a name is looked up on the hub, and needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from data_prep.io.entry import SourceError
from data_prep.io.writers import write_pickle, write_texts
from fedmuscle_lib.core.files import user_path
from fedmuscle_lib.data.client_files import text_fault
from fedmuscle_lib.data.images import as_rgb, decode


class Rows(Protocol):
    """The used part of a ``datasets.Dataset``: its rows, each a mapping of columns to values."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Mapping[str, Any]: ...


def class_folders(folder: str | Path) -> list[dict[str, Any]]:
    """Rows for :func:`write_client` of images that lie in a folder a class: "image", "label" and
    "file". Classes are numbered from 0 in the order of their folders' names.

    Raises:
        OSError: the folder can't be read.
    """
    classes = sorted(path for path in user_path(folder, "folder").iterdir() if path.is_dir())
    return [
        {"image": file.read_bytes(), "label": label, "file": file}
        for label, own in enumerate(classes)
        for file in sorted(own.iterdir())
    ]


def write_client(
    path: str | Path,
    dataset: Rows | str,
    *,
    classes: int,
    image: str | None = None,
    text: str | None = None,
    label: str = "label",
    size: int | None = None,
    split: str = "train",
) -> int:
    """Write a user's file for classification, of images or of texts, and return how many samples it
    has.

    Args:
        path: ``<data_dir>/<task's folder>/<split>/client_<i>.pkl``, such as
            ``data/IC/CIFAR10/train/client_0.pkl``.
        dataset: rows, or a name on the hub, such as "uoft-cs/cifar10".
        classes: how many the task has; labels are 0 to ``classes`` - 1.
        image: the column of images of 8 bits a channel: of PIL, arrays (h, w) or (h, w, 3) of
            uint8, or encoded bytes. Each is turned as its EXIF orientation says, and white where it
            is transparent.
        text: the column of texts, instead.
        label: the column of labels.
        size: side in pixels that images are resized to; needed where they differ in size. One that
            is not square is squeezed: crop it before.
        split: of a name on the hub.

    Raises:
        SourceError: ``datasets`` is not installed, a column is missing, or a row can't be used; the
            message names the row, or its file.
        ValueError: both or neither of ``image`` and ``text`` are given.
        OSError: the file can't be written.
    """
    path = user_path(path, "path")
    if (image is None) == (text is None):
        raise ValueError(
            "write_client: name the column of images (image=) or that of texts (text=)"
        )
    rows = _from_hub(dataset, split) if isinstance(dataset, str) else dataset
    if not len(rows):
        raise SourceError(f"{path}: the data set has no rows")
    column = image or text or ""
    if missing := {column, label} - rows[0].keys():
        raise SourceError(
            f"{path}: the data set has no column {min(missing)!r}; it has"
            f" {', '.join(sorted(rows[0].keys()))}"
        )
    found: list[Any] = []
    labels = []
    for number in range(len(rows)):
        row = rows[number]
        try:
            labels.append(_label(row[label], classes))
            found.append(_image(row[column], size) if image else _text(row[column]))
        except KeyError as error:
            raise SourceError(f"{path}: row {number}: has no column {error}") from None
        except (ValueError, TypeError, OSError) as error:
            where = row.get("file", f"row {number}")
            raise SourceError(f"{path}: {where}: {error}") from None
    if text:
        write_texts(path, found, labels)
        return len(found)
    if other := next(
        (number for number, pixels in enumerate(found) if pixels.shape != found[0].shape), None
    ):
        sides = " and ".join(
            f"{pixels.shape[1]} x {pixels.shape[0]}" for pixels in (found[0], found[other])
        )
        raise SourceError(f"{path}: row {other}: images of {sides} px; size= makes them equal")
    write_pickle(path, np.stack(found), np.array(labels))
    return len(found)


def _from_hub(name: str, split: str) -> Rows:
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise SourceError(
            f"{name}: to fetch it from the hub needs the package datasets: pip install datasets"
        ) from None
    return datasets.load_dataset(name, split=split)


def _label(value: Any, classes: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"label {value!r} is no whole number")
    if not 0 <= value < classes:
        raise ValueError(f"label {value} is none of 0 to {classes - 1}")
    return int(value)


def _text(value: Any) -> str:
    if fault := text_fault(value):
        raise ValueError(f"the text {fault}")
    return value


def _image(value: Any, size: int | None) -> np.ndarray:
    """(h, w, 3) uint8."""
    if isinstance(value, dict):  # a column that is not decoded
        value = value.get("bytes")
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint8:
            raise ValueError(
                f"an array of {value.dtype}; images have 8 bits a channel, uint8: convert it"
            )
        value = Image.fromarray(value)
    if not isinstance(value, bytes | Image.Image):
        raise ValueError(f"a {type(value).__name__} is no image")
    rgb = decode(value) if isinstance(value, bytes) else as_rgb(value)
    return np.asarray(rgb if size is None else rgb.resize((size, size), Image.Resampling.BICUBIC))
