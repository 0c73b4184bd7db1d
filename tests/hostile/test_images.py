"""Pictures and texts: a file that is none, or too much of one, is refused by name before it takes
memory.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile.pictures import png
from PIL import Image

from data_prep.io.entry import SourceError
from data_prep.io.image_files import decoded, indices, keep, square
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.data.encodings import Pixels, Words
from fedmuscle_lib.data.images import MOST_PIXELS, decode
from fedmuscle_lib.data.public import read_public


@pytest.mark.parametrize(
    "size", [(13_000, 13_000), (1 << 30, 1), (8193, 8192), (1 << 31 - 1, 1 << 31 - 1)]
)
def test_a_picture_of_too_many_pixels_is_refused_before_they_are_decoded(tmp_path, size):
    """13,000 x 13,000 of one colour are 20 kB on the disk, and 1.3 GB when they are read."""
    path = tmp_path / "a.png"
    path.write_bytes(
        png(*size)
    )  # without rows: whoever decodes them says that the picture is truncated
    with pytest.raises(DataError, match="not a readable image .*pixels") as refusal:
        Pixels(8).load([path])
    assert str(refusal.value).startswith(f"{path}: ") and "\n" not in str(refusal.value)
    with pytest.raises(SourceError, match="a.png: not a readable image .*pixels"):
        decoded(path.read_bytes(), "a.png")


def test_a_picture_of_as_many_pixels_as_may_be_is_decoded(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(
        png(MOST_PIXELS // 64, 64, zlib.compress(bytes(64 * (1 + MOST_PIXELS // 64 // 8))))
    )
    assert Pixels(8).load([path]).unique().tolist() == [0]


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names")
def test_what_is_no_file_is_no_picture(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("/dev/zero")
    for name in ("a.png", "b.png"):
        with pytest.raises(DataError, match=f"{name}: a pipe or a device, not a file"):
            Pixels(8).load([tmp_path / name])
    with pytest.raises(DataError, match=r"a\.png: a pipe or a device"):
        read_public(tmp_path, 1, Pixels(8))


def test_pictures_that_programs_would_read_are_refused(tmp_path):
    """Pillow hands PostScript to an interpreter, which can be told to write files."""
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n")
    with pytest.raises(
        DataError, match=r"a\.png: not a readable image \(BMP, GIF, JPEG, PNG, WEBP are read"
    ):
        Pixels(8).load([path])


def test_a_picture_of_more_than_8_bits_is_refused_and_not_cut_off(tmp_path):
    """Pillow would make white of all that is brighter than 255."""
    path = tmp_path / "a.png"
    Image.fromarray(np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)).save(path)
    with pytest.raises(
        DataError, match=r"a\.png: an image of more than 8 bits a channel \(I.*convert it to 8 bits"
    ):
        Pixels(8).load([path])


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_pictures_of_the_usual_kinds_are_read(tmp_path, form):
    path = tmp_path / "a picture"
    Image.new("RGB", (8, 8), (255, 255, 255)).save(path, form)
    assert Pixels(8).load([path]).unique().tolist() == [255]


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (b"II*\0", "it is a TIFF file"),
        (b"MM\0*", "it is a TIFF file"),
        (b"\0\x05\x16\x07", "it is macOS's notes on another file; delete it"),
    ],
)
def test_what_people_take_for_a_picture_is_called_what_it_is(tmp_path, start, why):
    path = tmp_path / "._a.png"
    path.write_bytes(start + bytes(100))
    with pytest.raises(
        DataError,
        match=rf"^{path}: not a readable image: {why} \(BMP, GIF, JPEG, PNG, WEBP are read\)$",
    ):
        Pixels(8).load([path])


def test_too_little_memory_is_no_damaged_picture(tmp_path, monkeypatch):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")

    def full(*given):
        raise MemoryError

    monkeypatch.setattr(Image.Image, "convert", full)
    with pytest.raises(MemoryError):
        Pixels(8).load([tmp_path / "a.png"])


# --- as a viewer shows it

UPRIGHT = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3) * 3
# as a camera stores the upright picture and says so
STORED = {
    1: UPRIGHT,
    2: UPRIGHT[:, ::-1],
    3: UPRIGHT[::-1, ::-1],
    4: UPRIGHT[::-1],
    5: UPRIGHT.transpose(1, 0, 2),
    6: np.rot90(UPRIGHT),
    7: UPRIGHT[::-1, ::-1].transpose(1, 0, 2),
    8: np.rot90(UPRIGHT, -1),
}


def _with_orientation(
    pixels: np.ndarray, orientation: int, form: str = "PNG", mode: str = "RGB"
) -> bytes:
    image, out, exif = (
        Image.fromarray(np.ascontiguousarray(pixels)).convert(mode),
        io.BytesIO(),
        Image.Exif(),
    )
    exif[0x0112] = orientation
    (
        image.save(out, form, exif=exif, lossless=True)
        if form == "WEBP"
        else image.save(out, form, exif=exif)
    )
    return out.getvalue()


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
@pytest.mark.parametrize("orientation", STORED)
def test_a_photo_and_its_twin_that_is_turned_and_says_so_are_the_same_picture(
    tmp_path, orientation, form
):
    twin = _with_orientation(STORED[orientation], orientation, form)
    assert np.array_equal(np.asarray(decode(twin)), UPRIGHT)
    (tmp_path / "twin.png").write_bytes(twin)
    (tmp_path / "upright.png").write_bytes(_with_orientation(UPRIGHT, 1))
    pixels = Pixels(5).load([tmp_path / "upright.png", tmp_path / "twin.png"])
    assert torch.equal(*pixels)
    name, size = keep(twin, "twin.png", [tmp_path / "kept"], size=3)
    assert size == (3, 2) and Image.open(tmp_path / "kept" / name).getexif().get(0x0112) is None
    assert np.array_equal(square(twin, "twin.png", 5).transpose(2, 0, 1), pixels[0])


def test_a_jpeg_is_turned_too():
    """As phones write them; its colours are rounded."""
    left_is_white = np.zeros((16, 32, 3), np.uint8)
    left_is_white[:, :16] = 255
    found = np.asarray(decode(_with_orientation(np.rot90(left_is_white), 6, "JPEG")))
    assert found.shape == (16, 32, 3) and (found[:, :12] > 250).all() and (found[:, 20:] < 5).all()


def test_masks_are_turned_with_their_photos():
    grey = UPRIGHT[..., 0]
    assert np.array_equal(indices(_with_orientation(np.rot90(grey), 6, mode="L"), "mask.png"), grey)


@pytest.mark.parametrize("orientation", [0, 9, 77])
def test_an_orientation_that_is_none_turns_nothing(orientation):
    assert np.array_equal(np.asarray(decode(_with_orientation(UPRIGHT, orientation))), UPRIGHT)


def test_a_photo_with_damaged_exif_data_is_read():
    out = io.BytesIO()
    Image.fromarray(UPRIGHT).save(out, "PNG", exif=b"Exif\0\0no EXIF data at all")
    assert np.array_equal(np.asarray(decode(out.getvalue())), UPRIGHT)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "PA", "L", "1", "RGB"])
def test_what_is_transparent_is_white_whatever_colour_lies_below(mode):
    """The left half is opaque and black, the right half is transparent."""
    hidden = 0 if mode in ("P", "PA") else 90
    image = Image.new("RGBA", (4, 2), (0, 0, 0, 255))
    image.paste((hidden, hidden, hidden, 0), (2, 0, 4, 2))
    out = io.BytesIO()
    if mode in ("RGBA", "LA"):
        image.convert(mode).save(out, "PNG")
    elif mode in ("P", "PA"):
        palette = Image.new("P", (4, 2))
        palette.putpalette([0, 0, 0, 200, 30, 30])
        palette.paste(1, (2, 0, 4, 2))
        palette.save(
            out, "PNG" if mode == "PA" else "GIF", transparency=b"\xff\x00" if mode == "PA" else 1
        )
    else:
        value = {"L": 90, "1": 255, "RGB": (90, 90, 90)}[mode]
        plain = Image.new(mode, (4, 2))
        plain.paste(value, (2, 0, 4, 2))
        plain.save(out, "PNG", transparency=1 if mode == "1" else value)
    expected = np.zeros((2, 4, 3), np.uint8)
    expected[:, 2:] = 255
    assert np.array_equal(np.asarray(decode(out.getvalue())), expected)


def test_half_transparent_is_half_white_and_opaque_is_as_it_was():
    rgba = np.concatenate([UPRIGHT, np.full((4, 6, 1), 255, np.uint8)], axis=2)
    out = io.BytesIO()
    Image.fromarray(rgba).save(out, "PNG")
    assert np.array_equal(np.asarray(decode(out.getvalue())), UPRIGHT)
    out = io.BytesIO()
    Image.new("RGBA", (1, 1), (0, 0, 0, 102)).save(out, "PNG")
    assert np.asarray(decode(out.getvalue())).tolist() == [[[153, 153, 153]]]


# --- texts


def _save(folder: Path, captions: object) -> None:
    (folder / "images").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "images/a.png")
    (folder / "image_file_name_to_caption.pkl").write_bytes(pickle.dumps(captions))


def test_captions_are_bounded(tmp_path):
    _save(tmp_path, {"a.png": ["a word " * 2000]})
    with pytest.raises(
        DataError,
        match=r"caption\.pkl: a\.png has a caption of 14,000 characters; at most 10,000 are read",
    ):
        read_public(tmp_path, 1, Words())


def test_half_a_character_in_a_caption_is_refused(tmp_path):
    _save(tmp_path, {"a.png": ["a \ud800 word"]})
    with pytest.raises(
        DataError, match=r"caption\.pkl: refused: it holds a text with half a character"
    ):
        read_public(tmp_path, 1, Words())


def test_what_stands_for_a_caption_is_shown_on_a_short_line(tmp_path):
    _save(tmp_path, {"a.png": np.zeros((1000, 1000))})
    with pytest.raises(DataError, match=r"caption\.pkl: a\.png has .* for a caption") as refusal:
        read_public(tmp_path, 1, Words())
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < 300 + len(str(tmp_path))


def test_texts_are_bounded(tmp_path):
    path = tmp_path / "client_0.pkl"
    path.write_bytes(pickle.dumps({"texts": ["a", "b" * (1 << 20) + "b"]}))
    with pytest.raises(
        DataError,
        match=r"client_0\.pkl: row 1 has 1,048,577 characters; at most 1,048,576 are read",
    ):
        Pickled(path, "texts").texts()


def test_pictures_of_a_pickle_can_be_written_to(tmp_path):
    """Torch does not know arrays that can't be: of one picture, turning the axes is no copy."""
    path = tmp_path / "client_0.pkl"
    path.write_bytes(pickle.dumps({"data": np.zeros((1, 1, 1, 3), np.uint8)}))
    pictures = Pickled(path, "data").images()
    pictures += 1
    assert torch.equal(pictures, torch.ones_like(pictures))
    assert io.BytesIO(path.read_bytes()).read().count(b"\x01\x01\x01") == 0
