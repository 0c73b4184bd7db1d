"""Reading the ``data_dir`` layout: whole files load, damaged files are refused by name, and no file
is ever executed.
"""

from __future__ import annotations

import json
import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO

from data_prep.io.writers import write_coco, write_images, write_pickle
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.long_tail import keep_long_tail
from fedmuscle_lib.data.pickles import load_pickle
from fedmuscle_lib.data.public import read_public
from fedmuscle_lib.data.samples import Samples, draw_local
from fedmuscle_lib.tasks import TASKS, Task

IC10, MLC, SS = TASKS["IC10"], TASKS["MLC"], TASKS["SS"]
SIZE = 8
IMAGES = np.random.RandomState(0).randint(0, 256, (6, SIZE, SIZE, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 9, 1, 0]


def _ic10_file(data_dir: Path) -> Path:
    path = data_dir / IC10.folder / "train/client_0.pkl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _read_ic10(data_dir: Path) -> Samples:
    return IC10.read(data_dir, 0, "train", Pixels(SIZE))[0]


def _assert_refused(path: Path, why: str, data_dir: Path) -> None:
    with pytest.raises(DataError, match=why) as refusal:
        _read_ic10(data_dir)
    assert str(path) in str(refusal.value)


# --- pickles


def test_pickled_clients_round_trip(tmp_path):
    write_pickle(_ic10_file(tmp_path), IMAGES, np.array(LABELS))
    samples, classes = IC10.read(tmp_path, 0, "train", Pixels(SIZE))
    assert classes == tuple(range(10))
    assert samples.targets.tolist() == LABELS
    assert torch.equal(samples.inputs, torch.from_numpy(IMAGES).permute(0, 3, 1, 2))


def _renamed(pickled: bytes, protocol: int) -> bytes:
    """What numpy 1 would have written: its module was ``numpy.core``, not ``numpy._core``."""
    if protocol == 2:  # names end with a line break
        return pickled.replace(b"cnumpy._core.", b"cnumpy.core.")
    for module in (
        b"numpy._core.multiarray",
        b"numpy._core.numeric",
    ):  # names follow their length, and so does the frame
        old = module.replace(b"_core", b"core")
        pickled = pickled.replace(
            bytes([0x8C, len(module)]) + module, bytes([0x8C, len(old)]) + old
        )
    return pickled[:2] + pickled[11:]  # the frame, which is optional


@pytest.mark.filterwarnings("ignore:numpy.core")
@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("spelling", ["numpy._core", "numpy.core"])
def test_arrays_of_either_numpy_are_read(tmp_path, protocol, spelling):
    content = {"data": IMAGES, "labels": np.array(LABELS), "one": np.float64(1.5)}
    pickled = pickle.dumps(content, protocol=protocol)
    if spelling == "numpy.core":
        pickled = _renamed(pickled, protocol)
    assert (b"numpy._core" in pickled) == (spelling == "numpy._core")
    path = tmp_path / "client_0.pkl"
    path.write_bytes(pickled)
    read = load_pickle(path)
    assert np.array_equal(read["data"], IMAGES)
    assert read["labels"].tolist() == LABELS
    assert read["one"] == 1.5


def test_python_2_strings_are_keys(tmp_path):
    """As in the batches of the original CIFAR files, whose keys are Python 2's byte strings."""
    pickled = pickle.dumps({"data": IMAGES, "labels": LABELS}, protocol=2)
    for key in (b"data", b"labels"):
        pickled = pickled.replace(
            b"X" + len(key).to_bytes(4, "little") + key, b"U" + bytes([len(key)]) + key
        )
    assert pickle.loads(pickled, encoding="bytes").keys() == {b"data", b"labels"}
    _ic10_file(tmp_path).write_bytes(pickled)
    assert _read_ic10(tmp_path).targets.tolist() == LABELS


class _Payload:
    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_code_in_a_pickle_never_runs(tmp_path, protocol):
    witness = tmp_path / "ran"
    path = _ic10_file(tmp_path)
    for function, argument in (
        (os.system, f"touch {witness}"),
        (eval, f"open({str(witness)!r}, 'w')"),
        (open, str(witness)),
    ):
        path.write_bytes(
            pickle.dumps(
                {"data": IMAGES, "labels": LABELS, "x": _Payload(function, argument)},
                protocol=protocol,
            )
        )
        _assert_refused(path, "refused: it asks for", tmp_path)
        assert not witness.exists()


def test_numpys_own_loader_is_out_of_reach(tmp_path):
    path = _ic10_file(tmp_path)
    path.write_bytes(pickle.dumps(_Payload(np.load, "x.npy", None, True)))
    _assert_refused(path, "refused: it asks for numpy", tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param([1, 2], "holds a list, not a dict", id="no dict"),
        pytest.param({"data": IMAGES}, r"lacks \['labels'\]", id="no labels"),
        pytest.param(
            {b"data": IMAGES, b"labels": LABELS}, r"lacks \['data', 'labels'\]", id="bytes keys"
        ),
        pytest.param(
            {"data": IMAGES.reshape(6, -1), "labels": LABELS},
            r"uint8 \(6, 192\), not uint8 \(n, h, w, 3\)",
            id="flat",
        ),
        pytest.param(
            {"data": IMAGES.transpose(0, 3, 1, 2), "labels": LABELS},
            r"not uint8 \(n, h, w, 3\)",
            id="channels first",
        ),
        pytest.param(
            {"data": IMAGES.astype(np.float32), "labels": LABELS},
            "data is float32",
            id="float images",
        ),
        pytest.param({"data": IMAGES, "labels": LABELS[:-1]}, "for 6 samples", id="too few labels"),
        pytest.param(
            {"data": IMAGES, "labels": np.array(LABELS, float)}, "float64 labels", id="float labels"
        ),
        pytest.param(
            {"data": IMAGES, "labels": np.array(LABELS)[:, None]},
            r"labels \(6, 1\)",
            id="column of labels",
        ),
        pytest.param(
            {"data": IMAGES, "labels": [[0], [1, 2], 0, 0, 0, 0]}, "labels", id="ragged labels"
        ),
        pytest.param(
            {"data": [IMAGES[0], IMAGES[1, :4]], "labels": [0, 1]}, "data", id="ragged images"
        ),
        pytest.param(
            {"data": IMAGES, "labels": [*LABELS[:-1], 10]},
            r"IC10 has labels 0\.\.9, found 0\.\.10",
            id="label too large",
        ),
        pytest.param(
            {"data": IMAGES, "labels": [*LABELS[:-1], -1]},
            r"IC10 has labels 0\.\.9, found -1\.\.9",
            id="label below 0",
        ),
        pytest.param({"data": IMAGES[:0], "labels": np.zeros(0, int)}, "labels", id="empty"),
        pytest.param(
            {"data": IMAGES, "labels": np.array([*LABELS[:-1], 10], np.uint8)},
            r"found 0\.\.10",
            id="unsigned label too large",
        ),
        pytest.param(
            {"data": IMAGES, "labels": np.array([*LABELS[:-1], 2**64 - 1], np.uint64)},
            "found 0",
            id="a label of 64 bits",
        ),
        pytest.param(
            {"data": IMAGES[:, :0], "labels": LABELS},
            r"data is uint8 \(6, 0, 8, 3\)",
            id="images without pixels",
        ),
    ],
)
def test_a_damaged_client_is_refused_by_name(tmp_path, content, why):
    path = _ic10_file(tmp_path)
    path.write_bytes(pickle.dumps(content))
    _assert_refused(path, why, tmp_path)


@pytest.mark.parametrize("keep", [0, 1, 40, -1])
def test_a_truncated_pickle_is_refused_by_name(tmp_path, keep):
    path = _ic10_file(tmp_path)
    write_pickle(path, IMAGES, np.array(LABELS))
    path.write_bytes(path.read_bytes()[:keep])
    _assert_refused(path, "not a readable pickle", tmp_path)


def test_a_missing_client_is_refused_by_name(tmp_path):
    _assert_refused(_ic10_file(tmp_path), "no such file", tmp_path)
    _ic10_file(tmp_path).mkdir()
    _assert_refused(_ic10_file(tmp_path), "directory", tmp_path)


def test_images_are_resized(tmp_path):
    write_pickle(_ic10_file(tmp_path), np.full_like(IMAGES, 77), np.array(LABELS))
    images = IC10.read(tmp_path, 0, "train", Pixels(2 * SIZE))[0].inputs
    assert images.shape == (6, 3, 2 * SIZE, 2 * SIZE)
    assert images.unique().tolist() == [77]


# --- COCO files

CLASSES = np.array(
    [[104, 7, -1], [7, -1, -1], [-1, -1, -1], [3, 104, 7], [3, -1, -1], [104, -1, -1]]
)
CATEGORIES = {3: "three", 7: "seven", 104: "digit 4"}


def _write_coco(data_dir: Path, task: Task = MLC) -> tuple[Path, np.ndarray]:
    masks = np.zeros((*CLASSES.shape, SIZE, SIZE), bool)
    for i, slot in np.argwhere(CLASSES >= 0):
        masks[i, slot, slot : slot + 3, i : i + 2] = True
    path = data_dir / task.folder / "train/client_0.json"
    names = write_images(data_dir / task.folder / "images/train", IMAGES, stem="client_0_")
    write_coco(path, names, CLASSES, masks, CATEGORIES, (SIZE, SIZE))
    return path, masks


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of pycocotools with numpy 2
def test_coco_files_open_in_pycocotools(tmp_path):
    path, masks = _write_coco(tmp_path)
    coco = COCO(str(path))
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == list(
        CATEGORIES.values()
    )
    for row, image in enumerate(coco.loadImgs(sorted(coco.getImgIds()))):
        found = {
            coco.cats[a["category_id"]]["name"]: a
            for a in coco.loadAnns(coco.getAnnIds(image["id"]))
        }
        slots = {CATEGORIES[c]: slot for slot, c in enumerate(CLASSES[row]) if c >= 0}
        assert found.keys() == slots.keys()
        for name, slot in slots.items():
            ys, xs = np.nonzero(masks[row, slot])
            assert np.array_equal(coco.annToMask(found[name]).astype(bool), masks[row, slot])
            assert found[name]["area"] == len(ys)
            assert found[name]["bbox"] == [xs.min(), ys.min(), np.ptp(xs) + 1, np.ptp(ys) + 1]


def test_targets_are_the_categories_of_an_images_annotations(tmp_path):
    _write_coco(tmp_path)
    samples, classes = MLC.read(tmp_path, 0, "train", Pixels(SIZE))
    assert len(classes) == 3
    assert samples.targets.tolist() == [[c in row for c in CATEGORIES] for row in CLASSES]
    assert torch.equal(samples.inputs, torch.from_numpy(IMAGES).permute(0, 3, 1, 2))


def test_targets_agree_with_a_count_over_the_raw_json(small_world):
    document = json.loads((small_world / MLC.folder / "val/client_1.json").read_text())
    images = {annotation["category_id"]: set() for annotation in document["annotations"]}
    for annotation in document["annotations"]:
        images[annotation["category_id"]].add(annotation["image_id"])
    samples, classes = MLC.read(small_world, 1, "val", Pixels(32))
    assert len(classes) == len(document["categories"]) == samples.targets.shape[1]
    assert samples.targets.sum(0).tolist() == [len(images[category]) for category in sorted(images)]
    per_image = Counter(image for of_category in images.values() for image in of_category)
    assert samples.targets.sum(1).tolist() == [
        per_image[image["id"]] for image in document["images"]
    ]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda document: json.dumps(document)[:-9], id="truncated"),
        pytest.param(
            lambda document: json.dumps(document | {"images": [{"id": 1}]}), id="no file name"
        ),
        pytest.param(
            lambda document: json.dumps(document | {"categories": [], "annotations": []}),
            id="no categories",
        ),
    ],
)
def test_a_damaged_coco_file_is_refused_by_name(tmp_path, damage):
    path, _ = _write_coco(tmp_path)
    path.write_text(damage(json.loads(path.read_text())))
    with pytest.raises(DataError) as refusal:
        MLC.read(tmp_path, 0, "train", Pixels(SIZE))
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("task", [MLC, SS])
@pytest.mark.parametrize(("width", "height"), [(SIZE, SIZE + 1), (2 * SIZE, 2 * SIZE)])
def test_an_image_of_another_size_than_its_record_is_refused_with_both(
    tmp_path, task, width, height
):
    """Its masks would lie elsewhere."""
    path, _ = _write_coco(tmp_path, task)
    document = json.loads(path.read_text())
    document["images"][1] |= {"width": width, "height": height}
    document["annotations"] = [
        one | {"segmentation": [[1, 1, 3, 1, 3, 3]]} for one in document["annotations"]
    ]
    path.write_text(json.dumps(document))
    why = (
        rf"client_0_000001.png: an image of {SIZE} x {SIZE} pixels, whose record says {width} x"
        rf" {height}$"
    )
    with pytest.raises(DataError, match=why):
        task.read(tmp_path, 0, "train", Pixels(SIZE))


def test_a_photo_that_is_turned_fits_the_record_of_the_upright_one_alone(tmp_path):
    path, _ = _write_coco(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = np.arange(3 * SIZE * SIZE // 2, dtype=np.uint8).reshape(SIZE // 2, SIZE, 3)
    file = tmp_path / MLC.folder / "images/train/client_0_000001.png"
    Image.fromarray(np.ascontiguousarray(np.rot90(upright))).save(file, exif=exif)
    document = json.loads(path.read_text())
    document["images"][1] |= {"width": SIZE, "height": SIZE // 2}
    path.write_text(json.dumps(document))
    turned = MLC.read(tmp_path, 0, "train", Pixels(SIZE))[0].inputs
    Image.fromarray(upright).save(file)
    assert torch.equal(turned, MLC.read(tmp_path, 0, "train", Pixels(SIZE))[0].inputs)
    document["images"][1] |= {"width": SIZE // 2, "height": SIZE}
    path.write_text(json.dumps(document))
    with pytest.raises(
        DataError,
        match=f"an image of {SIZE} x {SIZE // 2} pixels, whose record says {SIZE // 2} x {SIZE}",
    ):
        MLC.read(tmp_path, 0, "train", Pixels(SIZE))


def test_a_record_without_a_size_promises_none(tmp_path):
    path, _ = _write_coco(tmp_path)
    document = json.loads(path.read_text())
    for image in document["images"]:
        del image["width"], image["height"]
    path.write_text(json.dumps(document))
    assert len(MLC.read(tmp_path, 0, "train", Pixels(SIZE))[0]) == len(IMAGES)


def test_a_coco_file_without_any_annotation_is_remarked_on(tmp_path, caplog):
    path, _ = _write_coco(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"annotations": []}))
    for _ in range(2):
        samples, _ = MLC.read(tmp_path, 0, "train", Pixels(SIZE))
    assert not samples.targets.any()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: it has no annotation: every image is without an object"
    ]


def test_an_image_that_coco_promises_and_is_missing_is_named(tmp_path):
    _write_coco(tmp_path)
    image = tmp_path / MLC.folder / "images/train/client_0_000003.png"
    image.unlink()
    with pytest.raises(DataError, match=r"client_0_000003\.png: no such file"):
        MLC.read(tmp_path, 0, "train", Pixels(SIZE))


# --- images


def test_public_images_come_in_the_order_of_their_names(tmp_path):
    write_images(tmp_path, IMAGES)
    (tmp_path / "notes.txt").write_text("no image")
    assert torch.equal(
        read_public(tmp_path, 4, Pixels(SIZE)), torch.from_numpy(IMAGES[:4]).permute(0, 3, 1, 2)
    )


def test_a_small_or_missing_public_set_is_named(tmp_path):
    write_images(tmp_path, IMAGES)
    with pytest.raises(
        DataError, match=rf"{tmp_path}: a public set of 7 was asked for, it holds 6 images"
    ):
        read_public(tmp_path, 7, Pixels(SIZE))
    with pytest.raises(DataError, match=rf"{tmp_path / 'absent'}: no such folder"):
        read_public(tmp_path / "absent", 1, Pixels(SIZE))


@pytest.mark.parametrize("keep", [0, 7, 33, 60, -40])
def test_a_truncated_image_is_named(tmp_path, keep):
    (name,) = write_images(tmp_path, IMAGES[:1])
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=rf"{path}: not a readable image"):
        Pixels(SIZE).load([path])


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1"])
def test_any_kind_of_picture_becomes_rgb(tmp_path, mode):
    path = tmp_path / "picture.png"
    Image.fromarray(IMAGES[0]).convert(mode).save(path)
    expected = np.array(Image.open(path).convert("RGB"))
    assert torch.equal(Pixels(SIZE).load([path])[0], torch.from_numpy(expected).permute(2, 0, 1))


def test_a_folder_whose_making_was_interrupted_is_refused(tmp_path):
    write_pickle(_ic10_file(tmp_path), IMAGES, np.array(LABELS))
    manifest = tmp_path / IC10.folder / "manifest.json"
    manifest.write_text(json.dumps({"dataset": "cifar10", "whole": True}, indent=1))
    assert len(_read_ic10(tmp_path)) == len(LABELS)
    manifest.write_text(json.dumps({"dataset": "cifar10", "whole": False}, indent=1))
    with pytest.raises(DataError, match="interrupted") as refusal:
        _read_ic10(tmp_path)
    assert str(tmp_path / IC10.folder) in str(refusal.value)


# --- local training sets


def _pool(n: int, n_classes: int) -> Samples:
    """Images that tell which row they are."""
    return Samples(torch.arange(n).reshape(n, 1, 1, 1), torch.arange(n) % n_classes)


def test_local_draws_depend_on_their_address_alone():
    pool = _pool(300, 10)
    first = draw_local(pool, 50, 0, 4).inputs
    torch.rand(7)  # whatever else was drawn
    assert torch.equal(first, draw_local(pool, 50, 0, 4).inputs)
    for other in ((1, 4), (0, 5)):
        assert set(first.flatten().tolist()) != set(
            draw_local(pool, 50, *other).inputs.flatten().tolist()
        )


def test_multi_hot_draws_are_drawn_from_the_whole_pool():
    pool = Samples(torch.arange(300).reshape(300, 1, 1, 1), torch.ones(300, 4))
    local = draw_local(pool, 200, 0, 1)
    assert local.inputs.unique().numel() == len(local) == 200
    assert local.inputs.max() > 250


def test_targets_that_are_no_labels_are_drawn_from_the_whole_pool():
    """Numbers of a regression are not classes: rare ones are not preferred."""
    targets = torch.tensor([0.5] * 190 + [1.5] * 10)
    local = draw_local(Samples(torch.arange(200).reshape(200, 1, 1, 1), targets), 20, 0, 1)
    assert (local.targets == 1.5).sum() < 5


def test_a_pool_that_is_too_small_is_refused():
    with pytest.raises(
        DataError, match="local training set of 11 was asked for, the file holds 10"
    ):
        draw_local(_pool(10, 10), 11, 0)


@pytest.mark.parametrize(
    ("each", "imbalance", "sizes"),
    [
        (40, 0.1, [40, 22, 12, 7, 4]),  # 40 x 0.1^(k/4), rounded down
        (6, 0.01, [6, 1, 1, 1, 1]),  # 6, 1.9, 0.6, 0.2, 0.06: a class keeps one
        (1, 0.01, [1] * 5),
        (40, 1.0, [40] * 5),
    ],
)
def test_a_long_tail_has_known_sizes_in_an_order_of_its_own(each, imbalance, sizes):
    pool = _pool(5 * each, 5)
    kept = keep_long_tail(pool, 5, imbalance, 0, 4)
    assert sorted(kept.targets.bincount().tolist(), reverse=True) == sizes
    assert (
        torch.equal(kept.targets, pool.targets[kept.inputs.flatten()])
        and (kept.inputs.flatten().diff() > 0).all()
    )


def test_the_order_of_the_classes_depends_on_the_address_alone():
    def rarest(*address):
        return (
            keep_long_tail(_pool(1000, 10), 10, 0.01, *address)
            .targets.bincount()
            .argsort()
            .tolist()
        )

    first = rarest(0, 4)
    torch.rand(7)  # whatever else was drawn
    assert rarest(0, 4) == first != list(range(10))
    assert first not in (rarest(1, 4), rarest(0, 5))


def test_a_steep_tail_is_part_of_a_flat_one():
    flat, steep = (
        set(keep_long_tail(_pool(500, 10), 10, imbalance, 3).inputs.flatten().tolist())
        for imbalance in (0.3, 0.02)
    )
    assert steep < flat


def test_a_class_with_fewer_samples_than_its_size_keeps_all_and_an_absent_one_stays_absent():
    targets = torch.tensor([0] * 100 + [1] * 2 + [3] * 100)
    pool = Samples(torch.arange(202).reshape(202, 1, 1, 1), targets)
    for seed in range(5):
        counts = keep_long_tail(pool, 4, 0.5, seed).targets.bincount(minlength=4).tolist()
        assert counts[1:3] == [2, 0]
        assert {counts[0], counts[3]} < {100, 79, 62, 50}  # 100 x 0.5^(k/3), rounded down
