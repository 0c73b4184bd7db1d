"""A prepared set is read as it was written, and what is wrong with one is said in a line that names
the file.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data_prep.io.writers import labelled, write_arrays, write_classes, write_list
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.labelled_sets import FOLDER, read

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


def _read(folder: Path, size: int | None = 8) -> object:
    return read(folder.parents[1], folder.name, size)


@pytest.mark.parametrize("kind", ["arrays", "lists"])
def test_pictures_and_labels_are_those_that_were_written(kind, request):
    folder = request.getfixturevalue(kind)
    assert folder.parent.name == FOLDER
    found = _read(folder)
    assert found.train.classes == found.test.classes == ("ant", "bee", "cow")
    for split, n in SIZES.items():
        images = getattr(found, split)
        assert len(images) == n and images.labels.dtype == np.int64
        assert images.labels.tolist() == [i % 3 for i in range(n)]
        rows = np.array([3, 0, 3])
        samples = images.samples(rows)
        assert samples.inputs.dtype == torch.uint8 and samples.targets.dtype == torch.int64
        assert np.array_equal(samples.inputs.permute(0, 2, 3, 1).numpy(), _pixels(split)[rows])
        assert samples.targets.tolist() == [0, 0, 0] and samples.names == ("ant", "bee", "cow")
        assert images.samples([]).inputs.shape == (0, 3, 8, 8)


@pytest.mark.parametrize("kind", ["arrays", "lists"])
def test_pictures_are_resized_and_each_alike_whatever_is_asked_for_with_it(kind, request):
    train = _read(request.getfixturevalue(kind), size=5).train
    together = train.samples(range(6)).inputs
    assert together.shape == (6, 3, 5, 5) and together.dtype == torch.uint8
    assert torch.equal(together, torch.cat([train.samples([row]).inputs for row in range(6)]))
    assert together.float().mean() == pytest.approx(_pixels("train").mean(), abs=8)


def test_without_a_size_arrays_are_as_they_are_and_lists_are_refused(arrays):
    write_arrays(arrays, "test", _pixels("test", 5, 9), np.zeros(4, int))
    assert _read(arrays, None).test.samples([1]).inputs.shape == (1, 3, 5, 9)
    write_list(arrays, "test", [("0.png", 0)])
    with pytest.raises(DataError, match=r"test\.txt: .*image_size"):
        _read(arrays, None)


def test_a_list_is_read_without_its_pictures_until_they_are_asked_for(lists):
    (lists / "images/train/a folder/4.png").unlink()
    (lists / "images/train/a folder/5.png").write_bytes(b"no picture")
    train = _read(lists).train
    assert train.samples([3]).inputs.shape == (1, 3, 8, 8)
    with pytest.raises(DataError, match=r"train\.txt: line 5: no such image: .*a folder/4\.png"):
        train.samples([0, 4])
    with pytest.raises(DataError, match=r"a folder/5\.png: not a readable image"):
        train.samples([5])


@pytest.mark.parametrize(("kind", "suffix"), [("arrays", "npz"), ("lists", "txt")])
def test_tests_that_are_training_pictures_are_remarked_on(kind, suffix, request, caplog):
    folder = request.getfixturevalue(kind)
    train, test = folder / f"train.{suffix}", folder / f"test.{suffix}"
    with caplog.at_level(logging.WARNING, "fedmuscle"):
        assert _read(folder).test.share_in(_read(folder).train) == 0
        assert "most images" not in caplog.text
        shutil.copy(train, test)
        _read(folder)
    assert f"most images of {test} are also in {train}" in caplog.text


def test_half_of_the_tests_may_be_training_pictures(arrays, caplog):
    write_arrays(
        arrays,
        "test",
        np.concatenate([_pixels("train")[:2], _pixels("test")[:2]]),
        np.zeros(4, int),
    )
    with caplog.at_level(logging.WARNING, "fedmuscle"):
        assert _read(arrays).test.share_in(_read(arrays).train) == 0.5
    assert "most images" not in caplog.text


@pytest.mark.parametrize("name", ["other", "../FedLT/set", "set/.."])
def test_a_set_that_is_not_there_is_named_beside_those_that_are(arrays, name):
    with pytest.raises(DataError, match="no such set; .* there are: set$"):
        read(arrays.parents[1], name)


def _savez(path: Path, **content: object) -> None:
    np.savez(path, **content)


def _promise(path: Path, shape: object) -> None:
    """An array whose header says that it has another shape."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        content, {"descr": "|u1", "fortran_order": False, "shape": shape}
    )
    _raw(path, content.getvalue() + bytes(1152))


def _raw(path: Path, images: bytes = b"no array") -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("images.npy", images)
        file.writestr("labels.npy", b"no array")


IMAGES, LABELS = _pixels("train"), np.zeros(6, int)


@pytest.mark.parametrize(
    ("spoil", "file", "why"),
    [
        (lambda folder: (folder / "train.npz").unlink(), "train.npz", "no such file"),
        (lambda folder: (folder / "classes.json").unlink(), "classes.json", "no such file"),
        (lambda folder: (folder / "classes.json").write_text("[1"), "classes.json", "not JSON"),
        (
            lambda folder: (folder / "classes.json").write_text('["ant", 2]'),
            "classes.json",
            "names of two classes",
        ),
        (
            lambda folder: (folder / "classes.json").write_text('{"ant": 0}'),
            "classes.json",
            "names of two classes",
        ),
        (
            lambda folder: write_classes(folder, ["ant", "bee", "ant"]),
            "classes.json",
            "2 classes are called 'ant'",
        ),
        (
            lambda folder: write_classes(folder, ["ant", "bee", "cow", "dog"]),
            "train.npz",
            "no image has the label 3, 'dog' of classes.json",
        ),
        (
            lambda folder: write_arrays(folder, "train", IMAGES, LABELS + 2 * (np.arange(6) % 2)),
            "train.npz",
            "has the label 1, 'bee'",
        ),
        (
            lambda folder: (folder / "train.txt").write_text("a/0.png 0\na/1.png 1\n"),
            "train.txt",
            "has the label 2, 'cow'",
        ),
        (
            lambda folder: (folder / "test.npz").write_bytes(
                (folder / "test.npz").read_bytes()[:300]
            ),
            "test.npz",
            "lacks readable arrays",
        ),
        (
            lambda folder: (folder / "test.npz").write_bytes(b""),
            "test.npz",
            "lacks readable arrays",
        ),
        (lambda folder: _savez(folder / "test.npz", images=IMAGES), "test.npz", "labels"),
        (
            lambda folder: _promise(folder / "test.npz", (1 << 40, 8, 8, 3)),
            "test.npz",
            "images.npy: uint8 (1099511627776, 8, 8, 3) in",
        ),
        (
            lambda folder: _promise(folder / "test.npz", (-6, 8, 8, 3)),
            "test.npz",
            "lacks readable arrays",
        ),
        (
            lambda folder: _promise(folder / "test.npz", ("(" * 500,)),
            "test.npz",
            "lacks readable arrays",
        ),
        (lambda folder: _raw(folder / "test.npz"), "test.npz", "lacks readable arrays"),
        (
            lambda folder: (folder / "test.npz").unlink() or os.mkfifo(folder / "test.npz"),
            "test.npz",
            "a pipe or a device",
        ),
        (
            lambda folder: (folder / "test.npz").unlink() or (folder / "test.npz").mkdir(),
            "test.npz",
            "directory",
        ),
        (
            lambda folder: (folder / "classes.json").write_text("[" * 100_000),
            "classes.json",
            "not JSON",
        ),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json", "not JSON"),
        (
            lambda folder: (folder / "manifest.json").write_text("[]"),
            "manifest.json",
            "holds a list",
        ),
        (
            lambda folder: (folder / "manifest.json").write_text('{"whole":false}'),
            "",
            "interrupted",
        ),
        (lambda folder: os.mkfifo(folder / "manifest.json"), "manifest.json", "a pipe or a device"),
        (
            lambda folder: _savez(folder / "test.npz", images=np.array([{}] * 6), labels=LABELS),
            "test.npz",
            "lacks readable arrays",
        ),
        (
            lambda folder: _savez(folder / "test.npz", images=IMAGES / 255, labels=LABELS),
            "test.npz",
            "images are float64 (6, 8, 8, 3)",
        ),
        (
            lambda folder: _savez(folder / "test.npz", images=IMAGES[..., 0], labels=LABELS),
            "test.npz",
            "images are uint8 (6, 8, 8)",
        ),
        (
            lambda folder: _savez(folder / "test.npz", images=IMAGES[:0], labels=LABELS[:0]),
            "test.npz",
            "images are uint8 (0, 8, 8, 3)",
        ),
        (
            lambda folder: _savez(folder / "test.npz", images=IMAGES, labels=LABELS[:5]),
            "test.npz",
            "labels are int64 (5,)",
        ),
        (
            lambda folder: _savez(folder / "test.npz", images=IMAGES, labels=LABELS / 1),
            "test.npz",
            "labels are float64 (6,)",
        ),
        (
            lambda folder: _savez(folder / "test.npz", images=IMAGES, labels=LABELS + 3),
            "test.npz",
            "labels from 3 to 3",
        ),
        (
            lambda folder: _savez(folder / "test.npz", images=IMAGES, labels=LABELS - 1),
            "test.npz",
            "labels from -1 to -1",
        ),
        *(
            (
                lambda folder, line=line: (folder / "test.txt").write_text(
                    f"a/0.png 0\n{line}\na/1.png 1\n"
                ),
                "test.txt",
                f"line 2: {why}",
            )
            for line, why in (
                ("", "'' is not"),
                ("a/0.png " + "9" * 5000, "label 999999999999999999...; classes.json has"),
                ("a/\x1b[2J0.png one", r"'a/\x1b[2J0.png one' is not"),
                ("x" * 100_000, f"'{'x' * 20}"),
                ("a/0.png", "'a/0.png' is not"),
                ("a/0.png one", "'a/0.png one' is not"),
                ("a/0.png -1", "'a/0.png -1' is not"),
                (" 1", "' 1' is not"),
                ("a/0.png 3", "label 3; classes.json has names for 0 to 2"),
                ("../0.png 1", "'../0.png' leaves the folder"),
                ("a/../../0.png 1", "'a/../../0.png' leaves the folder"),
                ("/etc/0.png 1", "'/etc/0.png' leaves the folder"),
                ("..\\0.png 1", "'..\\\\0.png' leaves the folder"),
            )
        ),
        (lambda folder: (folder / "test.txt").write_bytes(b""), "test.txt", "line 1: '' is not"),
        (
            lambda folder: (folder / "test.txt").write_bytes(b"\xff.png 1\n"),
            "test.txt",
            "not UTF-8",
        ),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(arrays, spoil, file, why):
    spoil(arrays)
    with pytest.raises(DataError) as caught:
        _read(arrays)
    said = str(caught.value)
    assert (
        said.startswith(str(arrays / file))
        and why in said
        and said.isprintable()
        and len(said) < 600
    )
