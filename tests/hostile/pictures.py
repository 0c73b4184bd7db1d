"""Pictures: of all kinds and modes that are read, turned and transparent ones, some scrambled;
headers that promise too much; no files.

A picture that is read must be what Pillow's own tools make of it: upright, and over white.
"""

from __future__ import annotations

import io
import random
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile.kind import Case, Kind, scrambled
from PIL import Image, ImageOps

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.public import read_public

SIZE = 8
_FORMS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
_MODES = {
    "PNG": ("RGB", "L", "P", "1", "RGBA", "LA"),
    "JPEG": ("RGB", "L", "CMYK"),
    "GIF": ("RGB", "L", "P", "1", "RGBA"),
    "BMP": ("RGB", "L", "P", "1"),
    "WEBP": ("RGB", "RGBA"),
}
# PostScript, for which Pillow runs a program, and kinds that are not read
_OTHER_KINDS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n",
    b"P6 1 1 255 abc",
    b"P5 1 1 255 a",
)


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG that says it has this size, of one bit a pixel, with these compressed rows."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def _case(draws: random.Random) -> Case:
    choice = draws.random()
    if choice < 0.05:
        return Case(draws.choice(("pipe", "device", "folder")), "no file")
    if choice < 0.1:
        return Case(draws.choice(_OTHER_KINDS), "a picture of another kind")
    if choice < 0.2:
        width, height = draws.choice(((13_000, 13_000), (8_200, 8_200), (1 << 30, 1), (1, 1 << 30)))
        rows = zlib.compress(bytes(height * (1 + width // 8))) if width * height < 1 << 28 else b""
        return Case(png(width, height, rows), "too many pixels")
    if choice < 0.25:
        out = io.BytesIO()
        Image.new("I;16", (8, 8), draws.randrange(1 << 16)).save(out, "PNG")
        return Case(out.getvalue(), "more than 8 bits a channel")
    content = _picture(draws)
    return Case(content if draws.random() < 0.5 else scrambled(content, draws))


def _picture(draws: random.Random) -> bytes:
    out, form = io.BytesIO(), draws.choice(_FORMS)
    sides = draws.choice(((8, 8), (1, 1), (300, 2), (33, 17)))
    image = Image.frombytes("RGBA", sides, draws.randbytes(4 * sides[0] * sides[1])).convert(
        draws.choice(_MODES[form])
    )
    told: dict[str, Any] = {}
    if form in ("JPEG", "PNG", "WEBP") and draws.random() < 0.5:
        told["exif"] = Image.Exif()
        told["exif"][0x0112] = draws.choice((*range(10), 1 << 15))
    if form in ("GIF", "PNG") and image.mode in ("L", "P") and draws.random() < 0.5:
        told["transparency"] = draws.randrange(256)
    image.save(out, form, **told)
    return out.getvalue()


def _read(folder: Path) -> None:
    found = read_public(folder / "public", 1, Pixels(SIZE))[0]
    with warnings.catch_warnings(), Image.open(folder / KIND.file) as image:
        warnings.simplefilter("ignore")
        image.load()
        try:
            upright = ImageOps.exif_transpose(image)
        except Exception:  # of EXIF data that are scrambled
            return
        rgba = (
            upright.convert("RGBA")
            if upright.has_transparency_data
            else upright.convert("RGB").convert("RGBA")
        )
    shown = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    if shown.size != (SIZE, SIZE):
        shown = shown.resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    apart = (
        (found.permute(1, 2, 0).int() - torch.from_numpy(np.array(shown)).int()).abs().max().item()
    )
    assert apart <= 2, f"the picture is not what a viewer shows, by {apart} of 255"


KIND = Kind(
    file="public/000000.png",
    prepare=lambda folder: None,
    case=_case,
    read=_read,
    refusals=(DataError,),
)
