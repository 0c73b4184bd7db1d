"""Decoding of images, of known formats; every reader of images uses it.

An image is read as a viewer shows it: turned as its EXIF orientation says, and white where it is
transparent.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import suppress

from PIL import Image, ImageOps

from fedmuscle_lib.core.errors import DataError, unreadable

BEHIND = (255, 255, 255)  # what shows through where an image is transparent
_WIDE = (
    "I",
    "F",
)  # Pillow's modes of 16 and 32 bits; converting them would cut off all that is brighter than 255
_FORMATS = (
    "BMP",
    "GIF",
    "JPEG",
    "PNG",
    "WEBP",
)  # of others Pillow runs programs on some, and libraries that few need on more
# how the files begin that people take for images of these formats
_OTHERS = {
    b"II*\0": "a TIFF file",
    b"MM\0*": "a TIFF file",
    b"\0\x05\x16\x07": "macOS's notes on another file; delete it",
}


def decode(content: bytes) -> Image.Image:
    """An image in RGB, as :func:`as_rgb` makes it. Of an image that moves, the first frame.

    Raises:
        DataError: it is none, or has more than 8 bits a channel.
    """
    return _decoded(content, as_rgb)


def decode_indices(content: bytes) -> Image.Image:
    """An image of one channel in its own mode, such as the indices of a palette; upright.

    Raises:
        DataError: as :func:`decode`; or it has several channels.
    """
    return _decoded(content, _indices)


def as_rgb(image: Image.Image) -> Image.Image:
    """An image in RGB: upright, and over the colour ``BEHIND`` where it is transparent.

    Raises:
        DataError: it has more than 8 bits a channel.
    """
    if image.mode[0] in _WIDE:
        raise DataError(
            f"an image of more than 8 bits a channel ({image.mode}); convert it to 8 bits"
        )
    if not image.has_transparency_data:
        return _upright(image.convert("RGB"))
    image = _upright(image.convert("RGBA"))
    shown = Image.new("RGB", image.size, BEHIND)
    shown.paste(image, mask=image.getchannel("A"))
    return shown


def _indices(image: Image.Image) -> Image.Image:
    if image.mode not in {"P", "L"}:
        raise DataError(f"an image with a palette is expected, this one is {image.mode}")
    return _upright(image.copy())


def _decoded(content: bytes, make: Callable[[Image.Image], Image.Image]) -> Image.Image:
    found = [f": it is {kind}" for start, kind in _OTHERS.items() if content.startswith(start)]
    with (
        unreadable(
            f"not a readable image{''.join(found)} ({', '.join(_FORMATS)} are read)",
            but=(DataError,),
        ),
        warnings.catch_warnings(action="ignore"),  # Pillow warns of what is large or oddly written
        Image.open(io.BytesIO(content), formats=_FORMATS) as image,
    ):
        return make(image)


def _upright(image: Image.Image) -> Image.Image:
    """Turn an image of our own as its EXIF orientation says; return it."""
    with suppress(Exception):  # a viewer shows an image whose EXIF is damaged, too
        ImageOps.exif_transpose(image, in_place=True)
    return image
