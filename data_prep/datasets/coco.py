"""COCO 2017: the MLC and SS users and a public set; only the images that these need are fetched.

The MLC users' test images come from val2017, all other images from train2017: of the 4952 annotated
images of val2017, two SS users could not get Appendix G's 3000 each. All sets are disjoint, also
from the parts that an earlier run made and this run keeps. Users get annotated images, with COCO's
own records. Parsing the annotations of train2017 takes 3 to 4 GB of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import numpy as np
from pycocotools import mask as coco_mask
from tqdm import tqdm

from data_prep.datasets.catalogue import described
from data_prep.datasets.partition import (
    photo_folders,
    photo_places,
    photo_users,
    public_part,
    sized,
)
from data_prep.io.archives import needed, opened
from data_prep.io.build import Place, Run, chosen
from data_prep.io.entry import Archive, SourceError
from data_prep.io.image_files import keep
from data_prep.io.writers import outline, write_instances
from fedmuscle_lib.core.files import parse_json

PARTS = photo_places("public_COCO")
ENTRIES = (described("coco"),)
_CONNECTIONS = 8
_SPLITS = {
    f"instances_{split}.json": split for split in ("train2017", "val2017")
}  # by the file of their annotations
Image = tuple[str, str]  # the archive that it is in, such as train2017, and file name


def places(options: dict) -> tuple[Place, ...]:
    return tuple(PARTS[part] for part in _parts(options))


def write(run: Run) -> None:
    """Write the data set of a run; raises SourceError if images are too few or can't be fetched."""
    instances = _instances(run)
    run.found = {
        "train": len(instances["train2017"]["images"]),
        "test": len(instances["val2017"]["images"]),
    }
    others = set().union(
        *(run.images_in(place) for part, place in PARTS.items() if part not in _parts(run.options))
    )
    instances["train2017"]["images"] = [
        i
        for i in instances["train2017"]["images"]
        if PurePosixPath(i["file_name"]).stem not in others
    ]
    train, test = (_annotated(instances[split]) for split in ("train2017", "val2017"))
    users, public = _divide(run, train, test, instances["train2017"]["images"])

    images = {
        (part, split, i): [(_from(part, split), record["file_name"]) for record in own]
        for (part, split, i), own in users.items()
    }
    folders = photo_folders(
        run, images, [("train2017", record["file_name"]) for record in public], PARTS
    )
    listed = {
        (split, image["file_name"]): image
        for split, content in instances.items()
        for image in content["images"]
    }
    kept: dict[Image, tuple[str, tuple[int, int]]] = {}

    def take(image: Image, content: bytes) -> None:
        sides = listed[image]["width"], listed[image]["height"]
        kept[image] = keep(content, image[1], folders[image], run.options.get("size"), sides)

    gather(run, {image: listed[image].get("coco_url", "") for image in folders}, take)
    for (part, split, client), records in users.items():
        source = _from(part, split)
        records = [record for record in records if (source, record["file_name"]) in kept]
        least = sized(part.upper(), run.options).local if split == "train" else 0
        if len(records) < least:
            raise SourceError(
                f"{part.upper()} client_{client}: {len(records)} of its training images could be"
                f" had, {least} are needed"
            )
        path = run.root / PARTS[part].folder / split / f"client_{client}.json"
        _write_client(
            path,
            records,
            instances[source],
            {record["id"]: kept[source, record["file_name"]] for record in records},
        )


def _parts(options: dict) -> list[str]:
    return chosen(options, PARTS, default=",".join(PARTS))


def _from(part: str, split: str) -> str:
    return "val2017" if (part, split) == ("mlc", "test") else "train2017"


def _instances(run: Run) -> dict[str, dict]:
    """Return the annotations of each split."""
    files = needed(run.archive(run.entry.archives[0]), _SPLITS)
    instances = {_SPLITS[file]: parse_json(*own) for file, own in files.items()}
    if left_out := sum(map(_without_lines, instances.values())):
        run.say(f"{run.entry.name}: {left_out:,} polygons of fewer than three points were left out")
    return instances


def _without_lines(instances: dict) -> int:
    """Remove polygons of fewer than three points, and objects that have no other; return how
    many polygons those were.
    """
    removed, kept = 0, []
    for annotation in instances["annotations"]:
        polygons = annotation.get("segmentation")
        if isinstance(polygons, list) and polygons:
            annotation["segmentation"] = [points for points in polygons if len(points) >= 6]
            removed += len(polygons) - len(annotation["segmentation"])
            if not annotation["segmentation"]:
                continue
        kept.append(annotation)
    instances["annotations"] = kept
    return removed


def _annotated(instances: dict) -> list[dict]:
    """Return the records of the annotated images, sorted by id."""
    annotated = {annotation["image_id"] for annotation in instances["annotations"]}
    return sorted(
        (image for image in instances["images"] if image["id"] in annotated),
        key=lambda image: image["id"],
    )


def _divide(
    run: Run, train: list[dict], test: list[dict], everything: list[dict]
) -> tuple[dict[tuple, list[dict]], list[dict]]:
    """Return the image records of each user, by part, split and client, and those of the public
    set.
    """
    parts, rng = _parts(run.options), run.rng()
    demand = public_part(run.options if "public" in parts else {})
    users, n = photo_users(run, train, test, parts, rng, beside=demand)
    taken = {record["id"] for records in users.values() for record in records}
    free = sorted(
        (image for image in everything if image["id"] not in taken), key=lambda image: image["id"]
    )
    return users, [free[i] for i in rng.permutation(len(free))[:n]]


def gather(run: Run, wanted: dict[Image, str], take: Callable[[Image, bytes], None]) -> None:
    """Call ``take`` with each wanted image: from an archive if it is at hand, else fetched from its
    official address.

    Args:
        wanted: the official address of each image.

    Raises:
        SourceError: at the end, if images were missing or refused by ``take``, unless
            ``skip_missing`` is given.
    """
    lost: dict[Image, str] = {}
    for archive in run.entry.archives[1:]:
        split = archive.name.removesuffix(".zip")
        names = {image[1]: url for image, url in wanted.items() if image[0] == split}
        if not names:
            continue
        if not run.source.official and run.source.size(archive) is not None:
            lost |= _from_zip(run.archive(archive), split, names, take)
        else:
            lost |= _one_by_one(run, split, names, take)
    if lost:
        examples = "; ".join(
            f"{split}/{name}: {why}" for (split, name), why in list(lost.items())[:3]
        )
        run.say(
            f"{run.entry.name}: {len(lost):,} of {len(wanted):,} images could not be had:"
            f" {examples}"
        )
        if not run.options.get("skip_missing"):
            raise SourceError(
                f"{len(lost):,} of {len(wanted):,} images could not be had ({examples}); the others"
                " are kept: run the same command again to fetch what is missing, or pass"
                " --skip-missing to do without"
            )


def _from_zip(
    path: Path, split: str, names: dict[str, str], take: Callable[[Image, bytes], None]
) -> dict[Image, str]:
    """Return the missing images with the reason."""
    lost = {(split, name): f"not in {path.name}" for name in sorted(names)}
    with opened(path) as members:
        for member, file in members:
            image = split, PurePosixPath(member).name
            if image in lost:
                del lost[image]
                take(image, file.read())
    return lost


def _one_by_one(
    run: Run, split: str, names: dict[str, str], take: Callable[[Image, bytes], None]
) -> dict[Image, str]:
    """Return the missing images with the reason; remove a download that is no image, so that the
    next run fetches it again.
    """
    source, lost = run.source, {}
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        paths = {
            name: pool.submit(source.obtain, Archive(f"{split}/{name}", url), quiet=True)
            for name, url in names.items()
        }
        try:
            for name, path in tqdm(
                paths.items(), desc=split, unit="image", leave=False, disable=None
            ):
                try:
                    take((split, name), path.result().read_bytes())
                except SourceError as error:
                    lost[split, name] = str(error)
                    if not source.folder:  # what was fetched is no image
                        (source.store / split / name).unlink(missing_ok=True)
        finally:
            pool.shutdown(
                cancel_futures=True
            )  # an interrupt or a full disk does not wait for all that is queued
    return lost


def _write_client(
    path: Path, records: list[dict], instances: dict, kept: dict[int, tuple[str, tuple[int, int]]]
) -> None:
    """Write a client's file: its images as stored, and their annotations scaled to them."""
    images, annotations = [], []
    ids = {record["id"]: record for record in records}
    for record in records:
        name, (width, height) = kept[record["id"]]
        images.append(record | {"file_name": name, "width": width, "height": height})
    for annotation in instances["annotations"]:
        if image := ids.get(annotation["image_id"]):
            old, new = (image["width"], image["height"]), kept[image["id"]][1]
            annotations.append(annotation if old == new else _scaled(annotation, old, new))
    write_instances(path, images, annotations, instances["categories"])


def _scaled(annotation: dict, old: tuple[int, int], new: tuple[int, int]) -> dict:
    """Return the annotation for an image that was resized from ``old`` to ``new`` (width,
    height).
    """
    sx, sy = new[0] / old[0], new[1] / old[1]
    segmentation = annotation.get("segmentation", [])
    if isinstance(segmentation, list):
        segmentation = [
            [value * (sy if i % 2 else sx) for i, value in enumerate(polygon)]
            for polygon in segmentation
        ]
    else:  # a crowd's run lengths
        columns, rows = (
            ((np.arange(n) + 0.5) * o / n).astype(int) for n, o in zip(new, old, strict=True)
        )
        if isinstance(segmentation["counts"], list):
            segmentation = coco_mask.frPyObjects(segmentation, old[1], old[0])
        mask = coco_mask.decode(segmentation)
        segmentation = outline(mask[rows][:, columns])["segmentation"]
    x, y, width, height = annotation["bbox"]
    scaled = {
        "segmentation": segmentation,
        "bbox": [x * sx, y * sy, width * sx, height * sy],
        "area": annotation["area"] * sx * sy,
    }
    return annotation | scaled
