"""A prepared set is read as it was written, and what is wrong with one is said in a line that names
the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data_prep.io.writers import labelled, write_arrays, write_classes, write_list
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.labelled_sets import FOLDER, Images, read

SIZES = {"train": 6, "test": 4}


def _pixels(split: str, height: int = 8, width: int = 8) -> np.ndarray:
    return np.random.RandomState(SIZES[split]).randint(
        0, 256, (SIZES[split], height, width, 3), dtype=np.uint8
    )


@pytest.fixture
def arrays(tmp_path) -> Path:
    """The folder of a set of arrays, of three classes."""
    folder = tmp_path / labelled("set")
    write_classes(folder, ["ant", "bee", "cow"])
    for split, n in SIZES.items():
        write_arrays(folder, split, _pixels(split), np.arange(n) % 3)
    return folder


@pytest.fixture
def lists(tmp_path) -> Path:
    """The folder of a set of lists; the pictures are those of ``arrays``, and its link leads to
    them.
    """
    folder, root = tmp_path / labelled("set"), tmp_path / "elsewhere"
    write_classes(folder, ["ant", "bee", "cow"])
    for split, n in SIZES.items():
        names = [f"{split}/a folder/{i}.png" for i in range(n)]
        (root / split / "a folder").mkdir(parents=True)
        for name, image in zip(names, _pixels(split), strict=True):
            Image.fromarray(image).save(root / name)
        write_list(folder, split, [(name, i % 3) for i, name in enumerate(names)])
    (folder / "images").symlink_to(root, target_is_directory=True)
    return folder


def _read(folder: Path, size: int | None = 8) -> tuple[Images, Images]:
    return read(folder.parents[1], folder.name, size)


@pytest.mark.parametrize("kind", ["arrays", "lists"])
def test_pictures_and_labels_are_those_that_were_written(kind, request):
    folder = request.getfixturevalue(kind)
    assert folder.parent.name == FOLDER
    found = _read(folder)
    for images, (split, n) in zip(found, SIZES.items(), strict=True):
        assert images.classes == ("ant", "bee", "cow")
        assert len(images) == n and images.labels.dtype == np.int64
        assert images.labels.tolist() == [i % 3 for i in range(n)]
        rows = np.array([3, 0, 3])
        samples = images.samples(rows)
        assert samples.inputs.dtype == torch.uint8 and samples.targets.dtype == torch.int64
        assert np.array_equal(samples.inputs.permute(0, 2, 3, 1).numpy(), _pixels(split)[rows])
        assert samples.targets.tolist() == [0, 0, 0] and samples.names == ("ant", "bee", "cow")
        assert images.samples([]).inputs.shape == (0, 3, 8, 8)


def test_without_a_size_arrays_are_as_they_are_and_lists_are_refused(arrays):
    write_arrays(arrays, "test", _pixels("test", 5, 9), np.zeros(4, int))
    assert _read(arrays, None)[1].samples([1]).inputs.shape == (1, 3, 5, 9)
    write_list(arrays, "test", [("0.png", 0)])
    with pytest.raises(DataError, match=r"test\.txt: .*image_size"):
        _read(arrays, None)


def test_a_list_is_read_without_its_pictures_until_they_are_asked_for(lists):
    (lists / "images/train/a folder/4.png").unlink()
    (lists / "images/train/a folder/5.png").write_bytes(b"no picture")
    train, _ = _read(lists)
    assert train.samples([3]).inputs.shape == (1, 3, 8, 8)
    with pytest.raises(DataError, match=r"a folder/4\.png: no such file"):
        train.samples([0, 4])
    with pytest.raises(DataError, match=r"a folder/5\.png: not a readable image"):
        train.samples([5])


def test_a_set_that_is_not_there_is_named_beside_those_that_are(arrays):
    with pytest.raises(DataError, match="no such set; .* there are: set$"):
        read(arrays.parents[1], "other")


IMAGES, LABELS = _pixels("train"), np.zeros(6, int)


def _savez(**content: np.ndarray) -> Callable[[Path], None]:
    return lambda folder: np.savez(folder / "test.npz", **content)


@pytest.mark.parametrize(
    ("spoil", "file", "why"),
    [
        (lambda folder: write_classes(folder, ["ant", "ant"]), "classes.json", "the same name"),
        (
            lambda folder: write_classes(folder, ["ant", "bee", "cow", "dog"]),
            "train.npz",
            "no image has the label 3, 'dog' of classes.json",
        ),
        (lambda folder: (folder / "manifest.json").write_text('{"whole":false}'), "", "interrupt"),
        (_savez(images=np.array([{}] * 6), labels=LABELS), "test.npz", "lacks readable arrays"),
        (_savez(images=IMAGES / 255, labels=LABELS), "test.npz", "are float64 (6, 8, 8, 3)"),
        (_savez(images=IMAGES, labels=LABELS + 3), "test.npz", "labels from 3 to 3"),
        *(
            (
                lambda folder, line=line: (folder / "test.txt").write_text(f"a/0.png 0\n{line}\n"),
                "test.txt",
                f"line 2: {line!r} is not",
            )
            for line in ("a/0.png", "a/0.png 3")
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(arrays, spoil, file, why):
    spoil(arrays)
    with pytest.raises(DataError) as caught:
        _read(arrays)
    said = str(caught.value)
    assert said.startswith(str(arrays / file)) and why in said and "\n" not in said
