"""COCO instances files, as multi-label classification and segmentation read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedmuscle_lib.core.errors import remark
from fedmuscle_lib.core.files import read_bytes
from fedmuscle_lib.data.coco_checks import MOST_BYTES, check_instances, parse_instances, plain_mask
from fedmuscle_lib.data.encodings import Pixels

Annotation = dict[str, Any]


class Instances:
    """A COCO instances file, checked as a whole.

    Args:
        masks: whether the masks of its objects will be asked for, and must be there.

    Attributes:
        images: ids of its images, ascending: the rows of a user's samples.
        classes: ids of its categories, ascending: the columns of targets.
        names: of the categories, in the same order; empty where the file has none.

    Raises:
        DataError: naming the file, and the records that are wrong.
    """

    def __init__(self, path: Path, *, masks: bool = False) -> None:
        document = parse_instances(read_bytes(path, MOST_BYTES), str(path))
        check_instances(document, str(path), masks=masks)
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
        """(height, width) bool, True where the annotation's object is."""
        return plain_mask(annotation["segmentation"], *self.shape(annotation["image_id"]))

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
            (record["height"], record["width"]) if "height" in record else None
            for record in records
        ]
        return encoding.load([folder / record["file_name"] for record in records], sides)
