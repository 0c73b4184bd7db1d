"""Tiny ImageNet: folders of images by class. Small backbones are distilled on its images."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from data_prep.datasets.catalogue import described
from data_prep.io.archives import contents, opened, text_of
from data_prep.io.build import Run
from data_prep.io.entry import SourceError
from data_prep.io.image_files import decoded
from fedmuscle_lib.core.files import put

ENTRIES = (described("tiny-imagenet"),)
_WNID = re.compile(r"n\d{8}")


def write(run: Run) -> None:
    """Write ``train/<wnid>/`` and, if the archive has it, ``val/<wnid>/``; raises SourceError if a
    file is no image or of no class.
    """
    path = run.archive(run.entry.archives[0])
    folder, label_of = run.folder, {}
    folder.mkdir(parents=True)
    for name, content in contents(
        path, lambda path: path.name in {"wnids.txt", "words.txt", "val_annotations.txt"}
    ).items():
        if name.endswith("val_annotations.txt"):
            label_of = dict(
                line.split("\t")[:2]
                for line in text_of(content, f"{path}: {name}").splitlines()
                if "\t" in line
            )
        else:
            put(folder / PurePosixPath(name).name, content)
    counts = {"train": 0, "val": 0}
    with opened(path) as members:
        for name, file in members:
            pure = PurePosixPath(name)
            split = next(
                (part for part in ("train", "val") if part in pure.parts), None
            )  # the test images have no labels
            if pure.suffix != ".JPEG" or split is None:
                continue
            wnid = (
                "".join(pure.parts[-3:-2]) if split == "train" else label_of.get(pure.name, "")
            )  # train/<wnid>/images/<name>
            if not _WNID.fullmatch(wnid):
                raise SourceError(f"{path}: {name}: {wnid!r} is not the name of a class")
            content = file.read()
            decoded(content, f"{path}: {name}")
            put(folder / split / wnid / pure.name, content)
            counts[split] += 1
    if not counts["train"]:
        raise SourceError(f"{path}: no images in train/")
    run.found = counts | {"classes": sum(1 for _ in (folder / "train").iterdir())}
