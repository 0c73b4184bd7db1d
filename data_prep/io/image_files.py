"""Images of an archive: decoded, so that a damaged one is found here and not in an experiment, and scaled down."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from data_prep.io.entry import SourceError
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import put
from fedmuscle_lib.data.images import decode


def decoded(content: bytes, name: str, mode: str = "RGB") -> Image.Image:
    """Return an image in Pillow's ``mode``; in its own if that is empty.

    Raises:
        SourceError: ``name`` is no readable image.
    """
    try:
        return decode(content, mode)
    except DataError as error:
        raise SourceError(f"{name}: {error}") from None


def square(content: bytes, name: str, size: int) -> np.ndarray:
    """Return an RGB image resized to a square, (size, size, 3) uint8; its aspect ratio is not kept.

    Raises:
        SourceError: ``name`` is no readable image.
    """
    return np.asarray(decoded(content, name).resize((size, size), Image.Resampling.BICUBIC))


def indices(content: bytes, name: str) -> np.ndarray:
    """Return the indices of a palette image, (h, w) uint8.

    Raises:
        SourceError: ``name`` is no palette image.
    """
    image = decoded(content, name, "")
    if image.mode not in {"P", "L"}:
        raise SourceError(f"{name}: an image with a palette is expected, this one is {image.mode}")
    return np.asarray(image)


def keep(content: bytes, name: str, folders: Iterable[Path], size: int | None = None) -> tuple[str, tuple[int, int]]:
    """Write an image to each of the folders; return its file name there, and its width and height.

    Args:
        name: its plain file name; an image that is scaled down becomes a lossless ``.png``.
        size: its longest side in pixels at most; None writes the bytes as they are.

    Raises:
        SourceError: ``name`` is no readable image.
    """
    image = decoded(content, name)
    if size is not None and max(image.size) > size:
        width, height = (max(1, round(side * (size / max(image.size)))) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        image.save(small := io.BytesIO(), "PNG", compress_level=1)
        content, name = small.getvalue(), PurePosixPath(name).stem + ".png"
    for folder in folders:
        put(folder / name, content)
    return name, image.size
