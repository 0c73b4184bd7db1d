"""COCO instances files, as multi-label classification and segmentation read them."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from fedmuscle_lib.pickles import DataError, read_bytes

Annotation = dict[str, Any]


class Instances:
    """A COCO instances file.

    Attributes:
        images: ids of its images, ascending: the rows of a user's samples.
        classes: ids of its categories, ascending: the columns of targets.

    Raises:
        DataError: naming the file; it is missing, damaged or empty. Every method raises it likewise for what it finds wrong.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        read_bytes(path)  # for the error that names the file
        try:
            with redirect_stdout(io.StringIO()):
                self._coco = COCO(str(path))
            if missing := {"images", "annotations", "categories"} - self._coco.dataset.keys():
                raise KeyError(f"lacks {sorted(missing)}")
            self.classes: tuple[int, ...] = tuple(sorted(set(self._coco.getCatIds())))
            self.images: list[int] = sorted(self._coco.getImgIds())
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise self._unreadable(error) from None
        if not self.images or not self.classes:
            raise DataError(f"{path}: {len(self.images)} images and {len(self.classes)} categories")
        self._columns = {category: column for column, category in enumerate(self.classes)}

    def annotations(self, image: int) -> list[Annotation]:
        """The records of an image's objects."""
        return self._coco.imgToAnns[image]

    def column(self, annotation: Annotation) -> int:
        """Where in ``classes`` the annotation's category stands."""
        category = annotation.get("category_id")
        if category not in self._columns:
            raise DataError(f"{self.path}: annotation {annotation.get('id')} has the category {category!r}, which the file does not list")
        return self._columns[category]

    def mask(self, annotation: Annotation) -> np.ndarray:
        """(height, width) bool, True where the annotation's object is."""
        where = f"{self.path}: annotation {annotation.get('id')}"
        try:
            mask = coco_mask.decode(self._coco.annToRLE(annotation)).astype(bool)
        except Exception as error:  # pycocotools is C: what it raises depends on what is wrong
            raise DataError(f"{where} has no readable segmentation ({type(error).__name__}: {error})") from None
        height, width = self.shape(annotation["image_id"])
        if mask.shape != (height, width):
            raise DataError(f"{where} has a mask of {mask.shape[1]} x {mask.shape[0]} in a picture of {width} x {height}")
        return mask

    def shape(self, image: int) -> tuple[int, int]:
        """Height and width of an image in pixels."""
        return self._of(image, "height"), self._of(image, "width")

    def files(self, folder: Path) -> list[Path]:
        """The images' files in ``folder``."""
        return [folder / self._of(image, "file_name") for image in self.images]

    def _of(self, image: int, field: str) -> Any:
        try:
            return self._coco.imgs[image][field]
        except (KeyError, TypeError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> DataError:
        return DataError(f"{self.path}: not a COCO instances file ({type(error).__name__}: {error})")
