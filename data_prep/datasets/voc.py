"""Pascal VOC 2012: a public set and, if asked for, SS users, and MLC users whose labels are the
classes of the masks.

The users' training and validation images come from the segmentation task's ``train.txt``. They are
disjoint, also from those of the users that an earlier run made and this run keeps. All users of a
task are tested on one set, drawn from its ``val.txt``.

The public set has no image of an MLC user and none of ``val.txt``, so that no test image is public.
Where the archive has too few other images, it has SS users' training images too, and the command
and the manifest say how many: Setup2 has another public set, Flickr30k.

For MLC, a class is present if its mask covers at least a thousandth of the image: smaller specks
are mostly the ends of cut-off objects, and vanish when the image is scaled down. SS users get every
pixel.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
from PIL import Image

from data_prep.datasets.catalogue import described
from data_prep.datasets.partition import (
    SIZES,
    fit,
    outcome,
    photo_folders,
    photo_places,
    photo_users,
    public_part,
)
from data_prep.io.archives import opened, text_of
from data_prep.io.build import Place, Run, chosen
from data_prep.io.entry import SourceError
from data_prep.io.image_files import indices, keep
from data_prep.io.writers import outline, write_instances

RIM = 255  # of an object: belongs to no class
LEAST_SHARE = 1e-3
# Appendix G's training and test sets, but for SS, of whose 2 x 1000 training images train.txt has
# 1464 in all. What is left of them serves pools and validation sets.
TASKS = {
    "MLC": replace(SIZES["MLC"], pool=220, val=60),
    "SS": replace(SIZES["SS"], local=200, pool=240, val=60),
}
PARTS = photo_places("public_Pascal")
ENTRIES = (described("voc"),)
CLASSES: list[str] = ENTRIES[0].facts["classes"]


def places(options: dict) -> tuple[Place, ...]:
    return tuple(PARTS[part] for part in _parts(options))


def write(run: Run) -> None:
    """Write the data set of a run; raises SourceError if the archive is damaged or lacks its lists,
    or images are too few.
    """
    path = run.archive(run.entry.archives[0])
    names: set[str] = set()
    masks: dict[str, bytes] = {}
    lists: dict[str, list[str]] = {}
    with opened(path) as members:
        for name, file in members:
            pure = PurePosixPath(name)
            if pure.parent.name == "JPEGImages":
                names.add(pure.stem)
            elif pure.parent.name == "SegmentationClass":
                masks[pure.stem] = file.read()
            elif pure.parts[-2:] in {("Segmentation", "train.txt"), ("Segmentation", "val.txt")}:
                lists[pure.stem] = text_of(file.read(), f"{path}: {name}").split()
    if not names:
        raise SourceError(f"{path}: no images in JPEGImages/")
    run.found = {"images": len(names), "masks": len(masks)}
    parts = _parts(run.options)
    held = {
        part: run.images_in(PARTS[part]) if part not in parts else set() for part in ("mlc", "ss")
    }
    users: dict[tuple[str, str, int], list[str]] = {}
    if parts != ["public"]:
        if missing := {"train", "val"} - lists.keys():
            raise SourceError(f"{path}: lacks ImageSets/Segmentation/{min(missing)}.txt")
        usable = {
            stem
            for stem in names & masks.keys()
            if _present(indices(masks[stem], f"{path}: mask {stem}"))
        }
        train, test = (
            sorted(usable.intersection(lists["train"]) - held["mlc"] - held["ss"]),
            sorted(usable.intersection(lists["val"])),
        )
        users, _ = photo_users(
            run, train, test, parts, run.rng("users"), tasks=TASKS, one_test=True
        )
    for (part, _, _), stems in users.items():
        held[part].update(stems)
    public = (
        _public(run, names.difference(held["mlc"], lists.get("val", ())), held["ss"])
        if "public" in parts
        else []
    )
    folders = photo_folders(run, users, public, PARTS)
    if "public" not in parts and (shared := folders.keys() & run.images_in(PARTS["public"])):
        run.note(
            f"{len(shared):,} of the users' images are also in {PARTS['public'].folder}, which an"
            " earlier run made"
        )

    labelled = {stem for stems in users.values() for stem in stems}
    kept = {}
    with opened(path) as members:
        for name, file in members:
            pure = PurePosixPath(name)
            if pure.parent.name == "JPEGImages" and pure.stem in folders:
                mask_size = (
                    indices(masks[pure.stem], f"{path}: mask {pure.stem}").shape[::-1]
                    if pure.stem in labelled
                    else None
                )
                kept[pure.stem] = keep(
                    file.read(), pure.name, folders[pure.stem], run.options.get("size"), mask_size
                )
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(CLASSES)]
    for (part, split, client), stems in users.items():
        images: list[dict] = []
        annotations: list[dict] = []
        for i, stem in enumerate(stems):
            name, (width, height) = kept[stem]
            images.append({"id": i + 1, "file_name": name, "width": width, "height": height})
            mask = indices(masks[stem], f"{path}: mask {stem}")
            small = np.asarray(
                Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)
            )
            for found in (
                _annotations(small, _present(mask)) if part == "mlc" else _every_pixel(small)
            ):
                annotations.append({"id": len(annotations) + 1, "image_id": i + 1} | found)
        write_instances(
            run.root / PARTS[part].folder / split / f"client_{client}.json",
            images,
            annotations,
            categories,
        )


def _public(run: Run, free: set[str], last: set[str]) -> list[str]:
    """Draw the public set from the images that are free, and from the ``last`` of them only if the
    others are too few.
    """
    demand, rng = public_part(run.options), run.rng("public")
    (n,) = fit([demand], len(free))
    drawn = [
        *rng.permutation(sorted(free - last)).tolist(),
        *rng.permutation(sorted(free & last)).tolist(),
    ][:n]
    run.sizes.append(outcome(demand, n))
    if shared := len(last.intersection(drawn)):
        note = (
            f"{shared:,} of the {n:,} public images are also SS users': a setup that has them needs"
            " another public set"
        )
        run.note(note, "public, also SS users'", shared)
    return drawn


def _parts(options: dict) -> list[str]:
    return chosen(options, PARTS, default="mlc,public" if options.get("clients") else "public")


def _present(mask: np.ndarray) -> list[int]:
    """Return the ids (1..20) of the classes that are present; 0 is the background."""
    counts = np.bincount(mask.ravel(), minlength=256)[1 : len(CLASSES) + 1]
    return (np.flatnonzero(counts >= max(1, LEAST_SHARE * mask.size)) + 1).tolist()


def _annotations(mask: np.ndarray, classes: list[int]) -> list[dict]:
    """Return a COCO annotation for each of the classes."""
    return [{"category_id": c} | outline(mask == c) for c in classes]


def _every_pixel(mask: np.ndarray) -> list[dict]:
    """Return COCO annotations of every pixel of a mask.

    The rim is a crowd, which metrics ignore; its category has no meaning.
    """
    classes = [c for c in range(1, len(CLASSES) + 1) if (mask == c).any()]
    rim = (
        [{"category_id": 1} | outline(mask == RIM) | {"iscrowd": 1}] if (mask == RIM).any() else []
    )
    return _annotations(mask, classes) + rim
