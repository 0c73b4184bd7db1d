"""Writers of client files and public sets in the README's ``data_dir`` layout; every data set uses
these functions.

A labelled set, which a long-tailed federation divides when it runs, has a folder ``FedLT/<name>``:
``classes.json`` has the classes' names, and each of ``train`` and ``test`` is an array, or a list
of images below ``images``.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from pycocotools import mask as coco_mask

from fedmuscle_lib.core.files import put
from fedmuscle_lib.data.labelled_sets import FOLDER
from fedmuscle_lib.data.public import CAPTIONS

# Folders below the data directory, for files of one's own. The original README's, with the
# validation split and this project's others.
_SPLITS = ("train", "val", "test")
LAYOUT = (
    *(
        f"{task}/{part}{split}"
        for task in ("MLC_setup", "semseg_setup")
        for part in ("", "images/")
        for split in _SPLITS
    ),
    *(
        f"IC/{name}/{split}"
        for name in ("CIFAR100", "CIFAR10", "FOOD101", "CALTECH101")
        for split in _SPLITS
    ),
    *(f"TC/{name}/{split}" for name in ("yahoo_qa", "ag_news") for split in _SPLITS),
    *(
        "MLC_setup/public_Pascal",
        "MLC_setup/public_COCO",
        "IC/CIFAR100/public",
        "IC/CIFAR10/public",
        "TC/flicker_public/images",
    ),
    *("public/synthetic", "public/noise"),
)


def write_pickle(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Write an image classification client: a dict with "data" (n, h, w, 3) uint8 and "labels"
    (list of int).
    """
    put(
        path, pickle.dumps({"data": images, "labels": [int(label) for label in labels]}, protocol=4)
    )


def write_texts(path: Path, texts: Sequence[str], labels: Sequence[int] | np.ndarray) -> None:
    """Write a text client: a dict with "texts" (list of str) and "labels" (list of int)."""
    put(
        path,
        pickle.dumps(
            {"texts": list(texts), "labels": [int(label) for label in labels]}, protocol=4
        ),
    )


def write_captions(folder: Path, captions: Mapping[str, Sequence[str]]) -> None:
    """Write the captions of a folder's images, by the images' file names."""
    put(folder / CAPTIONS, pickle.dumps(captions, protocol=4))


def write_images(
    folder: Path, images: np.ndarray, stem: str = "", compress_level: int = 1
) -> list[str]:
    """Write images (n, h, w, 3) uint8 as PNG files; return their names in order.

    Args:
        compress_level: PNG's, 0 to 9. Not compressed, at 0, an image has the same bytes whichever
            zlib writes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{stem}{i:06d}.png" for i in range(len(images))]
    for name, image in zip(names, images, strict=True):
        Image.fromarray(image).save(folder / name, optimize=False, compress_level=compress_level)
    return names


def labelled(name: str) -> str:
    """Return the folder of a labelled set, below the data directory."""
    return f"{FOLDER}/{name}"


def write_classes(folder: Path, names: Sequence[str]) -> None:
    """Write the names of a labelled set's classes; a label is a place in them."""
    put(folder / "classes.json", json.dumps(list(names), indent=1).encode())


def write_arrays(folder: Path, split: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Write a split of a labelled set: images (n, h, w, 3) uint8 and labels (n,), uncompressed."""
    content = io.BytesIO()
    np.savez(content, images=images, labels=labels.astype(np.int64))
    put(folder / f"{split}.npz", content.getvalue())


def write_list(folder: Path, split: str, images: Iterable[tuple[str, int]]) -> None:
    """Write a split of a labelled set: for each image its path below ``images`` and its label."""
    put(folder / f"{split}.txt", "".join(f"{name} {label}\n" for name, label in images).encode())


def write_coco(
    path: Path,
    names: Sequence[str],
    classes: np.ndarray,
    masks: np.ndarray,
    categories: dict[int, str],
    size: tuple[int, int],
) -> None:
    """Write a COCO instances file from masks.

    Args:
        names: file name of each image.
        classes: (n, k) class ids, -1 for an empty slot.
        masks: (n, k, h, w) bool, the instances' masks.
        categories: class id -> name, for every class of the task.
        size: (height, width) of the images.
    """
    ids = {c: i + 1 for i, c in enumerate(categories)}
    images = [
        {"id": i + 1, "file_name": name, "height": size[0], "width": size[1]}
        for i, name in enumerate(names)
    ]
    annotations: list[dict] = []
    for i, row in enumerate(classes):
        for slot in np.flatnonzero(row >= 0):
            annotations.append(
                {"id": len(annotations) + 1, "image_id": i + 1, "category_id": ids[row[slot]]}
                | outline(masks[i, slot])
            )
    write_instances(
        path, images, annotations, [{"id": ids[c], "name": name} for c, name in categories.items()]
    )


def write_instances(
    path: Path, images: list[dict], annotations: list[dict], categories: list[dict]
) -> None:
    """Write a COCO instances file from records in COCO's format."""
    put(
        path,
        json.dumps(
            {"images": images, "annotations": annotations, "categories": categories}
        ).encode(),
    )


def outline(mask: np.ndarray) -> dict:
    """Return the fields of a COCO annotation that follow from a mask (h, w) bool: run lengths,
    bounding box and area.
    """
    rle = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {
        "bbox": [float(x) for x in coco_mask.toBbox(rle)],
        "area": float(coco_mask.area(rle)),
        "iscrowd": 0,
        "segmentation": {"size": list(rle["size"]), "counts": rle["counts"].decode("ascii")},
    }
