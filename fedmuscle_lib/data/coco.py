"""COCO instances files, as multi-label classification and segmentation read them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask
from torch import Tensor

from fedmuscle_lib.core.errors import DataError, prefixed, remark, shown, unreadable
from fedmuscle_lib.core.files import read_json
from fedmuscle_lib.data.encodings import Pixels

Annotation = dict[str, Any]


class Instances:
    """A COCO instances file, whose ids and references were checked.

    Attributes:
        images: ids of its images, ascending: the rows of a user's samples.
        classes: ids of its categories, ascending: the columns of targets.
        names: of the categories, in the same order; empty where the file has none.

    Raises:
        DataError: naming the file, and the record that is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path, document = path, read_json(path)
        with unreadable(f"{path}: not a COCO instances file", but=(DataError,)):
            self._images = _by_id(path, document, "images")
            categories = _by_id(path, document, "categories")
            self._annotations: dict[Any, list[Annotation]] = {image: [] for image in self._images}
            for row, one in enumerate(document["annotations"]):
                for field, known in (("image_id", self._images), ("category_id", categories)):
                    if one[field] not in known:
                        raise DataError(
                            f"{path}: annotation {shown(one.get('id', row))} has the {field}"
                            f" {shown(one[field])}, which no record has"
                        )
                self._annotations[one["image_id"]].append(one)
        if not document["annotations"]:
            remark("%s: it has no annotation: every image is without an object", path)
        self.images: list[Any] = sorted(self._images)
        self.classes: tuple[Any, ...] = tuple(sorted(categories))
        self.names = tuple(categories[category].get("name", "") for category in self.classes)

    def annotations(self, image: Any) -> list[Annotation]:
        """The records of an image's objects."""
        return self._annotations[image]

    def column(self, annotation: Annotation) -> int:
        """Return where in ``classes`` the annotation's category stands."""
        return self.classes.index(annotation["category_id"])

    def mask(self, annotation: Annotation) -> np.ndarray:
        """(height, width) bool, True where the annotation's object is.

        Raises:
            DataError: naming the file and the annotation, as :func:`plain_mask`.
        """
        shape = self.shape(annotation["image_id"])
        where = f"{self._path}: annotation {shown(annotation.get('id'))}"
        with prefixed(where, (ValueError, TypeError, KeyError, OverflowError)):
            return plain_mask(annotation.get("segmentation"), *shape)

    def shape(self, image: Any) -> tuple[int, int]:
        """Height and width of an image in pixels; raises DataError if its record has none."""
        record = self._images[image]
        with prefixed(f"{self._path}: image {shown(image)} lacks", KeyError):
            return record["height"], record["width"]

    def load(self, folder: Path, encoding: Pixels) -> Tensor:
        """The images, whose files are in ``folder``: (n, 3, size, size) uint8.

        Raises:
            DataError: naming the file; it is missing, no image, or of another size than its record
                says, if that says one.
        """
        records = [self._images[image] for image in self.images]
        sides = [(record.get("height"), record.get("width")) for record in records]
        return encoding.load([folder / record["file_name"] for record in records], sides)


def _by_id(path: Path, document: dict[str, Any], kind: str) -> dict[Any, dict[str, Any]]:
    """The records of a kind by their ids; raises DataError if there are none, or two of one id."""
    records = document[kind]
    for id, times in Counter(record["id"] for record in records).items():
        if times > 1:
            raise DataError(f"{path}: the id {shown(id)} of its {kind} is there twice")
    if not records:
        raise DataError(f"{path}: it has no {kind}")
    return {record["id"]: record for record in records}


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
        # a polygon may reach over the edge, but not by a whole image; NaN is nowhere
        points = np.array(polygon, float).reshape(-1, 2) / (width, height)
        if not ((points >= -1) & (points <= 2)).all():
            raise ValueError(f"a polygon is far outside its image of {width} x {height} pixels")
    areas = [polygon for polygon in segmentation if len(polygon) >= 6]
    if not areas:
        return np.zeros((height, width), bool)
    return coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(areas, height, width))).astype(
        bool
    )
