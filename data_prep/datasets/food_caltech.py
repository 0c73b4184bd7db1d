"""Food-101 and Caltech-101: users with ICF and ICC, and pools of the non-IID setting, with images
resized to squares.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from data_prep.datasets.catalogue import described
from data_prep.datasets.partition import division, pool_of
from data_prep.io.archives import Members, needed, nested, opened, text_of
from data_prep.io.build import Run
from data_prep.io.entry import SourceError
from data_prep.io.image_files import square
from data_prep.io.writers import write_pickle

SIZE = 224  # pixels of a side, the paper's
_USERS = (described("food101"), described("caltech101"))
ENTRIES = (*_USERS, *map(pool_of, _USERS))


def write(run: Run) -> None:
    """Write the data set of a run; raises SourceError if the archive lacks its lists, or an image
    that they name.
    """
    path, size = run.archive(run.entry.archives[0]), run.options.get("size") or SIZE
    members, lists = (
        (_food, _food_lists) if run.entry.name.startswith("food101") else (_caltech, _caltech_lists)
    )
    train, test = lists(path, run)
    run.say(
        f"{run.entry.name}: {len(train):,} images to train with and {len(test):,} to test with, of"
        f" {run.found['classes']} classes"
    )
    names = {"train": sorted(train), "test": sorted(test)}
    labels = {
        "train": np.array([train[name] for name in names["train"]]),
        "test": np.array([test[name] for name in names["test"]]),
    }
    parts = division(
        run.entry.facts["task"], labels["train"], labels["test"], run.options, run.rng()
    )
    run.sizes += parts.sizes
    files: dict[str, tuple[str, int]] = {}  # image -> the file that it goes to, and its row there
    images = {}
    for user, split, rows in parts.users():
        files |= {names[split][row]: (user, at) for at, row in enumerate(rows)}
        images[user] = np.empty((len(rows), size, size, 3), np.uint8)
    with opened(path) as outer:
        for name, file in members(outer):
            if place := files.pop(name, None):
                user, row = place
                images[user][row] = square(file.read(), f"{path}: {name}", size)
    if files:
        raise SourceError(
            f"{path}: {len(files)} images of its lists are not in it, such as {min(files)}"
        )
    for user, split, rows in parts.users():
        write_pickle(run.folder / f"{user}.pkl", images.pop(user), labels[split][rows])


def _food(members: Members) -> Members:
    """Yield ``<class>/<image>`` without suffix, as the lists name it, and the file."""
    for name, file in members:
        pure = PurePosixPath(name)
        if pure.suffix == ".jpg":
            yield f"{pure.parent.name}/{pure.stem}", file


def _food_lists(path: Path, run: Run) -> tuple[dict[str, int], dict[str, int]]:
    """Return the labels of the train and test images by name, and count them; a label is a line
    number of classes.txt.
    """
    lists = {
        name: text_of(*file).split()
        for name, file in needed(path, {"classes.txt", "train.txt", "test.txt"}).items()
    }
    label = {name: i for i, name in enumerate(lists["classes.txt"])}
    train, test = (
        {name: label[name.split("/")[0]] for name in lists[f"{split}.txt"]}
        for split in ("train", "test")
    )
    run.found = {"train": len(train), "test": len(test), "classes": len(label)}
    return train, test


def _caltech(members: Members) -> Members:
    """Yield ``<category>/<image>`` and the file, from the archive in the archive, without the
    background category.
    """
    for outer, archive in members:
        if PurePosixPath(outer).name == "101_ObjectCategories.tar.gz":
            for name, file in nested(archive):
                pure = PurePosixPath(name)
                if pure.suffix == ".jpg" and pure.parent.name != "BACKGROUND_Google":
                    yield f"{pure.parent.name}/{pure.name}", file


def _caltech_lists(path: Path, run: Run) -> tuple[dict[str, int], dict[str, int]]:
    """Return the same.

    There is no official split: a random quarter of each category trains, and 3 x 2000 test images
    need the rest.
    """
    with opened(path) as members:
        names = sorted(name for name, _ in _caltech(members))
    by_class: dict[str, list[str]] = {}
    for name in names:
        by_class.setdefault(name.split("/")[0], []).append(name)
    if not names:
        raise SourceError(f"{path}: no images in 101_ObjectCategories.tar.gz")
    run.found = {"images": len(names), "classes": len(by_class)}
    rng = run.rng("split")
    train: dict[str, int] = {}
    test: dict[str, int] = {}
    for label, category in enumerate(sorted(by_class)):
        shuffled = rng.permutation(by_class[category]).tolist()
        train |= dict.fromkeys(shuffled[: len(shuffled) // 4], label)
        test |= dict.fromkeys(shuffled[len(shuffled) // 4 :], label)
    return train, test
