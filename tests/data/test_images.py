"""An image is read as a viewer shows it, and a file that is none is named."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.images import decode, decode_indices

UPRIGHT = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3) * 3
# as a camera stores the upright picture and says so
STORED = {
    1: UPRIGHT,
    2: UPRIGHT[:, ::-1],
    3: UPRIGHT[::-1, ::-1],
    6: np.rot90(UPRIGHT),
    8: np.rot90(UPRIGHT, -1),
}


def encoded(pixels: np.ndarray, form: str = "PNG", mode: str = "RGB", **told: object) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).convert(mode).save(out, form, **told)
    return out.getvalue()


def _turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("orientation", STORED)
def test_a_photo_is_turned_as_its_exif_says(orientation):
    content = encoded(STORED[orientation], exif=_turned(orientation))
    assert np.array_equal(np.asarray(decode(content)), UPRIGHT)


def test_a_jpeg_and_a_mask_are_turned_too():
    left_is_white = np.zeros((16, 32, 3), np.uint8)
    left_is_white[:, :16] = 255
    found = np.asarray(decode(encoded(np.rot90(left_is_white), "JPEG", exif=_turned(6))))
    assert found.shape == (16, 32, 3) and (found[:, :12] > 250).all() and (found[:, 20:] < 5).all()
    grey = UPRIGHT[..., 0]
    content = encoded(np.rot90(grey), mode="L", exif=_turned(6))
    assert np.array_equal(np.asarray(decode_indices(content)), grey)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_the_usual_formats_are_read(form):
    assert (np.asarray(decode(encoded(np.full((8, 8, 3), 255, np.uint8), form, "L"))) > 250).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_white_whatever_colour_lies_below(mode):
    """The left half is opaque and black, the right half is transparent."""
    rgba = np.zeros((2, 4, 4), np.uint8)
    rgba[:, :2, 3], rgba[:, 2:, 0] = 255, 90
    found = np.asarray(decode(encoded(rgba, mode=mode)))
    assert not found[:, :2].any() and (found[:, 2:] == 255).all()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (encoded(UPRIGHT)[:50], "not a readable image"),
        (b"II*\0" + bytes(99), "it is a TIFF file"),
        (b"\0\x05\x16\x07" + bytes(99), "it is macOS's notes on another file; delete it"),
        (encoded(np.zeros((4, 4), np.uint16), mode="I;16"), "more than 8 bits a channel"),
    ],
)
def test_what_is_no_image_is_named(tmp_path, content, why):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"^{path}: .*{why}"):
        Pixels(8).load([path])
