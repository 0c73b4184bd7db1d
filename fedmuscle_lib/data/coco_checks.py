"""COCO instances files: parsed, and checked in one pass before anything is made of them.

pycocotools is C and trusts what it is given: run lengths that don't fit an image, or a polygon far
outside of it, are written behind an array's end or fill the memory. It sees masks only after they
were checked here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Generator, Iterator
from itertools import islice, pairwise
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask

from fedmuscle_lib.core.errors import DataError, shown
from fedmuscle_lib.data.images import MOST_PIXELS

LISTS = ("images", "annotations", "categories")
_ONE = {"images": "image", "categories": "category", "annotations": "annotation"}
MOST_BYTES = 1 << 29  # COCO's own annotations of train2017 have 449 MB
_LISTED = 5  # faults that an error names
_MOST_CATEGORIES = 10_000
_NO_NAME = re.compile(
    r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]"
)  # control characters and lone surrogates
_LONGEST_NAME, _LONGEST_PATH = (
    255,
    1024,
)  # bytes of each part of a file's name, as most file systems have it; characters of the whole
_TURNS = 100  # the longest outline, in circumferences of its image


def parse_instances(content: bytes, name: str) -> dict[str, list[dict[str, Any]]]:
    """The records of an instances file; nothing about them is checked but that they are there.

    Raises:
        DataError: naming ``name``; it is not JSON, names a field twice, or lacks one of ``LISTS``.
    """
    try:
        document = json.loads(content, object_pairs_hook=_without_repeats)
    except RecursionError:
        raise DataError(
            f"{name}: not a COCO instances file (its lists lie too deep in each other)"
        ) from None
    except ValueError as error:  # also an integer of more digits than Python reads
        raise DataError(f"{name}: not a COCO instances file ({error})") from None
    for kind in LISTS:
        records = document.get(kind) if isinstance(document, dict) else None
        if not isinstance(records, list):
            raise DataError(f"{name}: not a COCO instances file (it lacks a list of {kind})")
        if odd := [row for row, record in enumerate(records) if not isinstance(record, dict)]:
            raise DataError(
                f"{name}: not a COCO instances file (number {odd[0]} of its {kind} is no record)"
            )
    return document


def check_instances(
    document: dict[str, list[dict[str, Any]]], name: str, *, masks: bool = False
) -> None:
    """Check the records of an instances file: ids, references, names and sizes.

    Args:
        masks: whether sizes and segmentations must be there, and are checked.

    Raises:
        DataError: naming ``name`` and the records; it counts all faults and lists the first of
            them.
    """
    found = _faults(document, masks)
    first = list(islice(found, _LISTED))
    if more := sum(1 for _ in found):
        first.append(f"and {more:,} more faults")
    if first:
        raise DataError(f"{name}: {'; '.join(first)}")


def plain_mask(segmentation: Any, height: int, width: int) -> np.ndarray:
    """(height, width) bool of a segmentation that was checked."""
    if isinstance(segmentation, list):
        rle = coco_mask.merge(coco_mask.frPyObjects(segmentation, height, width))
    elif isinstance(segmentation["counts"], list):
        rle = coco_mask.frPyObjects(segmentation, height, width)
    else:
        rle = segmentation
    return coco_mask.decode(rle).astype(bool)


def segmentation_fault(segmentation: Any, height: int, width: int) -> str:
    """Return what is wrong with the segmentation of an object in an image of this size; empty if
    nothing is.
    """
    if isinstance(segmentation, list):
        if not segmentation:
            return "a segmentation without polygons"
        return next(
            filter(None, (_polygon_fault(polygon, height, width) for polygon in segmentation)), ""
        )
    if not isinstance(segmentation, dict):
        return (
            "no segmentation"
            if segmentation is None
            else f"a segmentation that is {shown(segmentation)}"
        )
    if segmentation.get("size") != [height, width] or not all(
        type(side) is int for side in segmentation["size"]
    ):
        return (
            f"a mask of size {shown(segmentation.get('size'))}, height and width, in an image of"
            f" {height} x {width}"
        )
    counts = segmentation.get("counts")
    lengths = (
        _run_lengths(counts)
        if isinstance(counts, str)
        else counts
        if _are_integers(counts)
        else None
    )
    if lengths is None:
        return "run lengths that can't be read"
    if min(lengths, default=0) < 0 or sum(lengths) != height * width:
        return f"run lengths that do not add up to its image's {height} x {width} pixels"
    return ""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"a record has the field {shown(max(names, key=names.count))} twice")
    return record


def _faults(document: dict[str, list[dict[str, Any]]], masks: bool) -> Iterator[str]:
    known: dict[str, set[Any]] = {}
    for kind in LISTS:
        if kind != "annotations" and not document[kind]:
            yield f"it has no {kind}"
        known[kind] = yield from _ids(kind, document[kind])
    sizes = {}
    names: set[str] = set()
    for row, image in enumerate(document["images"]):
        where = _where("images", image, row)
        if fault := _name_fault(image.get("file_name")):
            yield f"{where} has {fault}"
        elif (plain := str(PurePosixPath(image["file_name"]))) in names:
            yield f"{where} has the file {shown(plain)} of another image"
        else:
            names.add(plain)
        if masks or "width" in image or "height" in image:
            height, width = (image.get(side) for side in ("height", "width"))
            if not (
                type(height) is type(width) is int
                and height > 0
                and width > 0
                and height * width <= MOST_PIXELS
            ):
                yield f"{where} has the height and width {shown(height)} and {shown(width)}"
            elif _is_id(image.get("id")):
                sizes[image["id"]] = height, width
    if len(document["categories"]) > _MOST_CATEGORIES:
        yield (
            f"it has {len(document['categories']):,} categories; at most {_MOST_CATEGORIES:,} are"
            " read"
        )
    labels: set[str] = set()
    for row, category in enumerate(document["categories"]):
        label = category.get("name", "")
        if not isinstance(label, str) or (label and label in labels):
            yield (
                f"{_where('categories', category, row)} has the name"
                f" {shown(label)}{' of another category' * isinstance(label, str)}"
            )
        else:
            labels.add(label)
    for row, annotation in enumerate(document["annotations"]):
        where = _where("annotations", annotation, row)
        image_id, category_id = annotation.get("image_id"), annotation.get("category_id")
        if not _is_id(image_id) or image_id not in known["images"]:
            yield f"{where} is of the image {shown(image_id)}, which the file does not list"
        if not _is_id(category_id) or category_id not in known["categories"]:
            yield f"{where} has the category {shown(category_id)}, which the file does not list"
        if type(crowd := annotation.get("iscrowd", 0)) not in (int, bool) or crowd not in (0, 1):
            yield f"{where} has iscrowd {shown(crowd)}, neither 0 nor 1"
        if not _is_number(area := annotation.get("area", 0)) or area < 0:
            yield f"{where} has the area {shown(area)}"
        size = sizes.get(image_id) if masks and _is_id(image_id) else None
        if size and (fault := segmentation_fault(annotation.get("segmentation"), *size)):
            yield f"{where} has {fault}"


def _ids(kind: str, records: list[dict[str, Any]]) -> Generator[str, None, set[Any]]:
    """The faults of the records' ids; returns the ids.

    An annotation needs none: nothing refers to it.
    """
    one = _ONE[kind]
    found: dict[Any, int] = {}
    for row, record in enumerate(records):
        given = record.get("id")
        if given is None and kind == "annotations":
            continue
        if not _is_id(given):
            yield f"number {row} of its {kind} has the id {shown(given)}; ids are integers or texts"
        elif given in found:
            yield f"{one} {shown(given)} stands there twice"
        elif found and type(given) is not type(next(iter(found))):
            yield f"{one} {shown(given)} has an id of another type than the others"
        else:
            found[given] = row
    return set(found)


def _where(kind: str, record: dict[str, Any], row: int) -> str:
    return (
        f"{_ONE[kind]} {shown(record['id'])}"
        if _is_id(record.get("id"))
        else f"number {row} of its {kind}"
    )


def _is_integer(value: Any) -> bool:
    """Return whether a value is an integer of a size that is read; those of more bits could be made
    to collide in sets.
    """
    return type(value) is int and value.bit_length() <= 60


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or _is_integer(value)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or type(value) is float and math.isfinite(value)


def _are_integers(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_integer, values))


def _name_fault(name: Any) -> str:
    """Return what is wrong with the name of an image's file, which must lie in the folder of
    images.
    """
    if not isinstance(name, str) or not name:
        return f"the file name {shown(name)}"
    if _NO_NAME.search(name):
        return f"the file name {shown(name)}, with characters that no name has"
    if (
        max(len(part.encode()) for part in name.split("/")) > _LONGEST_NAME
        or len(name) > _LONGEST_PATH
    ):
        return f"a file name of {len(name):,} characters, {shown(name)}"
    parts = PurePosixPath(name).parts
    if "\\" in name:
        return f"the file name {shown(name)}, with a backslash; / stands between folders"
    if not parts or parts[0] == "/" or ".." in parts or PureWindowsPath(name).drive:
        return f"the file name {shown(name)}, which leaves the folder of images"
    return ""


def _polygon_fault(polygon: Any, height: int, width: int) -> str:
    if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
        return f"the polygon {shown(polygon)}, not three points or more"
    if not all(map(_is_number, polygon)):
        return "a polygon with coordinates that are not finite numbers"
    x, y = polygon[::2], polygon[1::2]
    if min(x) < -width or max(x) > 2 * width or min(y) < -height or max(y) > 2 * height:
        return (
            f"a polygon from ({min(x):.6g}, {min(y):.6g}) to ({max(x):.6g}, {max(y):.6g}) in an"
            f" image of {width} x {height}"
        )
    length = sum(math.dist(a, b) for a, b in pairwise([*zip(x, y, strict=True), (x[0], y[0])]))
    if length > _TURNS * 2 * (height + width):
        return f"a polygon of {len(x):,} points whose outline is {length:.6g} pixels long"
    return ""


def _run_lengths(text: str) -> list[int] | None:
    """The run lengths that a text stands for; None if it is none of COCO's.

    Six bits a character, from "0" on: five of a number, the lowest first, and one that says whether
    it goes on. From the fourth number on, each is the difference to the last but one. The highest
    bit of a number is its sign.
    """
    if not text.isascii():
        return None
    numbers: list[int] = []
    number = place = 0
    for code in text.encode():
        bits = code - ord("0")
        if not 0 <= bits < 64 or place > 30:
            return None
        number |= (bits & 31) << place
        place += 5
        if bits & 32:
            continue
        if bits & 16:  # two's complement
            number -= 1 << place
        if len(numbers) > 2:
            number += numbers[-2]
        numbers.append(number)
        number = place = 0
    return None if place or not numbers else numbers
