"""ImageNet-LT and iNaturalist 2018 for long-tailed federations: the official lists, beside a folder
of images that the user has.

The lists are those of Kang et al., Decoupling Representation and Classifier for Long-Tailed
Recognition (ICLR 2020). The images are licensed and large: they are neither fetched nor copied, but
linked.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import numpy as np

from data_prep.datasets.catalogue import described
from data_prep.datasets.partition import of_each_class
from data_prep.io.archives import text_of
from data_prep.io.build import Run
from data_prep.io.entry import SourceError
from data_prep.io.writers import write_classes, write_list
from fedmuscle_lib.core.errors import line_of

ENTRIES = (described("imagenet-lt"), described("inaturalist"))
_ROW = re.compile(r"(\S.*) ([0-9]{1,9})")  # a path and a label


def write(run: Run) -> None:
    """Write the data set of a run; raises SourceError if a list is missing or malformed, or an
    image that is written down is missing.
    """
    files = dict(
        zip(
            ("train", "test"), (run.archive(archive) for archive in run.entry.archives), strict=True
        )
    )
    lists = {split: _parsed(path) for split, path in files.items()}
    names = _names(lists["train"], files["train"])
    if (last := max(label for _, label in lists["test"])) >= len(names):
        raise SourceError(
            f"{files['train']}: no image has the label {last}, but {files['test'].name} has it:"
            " damaged, or another file"
        )
    run.found = {split: len(rows) for split, rows in lists.items()} | {"classes": len(names)}
    root = Path(run.options.get("images") or run.source.folder or run.source.store).resolve()
    write_classes(run.folder, names)
    for split, images in lists.items():
        kept = [
            images[row]
            for row in of_each_class(split, np.array([label for _, label in images]), run)
        ]
        if missing := [name for name, _ in kept if not (root / name).is_file()]:
            raise SourceError(
                f"{root}: lacks {len(missing):,} of the {len(kept):,} images of"
                f" {files[split].name}, such as {missing[0]}; the images are licensed, get them"
                f" from {run.entry.home} and say with --images FOLDER where they are"
            )
        write_list(run.folder, split, kept)
    (run.folder / "images").symlink_to(root, target_is_directory=True)


def _parsed(path: Path) -> list[tuple[str, int]]:
    """Return path and label of each image of a list; raises SourceError if a line is something
    else.
    """
    images = []
    for number, line in enumerate(text_of(path.read_bytes(), str(path)).splitlines(), 1):
        if not (row := _ROW.fullmatch(line.strip())):
            raise SourceError(
                f"{path}: line {number}: '{line_of(line)}' is not a path and a label: another file"
            )
        images.append((row[1], int(row[2])))
    return images


def _names(images: list[tuple[str, int]], path: Path) -> list[str]:
    """Return the classes' names, by label: the folder of a class's first image, without the one
    that all share (``train``).

    Raises:
        SourceError: a label below the largest has no image.
    """
    first: dict[int, str] = {}
    for name, label in images:
        first.setdefault(label, name)
    if len(first) != max(first) + 1:
        raise SourceError(
            f"{path}: {len(first):,} labels, the largest is {max(first)}: cut off, or another file"
        )
    return [
        "/".join(PurePosixPath(first[label]).parts[1:-1]) or str(label) for label in sorted(first)
    ]
