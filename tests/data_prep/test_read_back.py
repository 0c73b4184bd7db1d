"""What a reader would refuse is left out and counted, or refused; and what was written is read back
as runs read it.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import miniature_archives as miniature
import numpy as np
import pytest
from PIL import Image

from data_prep.__main__ import main
from data_prep.io.entry import SourceError
from data_prep.io.read_back import read_back
from data_prep.io.writers import (
    labelled,
    write_arrays,
    write_classes,
    write_instances,
    write_pickle,
    write_texts,
)
from fedmuscle_lib.core.files import put
from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.data.encodings import Words
from fedmuscle_lib.data.pickles import load_pickle
from fedmuscle_lib.data.public import CAPTIONS, read_public
from fedmuscle_lib.tasks import TASKS


def _run(name: str, archives: Path, data_dir: Path, *options: str) -> int:
    return main([name, "--archives", str(archives), "--data-dir", str(data_dir), *options])


def _sizes(folder: Path) -> dict[str, int]:
    return {
        line["what"]: line["got"]
        for line in json.loads((folder / "manifest.json").read_text())["sizes"]
    }


# --- texts

YAHOO = ("--train-size", "10", "--pool", "20", "--val", "0", "--test", "20")


def _yahoo(archives: Path, change: Callable[[int], str]) -> None:
    rows = "".join(f'"{1 + i % 10}",{change(i)}\n' for i in range(60)).encode()
    miniature.write_tar(
        archives / "yahoo_answers_csv.tar.gz",
        {f"yahoo_answers_csv/{split}.csv": rows for split in ("train", "test")},
    )


def test_rows_without_a_text_are_left_out_and_counted(archives, tmp_path, capsys):
    """The other rows go to whom they went without them."""
    found = []
    for number, change in enumerate(
        (
            lambda i: f'"title {i}","",""',
            lambda i: '"","",""' if i % 7 == 0 else f'"title {i}","",""',
        )
    ):
        _yahoo(archives, change)
        assert _run("yahoo", archives, tmp_path / str(number), *YAHOO) == 0
        folder = tmp_path / str(number) / "TC/yahoo_qa"
        found.append(
            [Pickled(path, "texts", "labels") for path in sorted(folder.glob("t*/client_*.pkl"))]
        )
        read_back(tmp_path / str(number))
    for whole, left in zip(*found, strict=True):
        assert left.texts() == [text for text in whole.texts() if int(text.split()[1]) % 7]
        assert left.labels(len(left.texts()), 10, "TC").tolist() == [
            int(text.split()[1]) % 10 for text in left.texts()
        ]
    (told,) = (got for what, got in _sizes(folder).items() if "left out" in what)
    assert (
        told
        == sum(len(one.texts()) for one in found[0]) - sum(len(one.texts()) for one in found[1])
        > 0
    )
    assert f"NOTE: {told} rows that were drawn have no text" in capsys.readouterr().out
    assert not any("left out" in what for what in _sizes(tmp_path / "0/TC/yahoo_qa"))


@pytest.mark.parametrize(
    ("row", "line", "why"),
    [
        (b'"1","a \xff","b"', 4, "'utf-8' codec can't decode"),
        (b'"1","a,"b"', 4, "expected after"),
        (b'"1","a', 4, "unexpected end of data"),
        (b"one,a,b", 4, "invalid literal"),
        (b'"1"', 4, "class 1 with 0 texts"),
        (b'"11","a"', 4, "class 11 with 1 texts"),
    ],
)
def test_a_row_that_is_none_is_named_by_its_own_line(archives, tmp_path, capsys, row, line, why):
    """A quote that does not end would take the rest of the file for its text."""
    content = b"\n".join([b'"1","a","b"'] * 3 + [row] + [b'"2","c ""d""","e"'] * 9)
    miniature.write_tar(
        archives / "yahoo_answers_csv.tar.gz",
        {f"y/{split}.csv": content for split in ("train", "test")},
    )
    assert _run("yahoo", archives, tmp_path / "data") == 2
    said = capsys.readouterr().err
    assert f"y/train.csv, line {line}: not a row of the data set" in said and why in said


def test_lines_without_a_character_are_no_rows(archives, tmp_path):
    rows = b"\n\r\n".join(b'"%d","title %d","",""' % (1 + i % 10, i) for i in range(60)) + b"\n\n"
    miniature.write_tar(
        archives / "yahoo_answers_csv.tar.gz",
        {f"y/{split}.csv": rows for split in ("train", "test")},
    )
    assert _run("yahoo", archives, tmp_path / "data", *YAHOO) == 0
    read_back(tmp_path / "data")
    assert json.loads((tmp_path / "data/TC/yahoo_qa/manifest.json").read_text())["counts"][
        "found"
    ] == {"train": 60, "test": 60}


def test_flickr30ks_captions_that_no_run_reads_are_left_out_and_counted(archives, tmp_path, capsys):
    miniature.flickr30k(archives)
    lines = [
        f"{i}.jpg#{k}\t{'' if k < i % 3 else f'caption {k}'}" for i in range(10) for k in range(3)
    ] + ["10.jpg#0\t "]
    miniature.write_tar(
        archives / "flickr30k.tar.gz", {"results_20130124.token": "\n".join(lines).encode()}
    )
    assert _run("flickr30k", archives, tmp_path, "--public", "11", "--size", "16") == 0
    folder = tmp_path / "TC/flicker_public"
    captions = load_pickle(folder / CAPTIONS)
    assert (
        captions.keys() == {path.name for path in (folder / "images").iterdir()}
        and len(captions) == 10
    )
    assert all(
        said == [f"caption {k}" for k in range(int(Path(name).stem) % 3, 3)]
        for name, said in captions.items()
    )
    assert len(read_public(folder, 10, Words())) == 10
    assert (
        "NOTE: 10 captions are empty or too long; they are left out, and 1 images"
        in capsys.readouterr().out
    )
    assert _sizes(folder)["captions left out: empty or too long"] == 10


# --- images


def _turned(content: bytes) -> bytes:
    """A photo as a phone stores it: on its side, with the orientation that says so."""
    exif, out = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.open(io.BytesIO(content)).rotate(90, expand=True).save(out, "JPEG", exif=exif, quality=95)
    return out.getvalue()


@pytest.mark.parametrize("size", [[], ["--size", "10"]])
def test_turned_photos_of_coco_come_upright_with_their_records(archives, tmp_path, size):
    miniature.coco(archives)
    for split, first in (("train2017", 1), ("val2017", 10_001)):
        n = 80 if first == 1 else 24
        files = {
            f"{split}/{i:012d}.jpg": _turned(miniature.picture(i)) for i in range(first, first + n)
        }
        miniature.write_zip(archives / f"{split}.zip", files)
    options = ("--train-size", "4", "--pool", "6", "--val", "2", "--test", "6", "--public", "10")
    assert _run("coco", archives, tmp_path / "data", *options, *size) == 0
    read_back(tmp_path / "data")
    document = json.loads((tmp_path / "data/semseg_setup/train/client_0.json").read_text())
    assert all(image["width"] > image["height"] for image in document["images"])


def test_a_photo_of_another_size_than_its_record_or_mask_is_refused(archives, tmp_path, capsys):
    miniature.coco(archives)
    files = {f"train2017/{i:012d}.jpg": miniature.picture(i, 14, 20) for i in range(1, 81)}
    miniature.write_zip(archives / "train2017.zip", files)
    assert (
        _run(
            "coco",
            archives,
            tmp_path / "coco",
            "--train-size",
            "4",
            "--pool",
            "6",
            "--val",
            "2",
            "--test",
            "6",
        )
        == 2
    )
    assert "an image of 14 x 20 px, recorded as 20 x 14" in capsys.readouterr().err
    miniature.voc(archives)
    members = {f"V/JPEGImages/2007_{i:06d}.jpg": miniature.picture(i, 60, 80) for i in range(60)}
    mask = io.BytesIO()
    Image.fromarray(miniature.voc_mask(1)).save(mask, "PNG")
    members |= {f"V/SegmentationClass/2007_{i:06d}.png": mask.getvalue() for i in range(60)}
    for split, rows in (("train", range(40)), ("val", range(40, 60))):
        members[f"V/ImageSets/Segmentation/{split}.txt"] = "\n".join(
            f"2007_{i:06d}" for i in rows
        ).encode()
    miniature.write_tar(archives / "VOCtrainval_11-May-2012.tar", members)
    assert (
        _run(
            "voc",
            archives,
            tmp_path / "voc",
            "--parts",
            "ss",
            "--train-size",
            "4",
            "--pool",
            "10",
            "--val",
            "3",
        )
        == 2
    )
    assert "an image of 60 x 80 px, recorded as 80 x 60" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["train/n00000001/images/x.JPEG", "val/images/val_0.JPEG"])
def test_a_text_among_tiny_imagenets_images_is_refused(archives, tmp_path, capsys, name):
    root = "tiny-imagenet-200"
    members = {f"{root}/train/n00000001/images/a.JPEG": miniature.picture(0)}
    members[f"{root}/val/val_annotations.txt"] = b"val_0.JPEG\tn00000001\t0\t0\t9\t9\n"
    miniature.write_zip(
        archives / "tiny-imagenet-200.zip", members | {f"{root}/{name}": b"no image but a text"}
    )
    assert _run("tiny-imagenet", archives, tmp_path / "data") == 2
    assert f"{root}/{name}: not a readable image" in capsys.readouterr().err


# --- reading back


def _whole(root: Path) -> None:
    """A small world: a file of each kind that the commands write."""
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    for split in ("train", "val", "test"):
        write_texts(root / f"TC/yahoo_qa/{split}/client_0.pkl", ["a text"] * 2, [0, 9])
        write_pickle(root / f"IC/FOOD101/{split}/client_0.pkl", pixels, np.arange(4))
        write_arrays(
            root / labelled("a_set"),
            split,
            pixels + np.arange(4, dtype=np.uint8)[:, None, None, None],
            np.arange(4) % 2,
        )
        for folder in ("MLC_setup", "semseg_setup"):
            (root / folder / "images" / split).mkdir(parents=True)
            Image.new("RGB", (8, 6)).save(root / folder / "images" / split / "a.png")
            images = [{"id": 1, "file_name": "a.png", "width": 8, "height": 6}]
            objects = [
                {"id": 1, "image_id": 1, "category_id": 1, "segmentation": [[1, 1, 5, 1, 5, 5]]}
            ]
            write_instances(
                root / folder / split / "client_0.json", images, objects, [{"id": 1, "name": "one"}]
            )
    write_classes(root / labelled("a_set"), ["x", "y"])
    for name in ("MLC_setup/public_Pascal", "TC/flicker_public/images", "MM/coco/images"):
        (root / name).mkdir(parents=True)
        Image.new("RGB", (8, 6)).save(root / name / "a.png")
    put(root / "TC/flicker_public" / CAPTIONS, pickle.dumps({"a.png": ["a caption"]}))
    put(root / "MM/coco" / CAPTIONS, pickle.dumps({"a.png": ["a caption", "another"]}))
    put(root / "MM/coco/dataset.json", b'{"images": [{"filename": "a.png", "split": "test"}]}')


def _records(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        document = json.loads(path.read_text())
        path.write_text(
            json.dumps(
                document
                | {
                    name: [record | value for record in document[name]]
                    for name, value in changes.items()
                }
            )
        )

    return change


@pytest.mark.parametrize(
    ("file", "change", "why"),
    [
        (
            "TC/yahoo_qa/test/client_0.pkl",
            lambda path: write_texts(path, ["a", " "], [0, 1]),
            "row 1 is empty",
        ),
        ("TC/yahoo_qa/train/client_0.pkl", lambda path: write_texts(path, [], []), "holds no text"),
        (
            "TC/yahoo_qa/val/client_0.pkl",
            lambda path: write_texts(path, ["a"], [0, 1]),
            "labels .* for 1 samples",
        ),
        (
            "IC/FOOD101/val/client_0.pkl",
            lambda path: write_pickle(path, np.zeros((1, 8, 8)), np.zeros(1)),
            "data is float64",
        ),
        (
            "MLC_setup/images/test/a.png",
            lambda path: path.write_text("a text"),
            "not a readable image",
        ),
        ("MLC_setup/images/val/a.png", Path.unlink, "no such file"),
        (
            "MLC_setup/images/val/a.png",
            lambda path: Image.new("RGB", (6, 8)).save(path),
            "6 x 8 pixels, whose record says 8 x 6",
        ),
        (
            "semseg_setup/train/client_0.json",
            _records(annotations={"segmentation": None}),
            "has no segmentation",
        ),
        (
            "MLC_setup/public_Pascal/a.png",
            lambda path: path.write_text("a text"),
            "not a readable image",
        ),
        (
            f"TC/flicker_public/{CAPTIONS}",
            lambda path: path.write_bytes(pickle.dumps({"a.png": [""]})),
            "a.png has '' for a caption",
        ),
        (
            f"MM/coco/{CAPTIONS}",
            lambda path: path.write_bytes(pickle.dumps({"a.png": ["a caption", ""]})),
            "a.png has '' for a caption",
        ),
        ("MM/coco/images/a.png", lambda path: path.write_text("a text"), "not a readable image"),
        ("MM/coco/dataset.json", lambda path: path.write_text('{"images": []}'), "lists no a.png"),
        (
            f"{labelled('a_set')}/classes.json",
            lambda path: path.write_text('["x"]'),
            "not a list of the names",
        ),
    ],
)
def test_what_no_run_could_read_is_refused_by_its_place(tmp_path, file, change, why):
    _whole(tmp_path)
    read_back(tmp_path)
    change(tmp_path / file)
    with pytest.raises(
        SourceError,
        match=f"^{file}: .*{why}.*: no run could read what was written; nothing is put in place$",
    ):
        read_back(tmp_path)


def test_a_split_that_nobody_asked_for_may_be_empty(tmp_path):
    _whole(tmp_path)
    for split in ("val", "test"):
        write_texts(tmp_path / f"TC/yahoo_qa/{split}/client_0.pkl", [], [])
        write_instances(
            tmp_path / f"semseg_setup/{split}/client_0.json", [], [], [{"id": 1, "name": "one"}]
        )
    read_back(tmp_path)


def test_every_tasks_files_are_read_back(tmp_path):
    """A task whose file is found nowhere in the small world would not be tested above."""
    _whole(tmp_path)
    suffixes = {task.suffix for task in TASKS.values()}
    assert suffixes == {path.suffix for path in tmp_path.rglob("client_*")}
