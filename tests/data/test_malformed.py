"""Files as tools really write them and people really copy them: each is refused in one line that
names the file and the mistake.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data_prep.io.writers import write_arrays, write_classes, write_coco, write_images, write_pickle
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data import labelled_sets
from fedmuscle_lib.data.encodings import Pixels, Words
from fedmuscle_lib.data.public import CAPTIONS, read_public
from fedmuscle_lib.tasks import TASKS

SIZE = 8
IMAGES = np.random.RandomState(0).randint(0, 256, (3, SIZE, SIZE, 3), dtype=np.uint8)
LABELS = [0, 9, 1]


class Command:
    """Runs a command when Python unpickles it."""

    def __reduce__(self) -> tuple:
        return os.system, ("touch ran",)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A data directory that every reader below accepts."""
    monkeypatch.chdir(tmp_path)
    write_pickle(tmp_path / "IC/CIFAR10/train/client_0.pkl", IMAGES, np.array(LABELS))
    masks = np.zeros((3, 1, SIZE, SIZE), bool)
    masks[:, :, 2:5, 1:4] = True
    names = write_images(tmp_path / "semseg_setup/images/train", IMAGES)
    write_coco(
        tmp_path / "semseg_setup/train/client_0.json",
        names,
        np.full((3, 1), 7),
        masks,
        {3: "three", 7: "seven"},
        (SIZE, SIZE),
    )
    write_images(tmp_path / "public/images", IMAGES)
    (tmp_path / "public" / CAPTIONS).write_bytes(pickle.dumps({name: ["a"] for name in names}))
    write_classes(tmp_path / "FedLT/set", ["ant", "bee"])
    for split in ("train", "test"):
        write_arrays(tmp_path / "FedLT/set", split, IMAGES, np.array([0, 1, 0]))
    return tmp_path


def read_all(folder: Path) -> None:
    for task in ("IC10", "SS"):
        TASKS[task].read(folder, 0, "train", Pixels(SIZE))
    read_public(folder / "public", 3, Pixels(SIZE))
    read_public(folder / "public", 3, Words())
    labelled_sets.read(folder, "set", SIZE)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _pickled(**content: Any) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(pickle.dumps(content))


def _coco(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return spoil


def _object(**fields: Any) -> Callable[[Path], None]:
    return _coco(lambda document: document["annotations"][1].update(fields))


def _image(**fields: Any) -> Callable[[Path], None]:
    return _coco(lambda document: document["images"][1].update(fields))


CLIENT, COCO = "IC/CIFAR10/train/client_0.pkl", "semseg_setup/train/client_0.json"
SPOILT: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a file is missing": (CLIENT, Path.unlink, "no such file"),
    "a pickle is cut off": (CLIENT, _cut, "not a readable pickle"),
    "a pickle runs a command": (CLIENT, _pickled(data=Command()), "asks for .*system"),
    "a key is missing": (CLIENT, _pickled(data=IMAGES), r"lacks \['labels'\]"),
    "labels start at 1": (
        CLIENT,
        _pickled(data=IMAGES, labels=[1, 2, 10]),
        "labels from 1 to 10; 0 to 9 are known",
    ),
    "channels come first": (
        CLIENT,
        _pickled(data=IMAGES.transpose(0, 3, 1, 2), labels=LABELS),
        r"not uint8 \(n, h, w, 3\)",
    ),
    "JSON is cut off": (COCO, _cut, "client_0.json: not "),
    "an image is unknown": (COCO, _object(image_id=8), "annotation 2 has the image_id 8"),
    "an id is there twice": (COCO, _image(id=1), "the id 1 of its images is there twice"),
    "a mask ends early": (
        COCO,
        _object(segmentation={"size": [SIZE, SIZE], "counts": [0, 16]}),
        "annotation 2.*add up",
    ),
    "a polygon has a NaN": (COCO, _object(segmentation=[[1, 1, 5, 5, np.nan, 1]]), "annotation 2"),
    "a polygon is of a larger image": (
        COCO,
        _object(segmentation=[[300, 300, 400, 300, 400, 400]]),
        "annotation 2",
    ),
    "sides are swapped": (COCO, _image(width=5), "annotation 2.*8 x 5"),
    "an image is missing": ("semseg_setup/images/train/000001.png", Path.unlink, "no such file"),
    "an image is cut off": ("public/images/000001.png", _cut, "not a readable image"),
    "an image has 16 bits": (
        "public/images/000001.png",
        lambda path: Image.fromarray(IMAGES[0, ..., 0].astype(np.uint16)).save(path),
        "more than 8 bits",
    ),
    "an image has no caption": (f"public/{CAPTIONS}", _pickled(x=["a"]), "000000.png has no cap"),
    "a caption is empty": (
        f"public/{CAPTIONS}",
        _pickled(**{f"00000{i}.png": [" "] for i in range(3)}),
        "a caption of 000000.png is empty",
    ),
    "a zip is cut off": ("FedLT/set/test.npz", _cut, "lacks readable arrays"),
}


def test_what_is_spoilt_below_is_read_as_it_stands_and_with_a_byte_order_mark(folder):
    read_all(folder)
    (folder / COCO).write_bytes(b"\xef\xbb\xbf" + (folder / COCO).read_bytes())
    read_all(folder)


@pytest.mark.parametrize("mistake", SPOILT)
def test_a_mistake_is_one_line_that_names_the_file(folder, mistake):
    name, spoil, why = SPOILT[mistake]
    spoil(folder / name)
    with pytest.raises(DataError, match=why) as refused:
        read_all(folder)
    said = str(refused.value)
    assert Path(name).stem in said and "\n" not in said and len(said) < 500
    assert not (folder / "ran").exists()
