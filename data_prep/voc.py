"""Pascal VOC 2012: a public set, and, where users are asked for, MLC users whose labels are the classes of the masks.

Training and validation images come from the list ``train.txt`` of the segmentation task, test images from ``val.txt``; the public
set is of all images that no user has. A class is present where its mask covers at least a thousandth of the picture: smaller
specks of the masks are mostly the far ends of cut-off objects, and nothing is left of them in a small picture.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np
from PIL import Image

from data_prep.archives import opened, plain_name
from data_prep.build import Place, Run
from data_prep.catalogue import SourceError
from data_prep.layout import outline, write_instances
from data_prep.partition import Part, divide, fit, outcome, public_part, sized, user_parts
from data_prep.photos import indices, keep

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
LEAST_SHARE = 1e-3
_MLC = Place("MLC_setup", ("train", "val", "test", "images"))
_PUBLIC = Place("MLC_setup/public_Pascal")


def places(name: str, options: dict) -> tuple[Place, ...]:
    return (_MLC, _PUBLIC) if options.get("clients") else (_PUBLIC,)


def write(run: Run) -> None:
    """Raises SourceError when the archive is damaged or lacks its lists, or the images are too few."""
    path = run.archive(run.entry.archives[0])
    names, masks, lists = set(), {}, {}
    with opened(path) as members:
        for name, file in members:
            pure = PurePosixPath(name)
            if pure.parent.name == "JPEGImages":
                names.add(plain_name(pure.stem, path))
            elif pure.parent.name == "SegmentationClass":
                masks[pure.stem] = file.read()
            elif pure.parts[-2:] in {("Segmentation", "train.txt"), ("Segmentation", "val.txt")}:
                lists[pure.stem] = file.read().decode().split()
    if not names:
        raise SourceError(f"{path}: no images in JPEGImages/")
    run.found = {"images": len(names), "masks": len(masks)}
    users = {}
    if run.options.get("clients"):
        if missing := {"train", "val"} - lists.keys():
            raise SourceError(f"{path}: lacks ImageSets/Segmentation/{min(missing)}.txt")
        usable = {stem for stem in names & masks.keys() if _classes(indices(masks[stem], f"{path}: mask {stem}")).size}
        users = _users(run, *([stem for stem in sorted(set(lists[split])) if stem in usable] for split in ("train", "val")))
    rng, demand = run.rng("public"), public_part(run.options)
    taken = {stem for stems in users.values() for stem in stems} if users else run.images_in(_MLC)
    free = sorted(names - taken)
    (n,) = fit([demand], len(free))
    run.sizes.append(outcome(demand, n))
    public = set(rng.permutation(free)[:n].tolist())

    split_of = {stem: split for (split, _), stems in users.items() for stem in stems}
    kept = {}
    with opened(path) as members:
        for name, file in members:
            pure = PurePosixPath(name)
            if pure.parent.name == "JPEGImages" and (pure.stem in split_of or pure.stem in public):
                folder = _PUBLIC.folder if pure.stem in public else f"{_MLC.folder}/images/{split_of[pure.stem]}"
                kept[pure.stem] = keep(file.read(), pure.name, run.root / folder, run.options.get("size"))
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(CLASSES)]
    for (split, client), stems in users.items():
        images, annotations = [], []
        for i, stem in enumerate(stems):
            name, (width, height) = kept[stem]
            images.append({"id": i + 1, "file_name": name, "width": width, "height": height})
            mask = indices(masks[stem], f"{path}: mask {stem}")
            small = np.asarray(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST))
            for c in _classes(mask).tolist():
                annotations.append({"id": len(annotations) + 1, "image_id": i + 1, "category_id": c} | outline(small == c))
        write_instances(run.root / _MLC.folder / split / f"client_{client}.json", images, annotations, categories)


def _classes(mask: np.ndarray) -> np.ndarray:
    """Class ids 1..20 that are present; 0 is the ground and 255 the rim that belongs to none."""
    counts = np.bincount(mask.ravel(), minlength=256)[1 : len(CLASSES) + 1]
    return np.flatnonzero(counts >= max(1, LEAST_SHARE * mask.size)) + 1


def _users(run: Run, train: list[str], test: list[str]) -> dict[tuple[str, int], list[str]]:
    """Image stems by split and client."""
    sizes, rng = sized("MLC", run.options), run.rng("users")
    parts = user_parts(sizes, run.options)
    got = fit(parts, len(train))
    demand = Part("test", sizes.test, sizes.users)
    (n,) = fit([demand], len(test))
    run.sizes += [outcome(part, g, "MLC") for part, g in zip([*parts, demand], [*got, n], strict=True)]
    users = {}
    for stems, wants in ((train, [(part.what, g) for part, g in zip(parts, got, strict=True)]), (test, [("test", n)])):
        holders = [(what, client, g) for what, g in wants for client in range(sizes.users)]
        rows = divide(np.zeros(len(stems), int), [g for *_, g in holders], np.ones((len(holders), 1)), rng)
        users |= {(what, client): sorted(stems[i] for i in r) for (what, client, _), r in zip(holders, rows, strict=True)}
    return users
