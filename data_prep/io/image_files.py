"""Images of an archive: decoded, so that a damaged one is found here and not in an experiment, and
scaled down.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from data_prep.io.entry import SourceError
from fedmuscle_lib.core.errors import DataError, prefixed
from fedmuscle_lib.core.files import put
from fedmuscle_lib.data.images import decode, decode_indices


def decoded(content: bytes, name: str, how: Callable[[bytes], Image.Image] = decode) -> Image.Image:
    """Return an image of an archive, as the library decodes it; raises SourceError if ``name`` is
    no readable image.
    """
    with prefixed(name, DataError, SourceError):
        return how(content)


def square(content: bytes, name: str, size: int) -> np.ndarray:
    """An RGB image as a square, (size, size, 3) uint8, whatever its aspect ratio; raises as
    :func:`decoded`.
    """
    return np.asarray(decoded(content, name).resize((size, size), Image.Resampling.BICUBIC))


def indices(content: bytes, name: str) -> np.ndarray:
    """Return the indices of a palette image, (h, w) uint8; raises SourceError if ``name`` is no
    palette image.
    """
    return np.asarray(decoded(content, name, decode_indices))


def keep(
    content: bytes,
    name: str,
    folders: Iterable[Path],
    size: int | None = None,
    recorded: tuple[int, int] | None = None,
) -> tuple[str, tuple[int, int]]:
    """Write an image to each of the folders; return its file name there, and its width and height.

    Args:
        name: its file name, without folders; an image that is scaled down becomes a lossless
            ``.png``.
        size: its longest side in pixels at most; None writes the bytes as they are.
        recorded: width and height that its record or its mask says.

    Raises:
        SourceError: ``name`` is no readable image, or of another size than recorded.
    """
    image, name = decoded(content, name), PurePosixPath(name).name
    if recorded and recorded != image.size:
        raise SourceError(
            f"{name}: an image of {image.width} x {image.height} px, recorded as {recorded[0]} x"
            f" {recorded[1]}"
        )
    if size is not None and max(image.size) > size:
        width, height = (max(1, round(side * (size / max(image.size)))) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        image.save(small := io.BytesIO(), "PNG", compress_level=1)
        content, name = small.getvalue(), PurePosixPath(name).stem + ".png"
    for folder in folders:
        put(folder / name, content)
    return name, image.size
