"""COCO instances files, as multi-label classification and segmentation read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask
from torch import Tensor

from fedmuscle_lib.core.errors import DataError, prefixed, remark, shown, unreadable
from fedmuscle_lib.core.files import parse_json, read_bytes
from fedmuscle_lib.data.encodings import Pixels

Annotation = dict[str, Any]
Document = dict[str, list[dict[str, Any]]]


class Instances:
    """A COCO instances file, whose records were checked.

    Args:
        masks: whether the masks of its objects will be asked for, and images must have sizes.

    Attributes:
        images: ids of its images, ascending: the rows of a user's samples.
        classes: ids of its categories, ascending: the columns of targets.
        names: of the categories, in the same order; empty where the file has none.

    Raises:
        DataError: naming the file, and the record that is wrong.
    """

    def __init__(self, path: Path, *, masks: bool = False) -> None:
        self._path, document = path, parse_instances(read_bytes(path), str(path), masks=masks)
        if not document["annotations"]:
            remark("%s: it has no annotation: every image is without an object", path)
        self._images = {image["id"]: image for image in document["images"]}
        self._annotations: dict[Any, list[Annotation]] = {image: [] for image in self._images}
        for annotation in document["annotations"]:
            self._annotations[annotation["image_id"]].append(annotation)
        names = {category["id"]: category.get("name", "") for category in document["categories"]}
        self.images: list[Any] = sorted(self._images)
        self.classes: tuple[Any, ...] = tuple(sorted(names))
        self.names: tuple[str, ...] = tuple(names[category] for category in self.classes)
        self._columns = {category: column for column, category in enumerate(self.classes)}

    def annotations(self, image: Any) -> list[Annotation]:
        """The records of an image's objects."""
        return self._annotations[image]

    def column(self, annotation: Annotation) -> int:
        """Return where in ``classes`` the annotation's category stands."""
        return self._columns[annotation["category_id"]]

    def mask(self, annotation: Annotation) -> np.ndarray:
        """(height, width) bool, True where the annotation's object is.

        Raises:
            DataError: naming the file and the annotation, as :func:`plain_mask`.
        """
        where = f"{self._path}: annotation {shown(annotation.get('id'))}"
        with prefixed(where, (ValueError, TypeError, KeyError, OverflowError)):
            return plain_mask(annotation.get("segmentation"), *self.shape(annotation["image_id"]))

    def shape(self, image: Any) -> tuple[int, int]:
        """Height and width of an image in pixels; of a file that was read with ``masks``."""
        return self._images[image]["height"], self._images[image]["width"]

    def load(self, folder: Path, encoding: Pixels) -> Tensor:
        """The images, whose files are in ``folder``: (n, 3, size, size) uint8.

        Raises:
            DataError: naming the file; it is missing, no image, or of another size than its record
                says, if that says one.
        """
        records = [self._images[image] for image in self.images]
        sides = [
            self.shape(record["id"]) if record.keys() >= {"height", "width"} else None
            for record in records
        ]
        return encoding.load([folder / record["file_name"] for record in records], sides)


def parse_instances(content: bytes, name: str, *, masks: bool = False) -> Document:
    """The records of an instances file, whose ids, references and sizes were checked.

    Args:
        name: of the file, with which an error begins.
        masks: whether each image must have a size.

    Raises:
        DataError: it is not JSON, lacks a list, or a record is wrong, which the text names.
    """
    document = parse_json(content, name)
    for kind in ("images", "annotations", "categories"):
        if not isinstance(document.get(kind), list):
            raise DataError(f"{name}: not a COCO instances file (it lacks a list of {kind})")
    with unreadable(f"{name}: not a COCO instances file", but=(DataError,)):
        for fault in _faults(document, masks):
            raise DataError(f"{name}: {fault}")
    return document


def _faults(document: Document, masks: bool) -> Iterator[str]:
    ids = {
        kind: Counter(record["id"] for record in document[kind])
        for kind in ("images", "categories")
    }
    for kind, found in ids.items():
        if not found:
            yield f"it has no {kind}"
        for id, times in found.items():
            if times > 1:
                yield f"the id {shown(id)} of its {kind} is there twice"
    for image in document["images"]:
        sides = image.get("height"), image.get("width")
        if masks and not all(type(side) is int and side > 0 for side in sides):
            yield f"image {shown(image['id'])} has the height and width {shown(sides)}"
    for row, annotation in enumerate(document["annotations"]):
        for field, kind in (("image_id", "images"), ("category_id", "categories")):
            if annotation[field] not in ids[kind]:
                yield (
                    f"annotation {shown(annotation.get('id', row))} has the {field}"
                    f" {shown(annotation[field])}, which its {kind} lack"
                )


def plain_mask(segmentation: Any, height: int, width: int) -> np.ndarray:
    """(height, width) bool of polygons or run lengths. A polygon of fewer than three points, as
    some tools write, covers nothing.

    Raises:
        ValueError: they are of another size, or far outside the image.
    """
    if not segmentation:
        raise ValueError("it has no segmentation")
    if isinstance(segmentation, dict):
        if segmentation["size"] != [height, width]:
            raise ValueError(
                f"a mask of size {shown(segmentation['size'])}, height and width, in an image of"
                f" {height} x {width}"
            )
        if isinstance(segmentation["counts"], list):
            if sum(segmentation["counts"]) != height * width:
                raise ValueError(
                    f"run lengths that do not add up to its image's {height} x {width} pixels"
                )
            segmentation = coco_mask.frPyObjects(segmentation, height, width)
        return coco_mask.decode(segmentation).astype(bool)
    for polygon in segmentation:
        points, side = np.array(polygon, float).reshape(-1, 2), (width, height)
        # a polygon may reach over the edge, but not by a whole image; NaN is nowhere
        if not ((points >= -np.array(side)) & (points <= 2 * np.array(side))).all():
            (left, top), (right, bottom) = points.min(0), points.max(0)
            raise ValueError(
                f"a polygon from ({left:.6g}, {top:.6g}) to ({right:.6g}, {bottom:.6g}) in an image"
                f" of {width} x {height}"
            )
    areas = [polygon for polygon in segmentation if len(polygon) >= 6]
    if not areas:
        return np.zeros((height, width), bool)
    return coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(areas, height, width))).astype(
        bool
    )
