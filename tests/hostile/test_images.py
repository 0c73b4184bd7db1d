"""Pictures and texts: a file that is none, or too much of one, is refused by name before it takes memory."""

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
from data_prep.io.image_files import decoded
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.data.encodings import Pixels, Words
from fedmuscle_lib.data.images import MOST_PIXELS
from fedmuscle_lib.data.public import read_public


@pytest.mark.parametrize("size", [(13_000, 13_000), (1 << 30, 1), (8193, 8192), (1 << 31 - 1, 1 << 31 - 1)])
def test_a_picture_of_too_many_pixels_is_refused_before_they_are_decoded(tmp_path: Path, size: tuple[int, int]) -> None:
    """13,000 x 13,000 of one colour are 20 kB on the disk, and 1.3 GB when they are read."""
    path = tmp_path / "a.png"
    path.write_bytes(png(*size))  # without rows: whoever decodes them says that the picture is truncated
    with pytest.raises(DataError, match="not a readable image .*pixels") as refusal:
        Pixels(8).load([path])
    assert str(refusal.value).startswith(f"{path}: ") and "\n" not in str(refusal.value)
    with pytest.raises(SourceError, match="a.png: not a readable image .*pixels"):
        decoded(path.read_bytes(), "a.png")


def test_a_picture_of_as_many_pixels_as_may_be_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(MOST_PIXELS // 64, 64, zlib.compress(bytes(64 * (1 + MOST_PIXELS // 64 // 8)))))
    assert Pixels(8).load([path]).unique().tolist() == [0]


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names")
def test_what_is_no_file_is_no_picture(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("/dev/zero")
    for name in ("a.png", "b.png"):
        with pytest.raises(DataError, match=f"{name}: a pipe or a device, not a file"):
            Pixels(8).load([tmp_path / name])
    with pytest.raises(DataError, match=r"a\.png: a pipe or a device"):
        read_public(tmp_path, 1, Pixels(8))


def test_pictures_that_programs_would_read_are_refused(tmp_path: Path) -> None:
    """Pillow hands PostScript to an interpreter, which can be told to write files."""
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n")
    with pytest.raises(DataError, match=r"a\.png: not a readable image \(cannot identify"):
        Pixels(8).load([path])


def test_a_picture_of_more_than_8_bits_is_refused_and_not_cut_off(tmp_path: Path) -> None:
    """Pillow would make white of all that is brighter than 255."""
    path = tmp_path / "a.png"
    Image.fromarray(np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)).save(path)
    with pytest.raises(DataError, match=r"a\.png: an image of more than 8 bits a channel \(I.*convert it to 8 bits"):
        Pixels(8).load([path])


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_pictures_of_the_usual_kinds_are_read(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a picture"
    Image.new("RGB", (8, 8), (255, 255, 255)).save(path, form)
    assert Pixels(8).load([path]).unique().tolist() == [255]


def _save(folder: Path, captions: object) -> None:
    (folder / "images").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "images/a.png")
    (folder / "image_file_name_to_caption.pkl").write_bytes(pickle.dumps(captions))


def test_captions_are_bounded(tmp_path: Path) -> None:
    _save(tmp_path, {"a.png": ["a word " * 2000]})
    with pytest.raises(DataError, match=r"caption\.pkl: a\.png has a caption of 14,000 characters; at most 10,000 are read"):
        read_public(tmp_path, 1, Words())


def test_half_a_character_in_a_caption_is_refused(tmp_path: Path) -> None:
    _save(tmp_path, {"a.png": ["a \ud800 word"]})
    with pytest.raises(DataError, match=r"caption\.pkl: refused: it holds a text with half a character"):
        read_public(tmp_path, 1, Words())


def test_what_stands_for_a_caption_is_shown_on_a_short_line(tmp_path: Path) -> None:
    _save(tmp_path, {"a.png": np.zeros((1000, 1000))})
    with pytest.raises(DataError, match=r"caption\.pkl: a\.png has .* for a caption") as refusal:
        read_public(tmp_path, 1, Words())
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < 300 + len(str(tmp_path))


def test_texts_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "client_0.pkl"
    path.write_bytes(pickle.dumps({"texts": ["a", "b" * (1 << 20) + "b"]}))
    with pytest.raises(DataError, match=r"client_0\.pkl: row 1 has 1,048,577 characters; at most 1,048,576 are read"):
        Pickled(path, "texts").texts()


def test_pictures_of_a_pickle_can_be_written_to(tmp_path: Path) -> None:
    """Torch does not know arrays that can't be: of one picture, turning the axes is no copy."""
    path = tmp_path / "client_0.pkl"
    path.write_bytes(pickle.dumps({"data": np.zeros((1, 1, 1, 3), np.uint8)}))
    pictures = Pickled(path, "data").images()
    pictures += 1
    assert torch.equal(pictures, torch.ones_like(pictures))
    assert io.BytesIO(path.read_bytes()).read().count(b"\x01\x01\x01") == 0
