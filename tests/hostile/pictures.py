"""Pictures: scrambled ones of all kinds that are read, headers that promise too much, and what is no file."""

from __future__ import annotations

import io
import random
import struct
import zlib

from hostile.kind import Case, Kind, scrambled
from PIL import Image

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.public import read_public

SIZE = 8
_FORMS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
# PostScript, for which Pillow runs a program, and kinds that are not read
_OTHER_KINDS = (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n", b"P6 1 1 255 abc", b"P5 1 1 255 a")


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG that says it has this size, of one bit a pixel, with these compressed rows."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


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
    out, form = io.BytesIO(), draws.choice(_FORMS)
    sides = draws.choice(((8, 8), (1, 1), (300, 2), (33, 17)))
    mode = draws.choice(("RGB", "L", "P")) if form not in ("JPEG", "WEBP") else "RGB"
    Image.frombytes("RGB", sides, draws.randbytes(3 * sides[0] * sides[1])).convert(mode).save(out, form)
    return Case(scrambled(out.getvalue(), draws))


KIND = Kind(
    file="public/000000.png",
    prepare=lambda folder: None,
    case=_case,
    read=lambda folder: read_public(folder / "public", 1, Pixels(SIZE)),
    refusals=(DataError,),
)
