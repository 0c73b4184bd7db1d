"""COCO instances files: valid ones with one to three records changed, values of other types
anywhere, and scrambled bytes.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hostile.kind import Case, Kind, scrambled

from data_prep.io.writers import write_coco, write_images
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.tasks import TASKS

SIZE = 8
_CLASSES = np.array([[3, 7], [7, -1], [3, -1]])
_STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 0.5, 1e308, float("nan"), float("inf"), -float("inf"), 1 << 31, 1 << 61, 10**400, "", "x", "1", "\ud800", "a\nb",
    "\x1b[2J", [], {}, [[]], [[[]]], {"id": 1}, [1] * 7, "P1" * 50_000, [0] * 50_000,
)  # fmt: skip
_OUTSIDE = (
    "../x.png",
    "/etc/passwd",
    "a/../../x.png",
    "..",
    ".",
    "",
    "c:x.png",
    "..\\x.png",
    "\ud800.png",
    "x\0.png",
    "\x1b[2J.png",
)
_document: dict[str, Any] = {}


def _prepare(folder: Path) -> None:
    masks = np.zeros((*_CLASSES.shape, SIZE, SIZE), bool)
    masks[:, 0, 1:4, 2:6] = masks[:, 1, 5:, :3] = True
    path = folder / KIND.file
    for task in ("SS", "MLC"):
        names = write_images(
            folder / TASKS[task].folder / "images/train",
            np.zeros((len(_CLASSES), SIZE, SIZE, 3), np.uint8),
        )
    write_coco(path, names, _CLASSES, masks, {3: "three", 7: "seven"}, (SIZE, SIZE))
    _document.update(json.loads(path.read_text()))
    _document["annotations"][1]["segmentation"] = [[1, 1, 5, 1, 5, 5]]


def _record(document: dict, kind: str, draws: random.Random) -> dict:
    return draws.choice(document[kind])


def _twice(kind: str, field: str = "id") -> Callable[[dict, random.Random], None]:
    def edit(document: dict, draws: random.Random) -> None:
        first, second = draws.sample(document[kind], 2)
        second[field] = first[field]

    return edit


def _polygon(draws: random.Random) -> list[float]:
    good = [draws.uniform(0, SIZE) for _ in range(2 * draws.randint(3, 6))]
    match draws.randrange(4):
        case 0:
            good[draws.randrange(len(good))] = draws.choice(
                (float("nan"), float("inf"), 1e9, -1e9, 1e308, 10**400)
            )
            return good
        case 1:
            return good[: draws.choice((0, 1, 2, 3, 4, 5))]
        case 2:
            return [*good, 1.0]
        case _:
            return [0, 0, SIZE, SIZE] * draws.choice((1_000, 100_000))


def _lengths(draws: random.Random) -> Any:
    return draws.choice(
        (
            [-SIZE, 2 * SIZE * SIZE],
            [SIZE * SIZE + 1],
            [1 << 32, SIZE * SIZE],
            [],
            ["64"],
            None,
            7,
            "",
            "P1",
            "o" * draws.randint(1, 40),
            "0" * draws.randint(1, 1000),
            "\x7f",
            "é",
        )
    )


def _set(
    kind: str, field: str, value: Callable[[random.Random], Any]
) -> Callable[[dict, random.Random], None]:
    return lambda document, draws: _record(document, kind, draws).update({field: value(draws)})


def _resized(document: dict, draws: random.Random) -> None:
    """Say another size of an image, and polygons that fit both, so that nothing but its file shows
    it.
    """
    image = _record(document, "images", draws)
    image.update(
        draws.choice(
            ({"height": SIZE + 1}, {"width": SIZE // 2}, {"height": 2 * SIZE, "width": 2 * SIZE})
        )
    )
    for annotation in document["annotations"]:
        if annotation["image_id"] == image["id"]:
            annotation["segmentation"] = [[1, 1, 3, 1, 3, 3]]


# what must be refused, and the change
_BAD: dict[str, Callable[[dict, random.Random], None]] = {
    "an image twice": _twice("images"),
    "a category twice": _twice("categories"),
    "a category's name twice": _twice("categories", "name"),
    "an annotation twice": _twice("annotations"),
    "a file of two images": _twice("images", "file_name"),
    "an annotation of no image": _set("annotations", "image_id", lambda draws: draws.choice((0, 99, "1", None, [], 1.0))),
    "an annotation of no category": _set("annotations", "category_id", lambda draws: draws.choice((0, 99, "1", None, {}, 1.0))),
    "a file outside": _set("images", "file_name", lambda draws: draws.choice(_OUTSIDE)),
    "a size that is none": _set("images", "height", lambda draws: draws.choice((0, -8, 8.5, "8", None, True, 1 << 40, float("nan")))),
    "a size that is not its file's": _resized,
    "a huge picture": lambda document, draws: _record(document, "images", draws).update(height=1 << 14, width=1 << draws.randint(13, 20)),
    "an area that is none": _set("annotations", "area", lambda draws: draws.choice((float("nan"), -1, "4", None, []))),
    "a polygon that is none": _set("annotations", "segmentation", lambda draws: [_polygon(draws)]),
    "a mask of another size": _set(
        "annotations", "segmentation", lambda draws: {"size": [SIZE, draws.choice((0, 7, 1 << 20))], "counts": [64]}
    ),
    "run lengths that are none": _set("annotations", "segmentation", lambda draws: {"size": [SIZE, SIZE], "counts": _lengths(draws)}),
    "an image's id of another type": _set("images", "id", lambda draws: draws.choice(("1", 1.0, True, None, [1]))),
}  # fmt: skip


def _anywhere(document: Any, draws: random.Random) -> None:
    """Put a strange value at a place that is drawn, or leave it out."""
    inside = document
    while True:
        key = draws.choice([*inside]) if isinstance(inside, dict) else draws.randrange(len(inside))
        if isinstance(inside[key], dict | list) and inside[key] and draws.random() < 0.8:
            inside = inside[key]
            continue
        if draws.random() < 0.2:
            del inside[key]
        else:
            inside[key] = copy.deepcopy(draws.choice(_STRANGE))  # the next change may go into it
        return


def _case(draws: random.Random) -> Case:
    document = copy.deepcopy(_document)
    choice = draws.random()
    if choice < 0.1:
        return Case(_written(document))
    if choice < 0.25:
        return Case(scrambled(json.dumps(document).encode(), draws))
    if choice < 0.55:
        for _ in range(draws.randint(1, 3)):
            if document:
                _anywhere(document, draws)
        return Case(_written(document))
    if choice < 0.6:
        n = draws.choice((100, 100_000))
        return Case(
            draws.choice((b"[" * n, b'{"images":' * n, b'{"images": [' + b"9" * n + b"]}")),
            "deep or long JSON",
        )
    if choice < 0.65:
        name = draws.choice(("images", "annotations", "categories"))
        return Case(_written(document)[:-1] + b', "' + name.encode() + b'": []}', "a field twice")
    why, change = draws.choice([*_BAD.items()])
    change(document, draws)
    return Case(_written(document), why)


def _written(document: Any) -> bytes:
    return json.dumps(document).encode()


def _read(folder: Path) -> None:
    """As both tasks do; masks are asked more of, so segmentation comes last."""
    path = folder / KIND.file
    other = folder / TASKS["MLC"].folder / "train/client_0.json"
    other.parent.mkdir(parents=True, exist_ok=True)
    other.unlink(missing_ok=True)
    other.hardlink_to(path)
    try:
        TASKS["MLC"].read(folder, 0, "train", Pixels(SIZE))
    finally:
        TASKS["SS"].read(folder, 0, "train", Pixels(SIZE))


KIND = Kind(
    file=f"{TASKS['SS'].folder}/train/client_0.json",
    prepare=_prepare,
    case=_case,
    read=_read,
    refusals=(DataError,),
)
