"""The code of docs/practice.md runs as it stands; and files that are written from a data set's
rows.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from PIL import Image

from data_prep.io.entry import SourceError
from data_prep.io.hugging_face import class_folders, write_client
from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.runs.system import Tick

PAGE = (Path(__file__).parents[2] / "docs/practice.md").read_text(encoding="utf8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def block(section: str) -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)
    return code


class Rows(list):
    """What the page uses of a ``datasets.Dataset``, which is not installed here."""

    def shuffle(self, seed: int) -> Rows:
        return Rows(self[i] for i in np.random.default_rng(seed).permutation(len(self)))

    def select(self, rows: range) -> Rows:
        return Rows(self[i] for i in rows)


def _bytes_of(image: Image.Image, **told: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", **told)
    return out.getvalue()


def pictures(n: int, side: int = 32) -> list[Image.Image]:
    rng = np.random.default_rng(n)
    return [
        Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)) for _ in range(n)
    ]


def load_dataset(name: str) -> dict[str, Rows]:
    column, classes = {"uoft-cs/cifar10": ("label", 10), "uoft-cs/cifar100": ("fine_label", 100)}[
        name
    ]
    rows = Rows({"img": picture, column: i % classes} for i, picture in enumerate(pictures(400)))
    return {"train": rows, "test": rows}


def test_two_plain_models_are_aligned_by_the_loss_alone_and_beside_one_of_their_own(capsys):
    code, names = block("The loss alone"), dict[str, Any]()
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 30
    exec(code, names)
    before, after = map(int, re.findall(r"(\d+)%", capsys.readouterr().out))
    assert before < 5 and after > 50  # chance is 0.4 %
    exec(block("Beside your own loss"), names)
    assert names["retrieval"]() > 0.5
    right = names["head"](names["models"][0](names["x"])).argmax(1) == names["y"]
    assert right.float().mean() > 0.3  # chance is 10 %


def test_trackers_get_the_metrics_of_a_round(monkeypatch):
    """Of those packages, which are not installed here, as the page calls them."""
    trackers = {name: MagicMock() for name in ("wandb", "mlflow")}
    for name, tracker in trackers.items():
        monkeypatch.setitem(sys.modules, name, tracker)
    tick = Tick("fedmuscle", 2, 3, metrics=((4, 50.0),))
    names = {"settings": None, "run": lambda settings, on_round: on_round(tick)}
    section = SECTIONS["Rounds as they finish"]
    for code in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        exec(code, names)
    board = trackers["wandb"].init.return_value.__enter__.return_value
    for log in (board.log, trackers["mlflow"].log_metrics):
        log.assert_called_once_with({"user 4": 50.0}, step=2)


def test_the_same_with_this_projects_federation(store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module = ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    names: dict[str, Any] = {}
    exec(block("Data from Hugging Face"), names)
    exec(block("This project's federation"), names)
    assert list(names["history"].final().user) == [4, 6]
    assert names["similar"].shape == (8, 8) and names["classes"].max() < 10
    assert "IC100" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "mine/users").iterdir()} == {"user_4", "user_6"}


# --- rows into files


def test_rows_become_a_users_file(tmp_path):
    given = pictures(3)
    encoded = io.BytesIO()
    given[2].save(encoded, "png")
    kinds = [given[0], np.asarray(given[1]), {"bytes": encoded.getvalue(), "path": None}]
    rows = [{"image": picture, "label": np.int64(i)} for i, picture in enumerate(kinds)]
    assert write_client(tmp_path / "train/client_0.pkl", rows, classes=3, image="image") == 3
    content = Pickled(tmp_path / "train/client_0.pkl", "data", "labels")
    assert np.array_equal(
        content.content["data"], np.stack([np.asarray(picture) for picture in given])
    )
    assert content.labels(3, 3).tolist() == [0, 1, 2]
    write_client(tmp_path / "texts.pkl", [{"text": "a b", "label": 1}], classes=2, text="text")
    assert Pickled(tmp_path / "texts.pkl", "texts").texts() == ["a b"]


def test_images_in_class_folders_become_a_users_file(tmp_path):
    for name, picture in zip(("cat/b", "cat/a", "dog/a"), pictures(3), strict=True):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        picture.save(tmp_path / f"photos/{name}.png")
    rows = class_folders(tmp_path / "photos")
    assert write_client(tmp_path / "client_0.pkl", rows, classes=2, image="image") == 3
    content = Pickled(tmp_path / "client_0.pkl", "data", "labels")
    assert content.labels(3, 2).tolist() == [0, 0, 1]
    assert np.array_equal(content.content["data"][0], np.asarray(pictures(3)[1]))
    (tmp_path / "photos/dog/notes.txt").write_text("none")
    with pytest.raises(SourceError, match="client_0.pkl: .*photos/dog/notes.txt: not a readable"):
        write_client(
            tmp_path / "client_0.pkl",
            class_folders(tmp_path / "photos"),
            classes=2,
            image="image",
        )


# an image of more than 8 bits a channel, as objects and as a file's bytes
GREY = np.linspace(0, 65535, 64).reshape(8, 8)
WIDE = [
    Image.fromarray(GREY.astype(np.uint16)),
    Image.fromarray(GREY.astype(np.int32)),
    Image.fromarray(np.float32(GREY / 65535)),
]
WIDE.append(_bytes_of(WIDE[0]))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"image": 3, "label": 0}, "row 1: a int is no image"),
        ({"image": {"bytes": b"none"}, "label": 0}, r"row 1: not a readable image \(BMP, GIF"),
        ({"image": pictures(1)[0]}, "row 1: has no column 'label'"),
        (
            {"image": np.zeros((4, 4, 3)), "label": 0},
            "row 1: an array of float64; images have 8 bits a channel, uint8: convert it",
        ),
        ({"image": np.zeros((4, 4), np.uint16), "label": 0}, "row 1: an array of uint16"),
        *(
            (
                {"image": wide, "label": 0},
                r"row 1: an image of more than 8 bits a channel .*convert it to 8 bits",
            )
            for wide in WIDE
        ),
        ({"image": pictures(1)[0], "label": 10}, "row 1: label 10 is none of 0 to 9"),
        ({"image": pictures(1)[0], "label": -1}, "row 1: label -1 is none of 0 to 9"),
        ({"image": pictures(1)[0], "label": "cat"}, "row 1: label 'cat' is no whole number"),
        ({"image": pictures(1)[0], "label": True}, "row 1: label True is no whole number"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, row, message):
    path = tmp_path / "client_0.pkl"
    with pytest.raises(SourceError, match=f"client_0.pkl: {message}"):
        write_client(path, [{"image": pictures(1)[0], "label": 0}, row], classes=10, image="image")
    assert not path.exists()


def test_what_is_asked_for_is_there(tmp_path, monkeypatch):
    path, rows = tmp_path / "client_0.pkl", [{"sentence": "a", "label": 0}]
    with pytest.raises(SourceError, match="no column 'text'; it has label, sentence"):
        write_client(path, rows, classes=2, text="text")
    with pytest.raises(SourceError, match="row 0: the text is empty"):
        write_client(path, [{"sentence": "  ", "label": 0}], classes=2, text="sentence")
    with pytest.raises(SourceError, match="row 0: the text is a int, no text"):
        write_client(path, [{"sentence": 7, "label": 0}], classes=2, text="sentence")
    with pytest.raises(SourceError, match="has no rows"):
        write_client(path, [], classes=2, text="text")
    with pytest.raises(ValueError, match="name the column of images"):
        write_client(path, rows, classes=2)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SourceError, match="needs the package datasets: pip install datasets"):
        write_client(path, "uoft-cs/cifar10", classes=10, image="img")
