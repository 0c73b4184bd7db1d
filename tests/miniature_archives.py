"""Small archives in the real formats: the official names, inner layouts and encodings, with few and
tiny samples.
"""

from __future__ import annotations

import csv
import io
import json
import pickle
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from pycocotools import mask as coco_mask


def picture(key: int, width: int = 20, height: int = 14, form: str = "JPEG") -> bytes:
    """A picture of its own for every key."""
    out = io.BytesIO()
    Image.fromarray(
        np.random.RandomState(key).randint(0, 256, (height, width, 3), dtype=np.uint8)
    ).save(out, form, quality=95)
    return out.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with (
        tarfile.open(path, "w:gz", compresslevel=1)
        if path.name.endswith("gz")
        else tarfile.open(path, "w")
    ) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def python2(content: dict) -> bytes:
    """A dict with an array and a list, pickled as Python 2 did: keys and array bytes are its byte
    strings.
    """
    pickled = pickle.dumps(content, protocol=2)
    for key in content:
        pickled = pickled.replace(
            b"X" + len(key).to_bytes(4, "little") + key.encode(),
            b"U" + bytes([len(key)]) + key.encode(),
        )
    return pickled


def cifar10(folder: Path) -> None:
    """Pixels are drawn from the row's number in the archive, so that a sample can be told."""
    members = {}
    for k, name in enumerate((*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")):
        rows = range(30 * k, 30 * (k + 1))
        members[name] = python2({"data": _drawn(rows), "labels": [row % 10 for row in rows]})
    members["batches.meta"] = python2({"label_names": [f"class {c}" for c in range(10)]})
    write_tar(
        folder / "cifar-10-python.tar.gz",
        {f"cifar-10-batches-py/{name}": content for name, content in members.items()},
    )


def cifar100(folder: Path) -> None:
    """With Python 3's byte strings for keys, as some copies of the archive have."""
    members = {}
    for name, rows in (("train", range(300)), ("test", range(300, 600))):
        members[name] = pickle.dumps(
            {b"data": _drawn(rows), b"fine_labels": [row % 100 for row in rows]}, protocol=2
        )
    members["meta"] = pickle.dumps(
        {b"fine_label_names": [f"class {c}".encode() for c in range(100)]}, protocol=2
    )
    write_tar(
        folder / "cifar-100-python.tar.gz",
        {f"cifar-100-python/{name}": content for name, content in members.items()},
    )


@cache
def _drawn(rows: range) -> np.ndarray:
    """Pixels of the rows of an archive, each from its number."""
    return np.stack(
        [np.random.RandomState(row).randint(0, 256, 3072).astype(np.uint8) for row in rows]
    )


def listed(folder: Path, train: str, test: str, path: str, classes: int = 3) -> None:
    """Lists and the images that they name, below one folder: to train with, four, three, two images
    of the classes, to test with two.

    Args:
        train, test: the lists' names.
        path: of an image, with places for split, class and number.
    """
    for name, split, sizes in (
        (train, "train", range(classes + 1, 1, -1)),
        (test, "val", [2] * classes),
    ):
        lines = []
        for label, size in enumerate(sizes):
            for i in range(size):
                image = path.format(split=split, label=label, i=f"{split}_{i}")
                (folder / image).parent.mkdir(parents=True, exist_ok=True)
                (folder / image).write_bytes(picture(100 * label + i + 10 * (split == "val")))
                lines.append(f"{image} {label}\n")
        (folder / name).write_text("".join(lines))


def imagenet_lt(folder: Path) -> None:
    listed(
        folder, "ImageNet_LT_train.txt", "ImageNet_LT_test.txt", "{split}/n0000000{label}/{i}.JPEG"
    )


def inaturalist(folder: Path) -> None:
    listed(
        folder,
        "iNaturalist18_train.txt",
        "iNaturalist18_val.txt",
        "train_val2018/Plantae/{label}/{i}.jpg",
    )


def coco(folder: Path, train: int = 80, test: int = 24, zips: bool = True) -> None:
    """Two polygons and a crowd's run lengths on every image but the last five; images as archives
    or as loose files.
    """
    annotations = {}
    for split, n, start in (("train2017", train, 0), ("val2017", test, 10_000)):
        ids = range(start + 1, start + n + 1)
        images = [
            {
                "id": i,
                "file_name": f"{i:012d}.jpg",
                "width": 20,
                "height": 14,
                "coco_url": f"http://127.0.0.1:9/{split}/{i:012d}.jpg",
            }
            for i in ids
        ]
        crowd = np.zeros((14, 20), np.uint8, order="F")
        crowd[2:8, 4:12] = 1
        rle = coco_mask.encode(crowd)
        crowd_rle = {"size": rle["size"], "counts": rle["counts"].decode()}
        records = [
            {
                "id": 3 * i + k,
                "image_id": i,
                "category_id": 1 + (i + k) % 3,
                "iscrowd": int(k == 2),
                "bbox": [4.0, 2.0, 8.0, 6.0],
                "area": 48.0,
                "segmentation": crowd_rle if k == 2 else [[4, 2, 12, 2, 12, 8, 4, 8]],
            }
            for i in ids[:-5]
            for k in range(3)
        ]
        document = {
            "images": images,
            "annotations": records,
            "categories": [{"id": c, "name": f"c{c}"} for c in (1, 2, 3)],
        }
        annotations[f"annotations/instances_{split}.json"] = json.dumps(document).encode()
        files = {f"{split}/{i:012d}.jpg": picture(i) for i in ids}
        if zips:
            write_zip(folder / f"{split}.zip", files)
        for name, content in {} if zips else files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
    write_zip(folder / "annotations_trainval2017.zip", annotations)


def coco_captions(
    folder: Path, year: int = 2014, train: int = 30, val: int = 12, karpathy: bool = True
) -> None:
    """Five to seven captions an image, in another order than their ids'; of four val images two are
    "test", one "restval", one "val".
    """
    captions, split = {}, []
    for part, n, start in ((f"train{year}", train, 0), (f"val{year}", val, 1000)):
        names = {
            start + i: (
                f"COCO_{part}_{start + i:012d}.jpg" if year == 2014 else f"{start + i:012d}.jpg"
            )
            for i in range(1, n + 1)
        }
        images = [
            {
                "id": i,
                "file_name": name,
                "width": 20,
                "height": 14,
                "coco_url": f"http://127.0.0.1:9/{part}/{name}",
            }
            for i, name in names.items()
        ]
        said = [
            {"id": 10 * i + k, "image_id": i, "caption": f"caption {k} of {i} "}
            for i in names
            for k in range(5 + i % 3)
        ]
        captions[f"annotations/captions_{part}.json"] = json.dumps(
            {"images": images, "annotations": said[::-1]}
        ).encode()
        write_zip(
            folder / f"{part}.zip", {f"{part}/{name}": picture(i) for i, name in names.items()}
        )
        splits = ("val", "test", "test", "restval") if start else ("train",)
        split += [{"cocoid": i, "split": splits[i % len(splits)], "sentences": []} for i in names]
    write_zip(folder / f"annotations_trainval{year}.zip", captions)
    if karpathy:
        write_zip(
            folder / "caption_datasets.zip",
            {"dataset_coco.json": json.dumps({"dataset": "coco", "images": split}).encode()},
        )


def voc_mask(i: int) -> np.ndarray:
    """Classes 1 + i % 20 and 15 with a rim of 255, and on every third image a single pixel of class
    20.
    """
    mask = np.zeros((60, 80), np.uint8)
    mask[10:30, 10:30] = 255
    mask[12:28, 12:28] = 1 + i % 20
    mask[40:50, 50:70] = 15
    if i % 3 == 0:
        mask[0, 0] = 20
    return mask


def voc(folder: Path, train: int = 40, val: int = 20, unmasked: int = 15) -> None:
    members, root = {}, "VOCdevkit/VOC2012"
    stems = [f"2007_{i:06d}" for i in range(train + val + unmasked)]
    for i, stem in enumerate(stems):
        members[f"{root}/JPEGImages/{stem}.jpg"] = picture(i, 80, 60)
        if i < train + val:
            out = io.BytesIO()
            image = Image.fromarray(voc_mask(i))
            image.putpalette(list(range(256)) * 3)
            image.save(out, "PNG")
            members[f"{root}/SegmentationClass/{stem}.png"] = out.getvalue()
    for split, names in (("train", stems[:train]), ("val", stems[train : train + val])):
        members[f"{root}/ImageSets/Segmentation/{split}.txt"] = "\n".join(names).encode()
        members[f"{root}/ImageSets/Main/{split}.txt"] = b"another list of this name\n"
    write_tar(folder / "VOCtrainval_11-May-2012.tar", members)


def flickr30k(folder: Path, n: int = 12) -> None:
    """The last image has no captions, one caption's image is not there, and the captions hold marks
    that Python breaks lines at.
    """
    write_tar(
        folder / "flickr30k-images.tar.gz",
        {f"flickr30k-images/{i}.jpg": picture(i, 40, 30) for i in range(n)},
    )
    lines = [
        f"{i}.jpg#{k}\tCaption {k} of\u2028 {i} –\x85 naïve ."
        for i in [*range(n - 1), 99]
        for k in range(5)
    ]
    write_tar(
        folder / "flickr30k.tar.gz",
        {"results_20130124.token": ("\n\n".join(lines) + "\n").encode(), "readme.txt": b"x"},
    )


def topics(folder: Path, name: str, columns: int, classes: int, n: int = 120) -> None:
    """Line breaks as the archives have them: Yahoo's as a backslash and an n, AG's as the backslash
    alone.
    """
    mark = "\\n" if name.startswith("yahoo") else "\\"
    members = {f"{name}/classes.txt": b"A\nB\n"}
    for split, count in (("train", 3 * n), ("test", n)):
        out = io.StringIO()
        writer = csv.writer(out, quoting=csv.QUOTE_ALL)
        for i in range(count):
            writer.writerow(
                [
                    1 + i % classes,
                    f'{split} {i} "quoted", title',
                    *([f"line{mark}next {i}{mark}nuclear"] * (columns - 1)),
                ]
            )
        members[f"{name}/{split}.csv"] = out.getvalue().encode()
    write_tar(folder / f"{name}.tar.gz", members)


def food101(folder: Path, per_class: int = 40) -> None:
    members, lists = {}, {"train": [], "test": []}
    for c, name in enumerate(("apple_pie", "waffles")):
        for i in range(per_class):
            members[f"food-101/images/{name}/{i}.jpg"] = picture(1000 * c + i, 30, 20)
            lists["train" if i % 2 else "test"].append(f"{name}/{i}")
    for split, names in lists.items():
        members[f"food-101/meta/{split}.txt"] = "\n".join(names).encode()
    members["food-101/meta/classes.txt"] = b"apple_pie\nwaffles\n"
    members["food-101/meta/._classes.txt"] = (
        b"\x00\xff"  # as a Mac's tar adds, and nothing to decode
    )
    write_tar(folder / "food-101.tar.gz", members)


def caltech101(folder: Path, per_class: int = 40) -> None:
    inner = folder / "101_ObjectCategories.tar.gz"
    names = ("BACKGROUND_Google", "Faces", "accordion")
    write_tar(
        inner,
        {
            f"101_ObjectCategories/{name}/image_{i:04d}.jpg": picture(1000 * c + i, 30, 20)
            for c, name in enumerate(names)
            for i in range(per_class)
        },
    )
    write_zip(
        folder / "caltech-101.zip",
        {"caltech-101/101_ObjectCategories.tar.gz": inner.read_bytes(), "caltech-101/README": b""},
    )
    inner.unlink()


def tiny_imagenet(folder: Path) -> None:
    root, wnids = "tiny-imagenet-200", ("n00000001", "n00000002")
    members = {
        f"{root}/wnids.txt": "\n".join(wnids).encode(),
        f"{root}/words.txt": b"n00000001\tone\n",
    }
    members |= {
        f"{root}/train/{w}/images/{w}_{i}.JPEG": picture(i) for w in wnids for i in range(3)
    }
    members |= {f"{root}/train/{w}/{w}_boxes.txt": b"x" for w in wnids}
    members |= {f"{root}/val/images/val_{i}.JPEG": picture(10 + i) for i in range(4)}
    members[f"{root}/val/val_annotations.txt"] = "".join(
        f"val_{i}.JPEG\t{wnids[i % 2]}\t0\t0\t9\t9\n" for i in range(4)
    ).encode()
    members |= {f"{root}/test/images/test_0.JPEG": picture(20)}
    write_zip(folder / "tiny-imagenet-200.zip", members)
