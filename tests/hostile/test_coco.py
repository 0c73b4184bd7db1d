"""A COCO file is checked as a whole before anything is made of it: each fault is named with its
record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from data_prep.io.writers import write_coco, write_images
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.coco import Instances
from fedmuscle_lib.data.coco_checks import segmentation_fault
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.tasks import TASKS

SIZE = 8
CLASSES = np.array([[3, 7], [7, -1], [3, -1]])


def write_valid(path: Path) -> dict[str, Any]:
    """A valid file with three images, and its content."""
    masks = np.zeros((*CLASSES.shape, SIZE, SIZE), bool)
    masks[:, 0, 1:4, 2:6] = masks[:, 1, 5:, :3] = True
    images = np.random.RandomState(0).randint(0, 256, (len(CLASSES), SIZE, SIZE, 3), dtype=np.uint8)
    names = write_images(path.parents[1] / "images/train", images)
    write_coco(path, names, CLASSES, masks, {3: "three", 7: "seven"}, (SIZE, SIZE))
    return json.loads(path.read_text())


def _polygon(*numbers: Any) -> Callable[[dict], None]:
    return lambda document: document["annotations"][1].update(segmentation=[list(numbers)])


def _counts(counts: Any, size: Any = (SIZE, SIZE)) -> Callable[[dict], None]:
    return lambda document: document["annotations"][1].update(
        segmentation={"size": list(size), "counts": counts}
    )


def _set(kind: str, row: int, **fields: Any) -> Callable[[dict], None]:
    return lambda document: document[kind][row].update(fields)


# what both tasks refuse
RECORDS = {
    "an image's id twice": (_set("images", 1, id=1), "image 1 stands there twice"),
    "an image's id of another type": (
        _set("images", 1, id="2"),
        "image '2' has an id of another type than the others",
    ),
    "an image's id that is true": (
        _set("images", 1, id=True),
        "number 1 of its images has the id True",
    ),
    "an image's id that is a list": (
        _set("images", 1, id=[1]),
        "number 1 of its images has the id [1]",
    ),
    "an image without an id": (
        lambda document: document["images"][1].pop("id"),
        "number 1 of its images has the id None",
    ),
    "ids that collide": (_set("images", 1, id=2**61 - 1), "has the id 2305843009213693951"),
    "an annotation's id twice": (_set("annotations", 1, id=1), "annotation 1 stands there twice"),
    "a category's id twice": (_set("categories", 1, id=1), "category 1 stands there twice"),
    "a category's name twice": (
        _set("categories", 1, name="three"),
        "category 2 has the name 'three' of another category",
    ),
    "an orphaned annotation": (
        _set("annotations", 1, image_id=99),
        "annotation 2 is of the image 99, which the file does not list",
    ),
    "an annotation of a category that is not there": (
        _set("annotations", 1, category_id=9),
        "annotation 2 has the category 9",
    ),
    "an annotation whose image is a list": (
        _set("annotations", 1, image_id=[]),
        "annotation 2 is of the image []",
    ),
    "a crowd of 7": (_set("annotations", 1, iscrowd=7), "annotation 2 has iscrowd 7"),
    "an area that is no number": (
        _set("annotations", 1, area=float("nan")),
        "annotation 2 has the area nan",
    ),
    "an area that is a text": (_set("annotations", 1, area="4"), "annotation 2 has the area '4'"),
    "a file of two images": (
        _set("images", 1, file_name="./000000.png"),
        "image 2 has the file '000000.png' of another image",
    ),
    "a file outside": (
        _set("images", 1, file_name="../../secret.png"),
        "image 2 has the file name '../../secret.png', which leaves",
    ),
    "a file above, in the middle": (
        _set("images", 1, file_name="a/../../b.png"),
        "which leaves the folder of images",
    ),
    "a file from the root": (
        _set("images", 1, file_name="/etc/passwd"),
        "image 2 has the file name '/etc/passwd', which leaves",
    ),
    "a file on another drive": (
        _set("images", 1, file_name="c:secret.png"),
        "which leaves the folder of images",
    ),
    "a file by backslashes": (
        _set("images", 1, file_name="..\\secret.png"),
        "with a backslash; / stands between folders",
    ),
    "the folder itself": (_set("images", 1, file_name="."), "which leaves the folder of images"),
    "a file without a name": (_set("images", 1, file_name=""), "image 2 has the file name ''"),
    "a file named by a number": (_set("images", 1, file_name=3), "image 2 has the file name 3"),
    "half a character": (
        _set("images", 1, file_name="\ud800.png"),
        "image 2 has the file name '\\ud800.png', with characters",
    ),
    "a long name": (
        _set("images", 1, file_name="P1" * 50_000),
        "image 2 has a file name of 100,000 characters, 'P1P1",
    ),
    "a long name of letters of two bytes": (
        _set("images", 1, file_name="é" * 128),
        "image 2 has a file name of 128 characters",
    ),
    "a long path": (
        _set("images", 1, file_name="a/" * 600 + "b.png"),
        "image 2 has a file name of 1,205 characters, 'a/a/",
    ),
    "the end of a text": (
        _set("images", 1, file_name="a.png\0.txt"),
        "with characters that no name has",
    ),
    "a terminal's commands": (
        _set("images", 1, file_name="\x1b[2J.png"),
        "with characters that no name has",
    ),
    "a negative height": (
        _set("images", 1, height=-8),
        "image 2 has the height and width -8 and 8",
    ),
    "a height that is no integer": (
        _set("images", 1, height=8.5),
        "image 2 has the height and width 8.5 and 8",
    ),
    "a picture of 4 billion pixels": (
        _set("images", 1, height=1 << 16, width=1 << 16),
        "image 2 has the height and width 65536 and 65536",
    ),
    "a million categories": (
        lambda document: document["categories"].extend({"id": i} for i in range(3, 10_002)),
        "it has 10,001 categories; at most 10,000 are read",
    ),
    "no images": (lambda document: document.update(images=[], annotations=[]), "it has no images"),
}
# what the masks' reader refuses besides
MASKS = {
    "a NaN": (_polygon(1, 1, 5, float("nan"), 5, 5), "annotation 2 has a polygon with coordinates that are not finite numbers"),
    "an infinite coordinate": (_polygon(1, 1, 5, float("inf"), 5, 5), "not finite numbers"),
    "coordinates of a billion": (_polygon(0, 0, 1e9, 0, 1e9, 1e9), "a polygon from (0, 0) to (1e+09, 1e+09) in an image of 8 x 8"),
    "coordinates of minus a billion": (_polygon(-1e9, 0, 5, 0, 5, 5), "a polygon from (-1e+09, 0)"),
    "an integer of 1000 digits": (_polygon(10**1000, 0, 5, 0, 5, 5), "not finite numbers"),
    "texts": (_polygon("1", "1", "5", "1", "5", "5"), "not finite numbers"),
    "truth values": (_polygon(True, 1, 5, 1, 5, 5), "not finite numbers"),
    "two points": (_polygon(1, 1, 5, 5), "annotation 2 has the polygon [1, 1, 5, 5], not three points or more"),
    "an odd number": (_polygon(1, 1, 5, 1, 5, 5, 1), "not three points or more"),
    "a polygon that runs for ever": (_polygon(*[0, 0, 8, 8] * 100_000), "a polygon of 200,000 points whose outline is"),
    "no polygon": (_set("annotations", 1, segmentation=[]), "annotation 2 has a segmentation without polygons"),
    "numbers in place of polygons": (_set("annotations", 1, segmentation=[1, 2, 3, 4, 5, 6]), "annotation 2 has the polygon 1"),
    "no segmentation": (_set("annotations", 1, segmentation=None), "annotation 2 has no segmentation"),
    "run lengths of another size": (_counts("P1", (4, 4)), "annotation 2 has a mask of size [4, 4]"),
    "run lengths without a size": (_set("annotations", 1, segmentation={"counts": "P1"}), "a mask of size None"),
    "run lengths of too much": (_counts([60, 5]), "annotation 2 has run lengths that do not add up to its image's 8 x 8 pixels"),
    "run lengths of 4 billion": (_counts([2**32, 64]), "do not add up"),
    "negative run lengths": (_counts([-64, 128]), "do not add up"),
    "run lengths that go on behind their end": (_counts("oooooooo"), "annotation 2 has run lengths that can't be read"),
    "run lengths that end within a number": (_counts("P1o"), "can't be read"),
    "run lengths of other characters": (_counts("P1\x7f é"), "can't be read"),
    "run lengths in another alphabet, which other programs read byte by byte": (_counts("\u0430\u0431\u0770"), "can't be read"),
    "run lengths of nothing": (_counts(""), "can't be read"),
    "run lengths of texts": (_counts(["64"]), "can't be read"),
    "run lengths that are none": (_counts(None), "can't be read"),
    "a picture of no height": (lambda document: document["images"][0].pop("height"), "image 1 has the height and width None and 8"),
}  # fmt: skip


def _refusal(path: Path, masks: bool) -> str:
    with pytest.raises(DataError) as refusal:
        Instances(path, masks=masks)
    text = str(refusal.value)
    assert text.startswith(f"{path}: ") and text.isprintable() and len(text) < 1500 + len(str(path))
    return text


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize(("damage", "why"), RECORDS.values(), ids=RECORDS)
def test_a_wrong_record_is_named(tmp_path, damage, why, masks):
    path = tmp_path / "train/client_0.json"
    document = write_valid(path)
    damage(document)
    path.write_text(json.dumps(document))
    assert why in _refusal(path, masks)


@pytest.mark.parametrize(("damage", "why"), MASKS.values(), ids=MASKS)
def test_a_wrong_mask_is_named_before_any_is_drawn(tmp_path, damage, why):
    path = tmp_path / "train/client_0.json"
    document = write_valid(path)
    damage(document)
    path.write_text(json.dumps(document))
    assert why in _refusal(path, masks=True)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            b'{"images": [], "images": [1], "annotations": [], "categories": []}',
            "a record has the field 'images' twice",
        ),
        (
            b'{"images": [{"id": 1, "file_name": "a", "file_name": "b"}]}',
            "a record has the field 'file_name' twice",
        ),
        (b"[" * 100_000, "its lists lie too deep in each other"),
        (b'{"a":' * 100_000, "its lists lie too deep in each other"),
        (b'{"images": [' + b"9" * 5000 + b"]}", "Exceeds the limit"),
        (
            b'{"images": [1], "annotations": [], "categories": []}',
            "number 0 of its images is no record",
        ),
        (b'{"images": {}, "annotations": [], "categories": []}', "it lacks a list of images"),
        (b"\xff\xfe\x00", "not a COCO instances file"),
        (b"", "not a COCO instances file"),
    ],
    ids=range(9),
)
def test_what_is_no_list_of_records_is_refused(tmp_path, content, why):
    path = tmp_path / "client_0.json"
    path.write_bytes(content)
    assert why in _refusal(path, masks=False)


def test_all_faults_are_counted_and_the_first_are_named(tmp_path):
    path = tmp_path / "train/client_0.json"
    document = write_valid(path)
    document["annotations"] = [
        dict(document["annotations"][0], id=i, category_id=50 + i) for i in range(1000)
    ]
    document["images"][2]["file_name"] = "../c.png"
    path.write_text(json.dumps(document))
    text = _refusal(path, masks=True)
    assert "image 3 has the file name" in text and "annotation 3 has the category 53" in text
    assert text.endswith("; and 996 more faults")


def test_two_splits_have_the_same_categories_by_the_same_names(tmp_path):
    """Ids alone would let a file through whose cats are the other's dogs."""
    path = tmp_path / "train/client_0.json"
    document = write_valid(path)
    names = Instances(path).names
    document["categories"].reverse()
    path.write_text(json.dumps(document))
    assert Instances(path).names == names == ("three", "seven")
    document["categories"][0]["name"], document["categories"][1]["name"] = names
    path.write_text(json.dumps(document))
    assert Instances(path).names == ("seven", "three")


def test_more_classes_than_pixels_can_name_are_refused(tmp_path):
    """Class 255 is that of ignored pixels."""
    path = tmp_path / TASKS["SS"].folder / "train/client_0.json"
    document = write_valid(path)
    document["categories"] += [{"id": i} for i in range(3, 256)]
    path.write_text(json.dumps(document))
    with pytest.raises(
        DataError,
        match=r"client_0\.json: 255 categories; class 255 stands for pixels that are ignored",
    ):
        TASKS["SS"].read(tmp_path, 0, "train", Pixels(SIZE))
    document["categories"].pop()
    path.write_text(json.dumps(document))
    assert len(TASKS["SS"].read(tmp_path, 0, "train", Pixels(SIZE))[1]) == 254


def test_a_file_without_a_pixel_that_counts_is_refused(tmp_path):
    path = tmp_path / TASKS["SS"].folder / "train/client_0.json"
    document = write_valid(path)
    for annotation in document["annotations"]:
        annotation.update(
            iscrowd=1, segmentation={"size": [SIZE, SIZE], "counts": [0, SIZE * SIZE]}
        )
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"client_0\.json: crowds cover every pixel of every image"):
        TASKS["SS"].read(tmp_path, 0, "train", Pixels(SIZE))


def test_run_lengths_of_any_mask_are_read():
    """The check reads what pycocotools writes, of small and large runs, and of masks that begin
    inside an object.
    """
    draws = np.random.RandomState(0)
    for height, width, share in [
        (1, 1, 1),
        (3, 500, 0.5),
        (40, 30, 0.01),
        (700, 900, 0.00001),
        (64, 64, 1),
        (64, 64, 0),
        (200, 200, 0.5),
    ]:
        mask = np.asfortranarray((draws.rand(height, width) < share).astype(np.uint8))
        rle = coco_mask.encode(mask)
        assert (
            segmentation_fault(
                {"size": [height, width], "counts": rle["counts"].decode()}, height, width
            )
            == ""
        )
        runs = np.diff(
            np.flatnonzero(np.diff(np.concatenate([[-1], mask.ravel("F"), [2]])))
        ).tolist()
        listed = {"size": [height, width], "counts": runs if not mask[0, 0] else [0, *runs]}
        assert segmentation_fault(listed, height, width) == ""


def test_a_polygon_may_reach_over_its_pictures_edge():
    assert segmentation_fault([[-1, -0.5, 9, 0, 8.5, 8.5]], SIZE, SIZE) == ""
