"""Pretraining on a folder of images: it learns, is repeatable, goes on where it was stopped, and saves what the library loads."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from data_prep import SMALL_WEIGHTS
from data_prep.__main__ import main
from data_prep.pretrain import backbones, image_folder
from data_prep.pretrain.backbones import PADDING, RECIPES, SegFormer, ViT, augment, pretrain
from data_prep.pretrain.image_folder import LabelledImages, read
from fedmuscle_lib import Settings
from fedmuscle_lib.models import architecture, load_backbone, model_type

SHIPPED = dict(RECIPES)
COLOURS = {"blue": (40, 60, 200), "green": (50, 180, 60), "red": (200, 50, 40)}
SIZE = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 noisy images a colour."""
    root = tmp_path_factory.mktemp("colours")
    rng = np.random.RandomState(0)
    for name, colour in COLOURS.items():
        (root / name).mkdir()
        for i in range(40):
            _save(root / name / f"{i:02d}.png", np.array(colour) + rng.normal(0, 30, (2 * SIZE, 2 * SIZE, 3)))
    return root


def _save(path: Path, pixels: np.ndarray) -> None:
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def data(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LabelledImages:
    return read(folder, SIZE, tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _tiny_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "vit-tiny", ViT(32, 1, 1, 64, epochs=2, lr=5e-3))
    monkeypatch.setitem(RECIPES, "segformer-b0", SegFormer(8, 1, 16, epochs=2, lr=5e-3))


def _pretrain(data: LabelledImages, out: Path, name: str = "vit-tiny", **options: object) -> dict:
    return pretrain(name, data, out, **{"batch": 8, "val_share": 0.25} | options)


def _weights(out: Path) -> bytes:
    return (out / "vit-tiny/model.safetensors").read_bytes()


kinds = pytest.mark.parametrize("name", ["vit-tiny", "segformer-b0"])


# --- the images --------------------------------------------------------------------------------------------------------------


def test_both_layouts_and_grey_images_are_read(tmp_path: Path) -> None:
    for below, mode in (("a", "L"), ("b/images", "RGBA")):
        (tmp_path / "train" / below).mkdir(parents=True)
        Image.new(mode, (12, 8), 255).save(tmp_path / "train" / below / "one.png")
    (tmp_path / "train/b/boxes.txt").write_text("no image")
    found = read(tmp_path / "train", 4, tmp_path / "cache")
    assert found.classes == ("a", "b")
    assert found.images.shape == (2, 3, 4, 4)
    assert found.images.dtype == torch.uint8
    assert found.labels.tolist() == [0, 1]
    assert (found.images[0] == 255).all()


def test_a_side_is_halved_by_averaging(folder: Path, data: LabelledImages) -> None:
    pixels = np.asarray(Image.open(folder / "blue/00.png")).astype(float)
    mean = pixels.reshape(SIZE, 2, SIZE, 2, 3).mean((1, 3))
    assert np.abs(data.images[0].permute(1, 2, 0).numpy() - mean).max() <= 1  # rounded once for each axis


def test_images_are_decoded_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read(folder, SIZE, tmp_path, per_class=2)
    assert len(first.images) == 6
    with monkeypatch.context() as patch:
        patch.delattr(image_folder, "_decode")
        assert torch.equal(read(folder, SIZE, tmp_path, per_class=2).images, first.images)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:200])  # damaged
    assert torch.equal(read(folder, SIZE, tmp_path, per_class=2).images, first.images)


def test_another_file_is_another_digest(tmp_path: Path) -> None:
    for name in COLOURS:
        (tmp_path / "train" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "train" / name / "one.png")
    before = read(tmp_path / "train", 8, tmp_path)
    Image.new("RGB", (8, 8)).save(tmp_path / "train/red/two.png")
    after = read(tmp_path / "train", 8, tmp_path)
    assert before.digest != after.digest
    assert len(after.images) == len(before.images) + 1


def test_what_cannot_be_read_is_named(folder: Path, tmp_path: Path) -> None:
    train = tmp_path / "train"
    with pytest.raises(FileNotFoundError, match=r"train: no such folder; `python -m data_prep tiny-imagenet` makes"):
        read(train, SIZE, tmp_path)
    train.mkdir()
    with pytest.raises(FileNotFoundError, match="train: 0 class sub-folders"):
        read(train, SIZE, tmp_path)
    for name in ("a", "b"):
        (train / name).mkdir()
        Image.new("RGB", (8, 8)).save(train / name / "one.png")
    (train / "c").mkdir()
    with pytest.raises(FileNotFoundError, match="train/c: no JPEG or PNG image"):
        read(train, SIZE, tmp_path)
    for broken in (b"no image", (folder / "red/00.png").read_bytes()[:500], b""):
        (train / "c/two.JPEG").write_bytes(broken)
        with pytest.raises(OSError, match=r"train/c/two\.JPEG: not a readable image"):
            read(train, SIZE, tmp_path)
    assert not list(tmp_path.glob("*.npy"))


# --- augmentation ------------------------------------------------------------------------------------------------------------


def test_augmentation_is_what_each_draw_says() -> None:
    images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    shift = torch.tensor([[PADDING, PADDING], [PADDING, PADDING], [0, 2 * PADDING], [PADDING, PADDING]])
    flip = torch.tensor([False, True, False, False])
    contrast, gain = torch.tensor([1.0, 1.0, 1.0, 0.5]), torch.ones(4, 3)
    gain[3] = torch.tensor([1.0, 0.5, 2.0])
    kept, mirrored, moved, recoloured = augment(images, shift, flip, contrast, gain)
    whole = images.float()
    torch.testing.assert_close(kept, whole[0])
    torch.testing.assert_close(mirrored, whole[1].flip(-1))
    expected = torch.zeros(3, 8, 8)
    expected[:, PADDING:, :-PADDING] = whole[2][:, :-PADDING, PADDING:]
    torch.testing.assert_close(moved, expected)
    mean = whole[3].mean()
    torch.testing.assert_close(recoloured, ((mean + (whole[3] - mean) * 0.5) * gain[3][:, None, None]).clamp(0, 255))


# --- training ----------------------------------------------------------------------------------------------------------------


@kinds
def test_it_learns_and_says_so(data: LabelledImages, tmp_path: Path, name: str) -> None:
    report = _pretrain(data, tmp_path, name)
    assert report["top1"] > 0.6  # chance is a third
    assert report["data"]["held_out"] == 30
    folder = tmp_path / name
    assert json.loads((folder / "pretraining.json").read_text()) == report
    card = (folder / "README.md").read_text()
    assert f"{report['top1']:.1%} top-1" in card
    assert "non-commercial research" in card
    assert f"python -m data_prep backbones {name}" in card
    assert ("no mask" in card, "--patch 8" in card) == (name == "segformer-b0", name == "vit-tiny")
    assert str(tmp_path) not in card
    rows = list(csv.DictReader((folder / "training_log.csv").open()))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])
    assert float(rows[1]["val_accuracy"]) == pytest.approx(report["top1"], abs=1e-4)
    assert not (folder / "checkpoint.pt").exists()
    assert _pretrain(data, tmp_path, name) == report  # settings that were read back are the same


def test_it_is_repeatable(data: LabelledImages, tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        _pretrain(data, tmp_path / name, seed=seed)
    assert _weights(tmp_path / "one") == _weights(tmp_path / "two") != _weights(tmp_path / "three")


def test_an_interrupted_training_ends_alike(data: LabelledImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretrain(data, tmp_path / "whole")
    measure, calls = backbones._accuracy, []

    def interrupted(*arguments: object) -> tuple[float, float]:
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(backbones, "_accuracy", interrupted)
        _pretrain(data, tmp_path / "halves")
    halfway = tmp_path / "halves/vit-tiny"
    assert {path.name for path in halfway.iterdir()} == {"checkpoint.pt", "training_log.csv"}
    torch.rand(7)  # a resumed process has another generator's state
    _pretrain(data, tmp_path / "halves")
    assert _weights(tmp_path / "halves") == _weights(tmp_path / "whole")
    logs = [list(csv.DictReader((tmp_path / name / "vit-tiny/training_log.csv").open())) for name in ("whole", "halves")]
    assert [row["loss"] for row in logs[0]] == [row["loss"] for row in logs[1]]


def test_what_is_finished_is_not_made_again(data: LabelledImages, tmp_path: Path) -> None:
    report = _pretrain(data, tmp_path, epochs=1)
    written = (tmp_path / "vit-tiny/model.safetensors").stat().st_mtime_ns
    assert _pretrain(data, tmp_path, epochs=1) == report
    assert (tmp_path / "vit-tiny/model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(FileExistsError, match=r"vit-tiny is of other settings \(seed\)"):
        _pretrain(data, tmp_path, epochs=1, seed=1)
    assert _pretrain(data, tmp_path, epochs=1, seed=1, resume=False)["settings"]["seed"] == 1


def test_another_number_of_threads_is_said_and_invalidates_nothing(
    data: LabelledImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = _pretrain(data, tmp_path, epochs=1)
    monkeypatch.setattr(backbones.torch, "set_num_threads", lambda threads: None)
    capsys.readouterr()
    assert _pretrain(data, tmp_path, epochs=1, threads=2) == report
    assert "vit-tiny: NOTE: made with threads 1 instead of 2; the weights depend on it" in capsys.readouterr().err
    # and of a report or a checkpoint that does not say it, nothing is said
    path = tmp_path / "vit-tiny/pretraining.json"
    path.write_text(json.dumps({key: value for key, value in report.items() if key not in {"device", "threads"}}))
    assert _pretrain(data, tmp_path, epochs=1, threads=2)["settings"] == report["settings"]
    assert capsys.readouterr().err == ""
    assert report["settings"].keys() == {
        "version", "hidden", "layers", "heads", "mlp", "epochs", "lr", "data", "size", "patch", "batch", "seed", "val_share",
    }  # fmt: skip


def test_a_damaged_checkpoint_is_named(data: LabelledImages, tmp_path: Path) -> None:
    (tmp_path / "vit-tiny").mkdir()
    (tmp_path / "vit-tiny/checkpoint.pt").write_bytes(b"no checkpoint")
    with pytest.raises(OSError, match=r"checkpoint\.pt: not a readable checkpoint .*--fresh"):
        _pretrain(data, tmp_path)


@kinds
def test_the_library_reads_the_features_that_were_trained(
    data: LabelledImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Up to half precision."""
    images, trained, save = data.images[::10], [], backbones.save

    def look_and_save(backbone: torch.nn.Module, *rest: object) -> None:
        trained.append(RECIPES[name].features(backbone, images.float()).detach())
        save(backbone, *rest)

    monkeypatch.setattr(backbones, "save", look_and_save)
    _pretrain(data, tmp_path, name)
    assert {tensor.dtype for tensor in load_file(tmp_path / name / "model.safetensors").values()} == {torch.float16}
    kind, user = architecture(model_type(tmp_path / name)), Settings()
    model = kind(
        load_backbone(tmp_path / name),
        3,
        head=kind.heads[0],
        proj_dim=8,
        **user.model_dump(include={"rank", "lora_alpha", "lora_layers", "lora_blocks", "head_hidden", "head_on"}),
    )
    read = model.eval().features(images).detach()
    torch.testing.assert_close(read, trained[0], atol=5e-3, rtol=5e-3)
    assert read.std(0).max() > 0.1  # they tell the images apart


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_shipped_says_that_the_recipe_made_it(name: str) -> None:
    report, weights = json.loads((SMALL_WEIGHTS / name / "pretraining.json").read_text()), SMALL_WEIGHTS / name / "model.safetensors"
    assert asdict(SHIPPED[name]).items() <= report["settings"].items()
    assert load_backbone(SMALL_WEIGHTS / name).num_parameters() == report["parameters"]
    assert weights.stat().st_size < 4e6
    assert f"python -m data_prep backbones {name}" in (SMALL_WEIGHTS / name / "README.md").read_text()


def test_a_full_sized_recipe_has_heads_of_32() -> None:
    for name in ("vit-small", "vit-base", "vit-large"):
        assert RECIPES[name].hidden == 32 * RECIPES[name].heads


# --- command line ------------------------------------------------------------------------------------------------------------


def _exit_code(*arguments: str) -> int:
    return main(["backbones", *arguments])


def test_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--images", str(folder), "--out", str(tmp_path), "--size", "8", "--batch", "16", "--epochs", "1", "--per-class", "10"]
    assert _exit_code("vit-tiny", *options) == 0
    said = capsys.readouterr()
    assert "30 images of 3 classes" in said.out
    assert f"-> {tmp_path / 'vit-tiny'}" in said.out
    assert "epoch 1/1" in said.err
    assert "--per-class 10 --size 8" in (tmp_path / "vit-tiny/README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vit-huge"], "unknown backbone 'vit-huge'; known: vit-tiny"),
        (["--size", "30"], "30 px don't divide into patches of 8"),
        (["--device", "tpu"], "'tpu' is neither cpu nor cuda"),
        (["--device", "cuda:7"], "'cuda:7' can't be used here: "),
        (["--images", "nowhere"], "error: nowhere: no such folder; `python -m data_prep tiny-imagenet` makes"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(*arguments, "--out", str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
