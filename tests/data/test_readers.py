"""Reading the ``data_dir`` layout: whole files load, damaged files are refused by name, and no file
is ever executed.
"""

from __future__ import annotations

import codecs
import json
import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from data_prep.io.writers import write_coco, write_images, write_pickle
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.pickles import parse_pickle
from fedmuscle_lib.data.public import read_public
from fedmuscle_lib.data.samples import Samples, draw_local
from fedmuscle_lib.tasks import TASKS, Task

IC10, MLC, SS = TASKS["IC10"], TASKS["MLC"], TASKS["SS"]
SIZE = 8
IMAGES = np.random.RandomState(0).randint(0, 256, (6, SIZE, SIZE, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 9, 1, 0]


def _ic10_file(data_dir: Path) -> Path:
    path = data_dir / IC10.folder / "train/client_0.pkl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _read_ic10(data_dir: Path) -> Samples:
    return IC10.read(data_dir, 0, "train", Pixels(SIZE))[0]


# --- pickles


def test_arrays_of_numpy_1_are_read():
    """Its module was ``numpy.core``, not ``numpy._core``."""
    content = {"data": IMAGES, "labels": np.array(LABELS), "one": np.float64(1.5)}
    ours = pickle.dumps(content, protocol=2)
    assert b"cnumpy._core." in ours
    read = parse_pickle(ours.replace(b"cnumpy._core.", b"cnumpy.core."), "x")
    assert np.array_equal(read["data"], IMAGES) and read["labels"].tolist() == LABELS
    assert read["one"] == 1.5


def test_python_2_strings_are_keys(tmp_path):
    """As in the batches of the original CIFAR files, whose keys are Python 2's byte strings."""
    pickled = pickle.dumps({"data": IMAGES, "labels": LABELS}, protocol=2)
    for key in (b"data", b"labels"):
        pickled = pickled.replace(
            b"X" + len(key).to_bytes(4, "little") + key, b"U" + bytes([len(key)]) + key
        )
    assert pickle.loads(pickled, encoding="bytes").keys() == {b"data", b"labels"}
    _ic10_file(tmp_path).write_bytes(pickled)
    assert _read_ic10(tmp_path).targets.tolist() == LABELS


class Payload:
    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple:
        return self.call


@pytest.mark.parametrize(
    "payload",
    [
        Payload(os.system, "touch ran"),
        Payload(eval, "open('ran', 'w')"),
        Payload(codecs.encode, "x", "zlib"),
        np.array([{}]),
    ],
    ids=["system", "eval", "codec", "objects"],
)
def test_code_in_a_pickle_never_runs(tmp_path, monkeypatch, payload):
    monkeypatch.chdir(tmp_path)
    path = _ic10_file(tmp_path)
    path.write_bytes(pickle.dumps({"data": IMAGES, "labels": LABELS, "x": payload}))
    with pytest.raises(DataError, match=f"^{path}: refused: it (asks for|holds)") as refused:
        _read_ic10(tmp_path)
    assert "\n" not in str(refused.value) and not (tmp_path / "ran").exists()


NUMBERS = st.sampled_from(["?", "u1", ">u2", "i8", "f2", ">f8", "c16", "U3", "S2"]).flatmap(
    lambda kind: arrays(kind, st.tuples(st.integers(1, 3), st.integers(1, 3)))
)


@given(NUMBERS, st.integers(0, 5))
def test_arrays_are_what_python_reads(values, protocol):
    content = {
        "c": values,
        "f": np.asfortranarray(values.T),
        "one": values[0, 0],
        "n": [1, -(2**40), 2.5, None],
    }
    pickled = pickle.dumps(content, protocol)
    ours, python = parse_pickle(pickled, "x"), pickle.loads(pickled)
    assert ours["n"] == content["n"]
    for name in ("c", "f", "one"):
        assert type(ours[name]) is type(python[name]) and ours[name].dtype == python[name].dtype
        np.testing.assert_array_equal(ours[name], content[name])


# --- COCO files

CLASSES = np.array(
    [[104, 7, -1], [7, -1, -1], [-1, -1, -1], [3, 104, 7], [3, -1, -1], [104, -1, -1]]
)
CATEGORIES = {3: "three", 7: "seven", 104: "digit 4"}


def _write_coco(data_dir: Path, task: Task = MLC) -> tuple[Path, np.ndarray]:
    masks = np.zeros((*CLASSES.shape, SIZE, SIZE), bool)
    for i, slot in np.argwhere(CLASSES >= 0):
        masks[i, slot, slot : slot + 3, i : i + 2] = True
    path = data_dir / task.folder / "train/client_0.json"
    names = write_images(data_dir / task.folder / "images/train", IMAGES, stem="client_0_")
    write_coco(path, names, CLASSES, masks, CATEGORIES, (SIZE, SIZE))
    return path, masks


def test_targets_agree_with_a_count_over_the_raw_json(small_world):
    document = json.loads((small_world / MLC.folder / "val/client_1.json").read_text())
    images = {annotation["category_id"]: set() for annotation in document["annotations"]}
    for annotation in document["annotations"]:
        images[annotation["category_id"]].add(annotation["image_id"])
    samples, classes = MLC.read(small_world, 1, "val", Pixels(32))
    assert len(classes) == len(document["categories"]) == samples.targets.shape[1]
    assert samples.targets.sum(0).tolist() == [len(images[category]) for category in sorted(images)]
    per_image = Counter(image for of_category in images.values() for image in of_category)
    assert samples.targets.sum(1).tolist() == [
        per_image[image["id"]] for image in document["images"]
    ]


@pytest.mark.parametrize("task", [MLC, SS])
def test_an_image_of_another_size_than_its_record_is_refused_with_both(tmp_path, task):
    """Its masks would lie elsewhere."""
    path, _ = _write_coco(tmp_path, task)
    width, height = SIZE, SIZE + 1
    document = json.loads(path.read_text())
    document["images"][1] |= {"width": width, "height": height}
    document["annotations"] = [
        one | {"segmentation": [[1, 1, 3, 1, 3, 3]]} for one in document["annotations"]
    ]
    path.write_text(json.dumps(document))
    why = (
        rf"client_0_000001.png: an image of {SIZE} x {SIZE} pixels, whose record says {width} x"
        rf" {height}$"
    )
    with pytest.raises(DataError, match=why):
        task.read(tmp_path, 0, "train", Pixels(SIZE))


def test_a_coco_file_without_any_annotation_is_remarked_on(tmp_path, caplog):
    path, _ = _write_coco(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"annotations": []}))
    for _ in range(2):
        samples, _ = MLC.read(tmp_path, 0, "train", Pixels(SIZE))
    assert not samples.targets.any()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: it has no annotation: every image is without an object"
    ]


# --- images


def test_a_small_or_missing_public_set_is_named(tmp_path):
    write_images(tmp_path, IMAGES)
    with pytest.raises(
        DataError, match=rf"{tmp_path}: a public set of 7 was asked for, it holds 6 images"
    ):
        read_public(tmp_path, 7, Pixels(SIZE))
    with pytest.raises(DataError, match=rf"{tmp_path / 'absent'}: no such folder"):
        read_public(tmp_path / "absent", 1, Pixels(SIZE))


def test_a_folder_whose_making_was_interrupted_is_refused(tmp_path):
    write_pickle(_ic10_file(tmp_path), IMAGES, np.array(LABELS))
    manifest = tmp_path / IC10.folder / "manifest.json"
    manifest.write_text(json.dumps({"dataset": "cifar10", "whole": True}, indent=1))
    assert len(_read_ic10(tmp_path)) == len(LABELS)
    manifest.write_text(json.dumps({"dataset": "cifar10", "whole": False}, indent=1))
    with pytest.raises(DataError, match="interrupted") as refusal:
        _read_ic10(tmp_path)
    assert str(tmp_path / IC10.folder) in str(refusal.value)


# --- local training sets


def _pool(n: int, n_classes: int) -> Samples:
    """Images that tell which row they are."""
    return Samples(torch.arange(n).reshape(n, 1, 1, 1), torch.arange(n) % n_classes)


def test_local_draws_depend_on_their_address_alone():
    pool = _pool(300, 10)
    first = draw_local(pool, 50, 0, 4).inputs
    torch.rand(7)  # whatever else was drawn
    assert torch.equal(first, draw_local(pool, 50, 0, 4).inputs)
    for other in ((1, 4), (0, 5)):
        assert set(first.flatten().tolist()) != set(
            draw_local(pool, 50, *other).inputs.flatten().tolist()
        )
