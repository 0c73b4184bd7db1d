"""Decoding of images, of known kinds and bounded size; every reader of images uses it."""

from __future__ import annotations

import io
import warnings

from PIL import Image

from fedmuscle_lib.core.errors import DataError, line_of

MOST_PIXELS = 1 << 26  # 200 MB as RGB. Pillow refuses an image at 179 million, which take half a gigabyte and more while they are read
MOST_BYTES = 1 << 28  # of an image's file
_WIDE = ("I", "F")  # Pillow's modes of 16 and 32 bits; converting them would cut off all that is brighter than 255
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")  # of others Pillow runs programs on some, and libraries that few need on more


def decode(content: bytes, mode: str = "RGB") -> Image.Image:
    """An image in Pillow's ``mode``; in its own if that is empty. Of an image that moves, the first frame.

    Raises:
        DataError: it is none, has more than ``MOST_PIXELS``, or more than 8 bits a channel where a ``mode`` is asked for; what its header
            says is looked at before any pixel is decoded.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is large, damaged or oddly written; this function decides
            with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                width, height = image.size
                if not 0 < width * height <= MOST_PIXELS:
                    raise DataError(f"not a readable image ({width} x {height} pixels; at most {MOST_PIXELS:,} are read)")
                if mode and image.mode[0] in _WIDE:
                    raise DataError(f"an image of more than 8 bits a channel ({image.mode}); convert it to 8 bits")
                return image.convert(mode) if mode else image.copy()
    except DataError:
        raise
    except Exception as error:  # what a decoder raises depends on what is wrong
        raise DataError(f"not a readable image ({line_of(str(error)) or type(error).__name__})") from None
