"""Decoding of images, of known kinds and bounded size; every reader of images uses it.

An image is read as a viewer shows it: turned as its EXIF orientation says, and white where it is
transparent.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable

from PIL import Image, ImageOps, UnidentifiedImageError

from fedmuscle_lib.core.errors import DataError, line_of, out_of_memory

# 200 MB as RGB. Pillow refuses an image at 179 million, which take half a gigabyte and more while
# they are read
MOST_PIXELS = 1 << 26
MOST_BYTES = 1 << 28  # of an image's file
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
        DataError: it is none, has more than ``MOST_PIXELS``, or more than 8 bits a channel; what
            its header says is looked at before any pixel is decoded.
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
        DataError: it has more than ``MOST_PIXELS``, or more than 8 bits a channel.
    """
    _refuse_large(image)
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
    _refuse_large(image)
    if image.mode not in {"P", "L"}:
        raise DataError(f"an image with a palette is expected, this one is {image.mode}")
    return _upright(image.copy())


def _decoded(content: bytes, make: Callable[[Image.Image], Image.Image]) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of what is large, damaged or oddly written; this module decides
            with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                return make(image)
    except DataError:
        raise
    except UnidentifiedImageError:
        found = next(
            (f": it is {kind}" for start, kind in _OTHERS.items() if content.startswith(start)), ""
        )
        raise DataError(f"not a readable image{found} ({', '.join(_FORMATS)} are read)") from None
    except Exception as error:  # what a decoder raises depends on what is wrong
        if out_of_memory(error):
            raise
        raise DataError(
            f"not a readable image ({line_of(str(error)) or type(error).__name__})"
        ) from None


def _refuse_large(image: Image.Image) -> None:
    width, height = image.size
    if not 0 < width * height <= MOST_PIXELS:
        raise DataError(
            f"not a readable image ({width} x {height} pixels; at most {MOST_PIXELS:,} are read)"
        )


def _upright(image: Image.Image) -> Image.Image:
    """Turn an image of our own as its EXIF orientation says; return it."""
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except Exception as error:  # a viewer shows an image whose EXIF is damaged, too
        if out_of_memory(error):
            raise
    return image
