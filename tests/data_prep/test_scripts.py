"""Each script of ``scripts/pretrain`` makes a checkpoint that the library reads."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import miniature_archives as miniature
import numpy as np
import pytest
import torch
from PIL import Image
from tiny_worlds import blots

from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.public import PUBLIC_SETS, read_public
from fedmuscle_lib.models import load_backbone, load_tokenizer
from fedmuscle_lib.models.efficientnet_lite import EfficientNetLiteConfig, EfficientNetLiteModel
from fedmuscle_lib.models.hybrid_vit import Stem

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "scripts/pretrain"))
    return import_module


@pytest.mark.parametrize("name", ["vit-tiny", "segformer-b0"])
def test_image_backbones(script, tmp_path, monkeypatch, name):
    module = script("image_backbones")
    monkeypatch.setattr(module, "vocabulary", blots)
    monkeypatch.setattr(module, "upstream_accuracy", lambda *_: 0.0)
    module.main([name], tmp_path, steps=1)
    shipped = load_backbone(ROOT / "data_prep/weights/mini" / name)
    assert load_backbone(tmp_path / name).num_parameters() == shipped.num_parameters()
    with pytest.raises(FileExistsError):  # nothing is replaced
        module.main([name], tmp_path, steps=1)


def test_cls_backbones(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script("cls_backbones"), "upstream_accuracy", lambda *_: 0.0)
    script("cls_backbones").main(["vit-tiny"], tmp_path, steps=1)
    shipped = load_backbone(ROOT / "data_prep/weights/mini/cls-vit-tiny")
    made = load_backbone(tmp_path / "cls-vit-tiny")
    assert {k: v.shape for k, v in made.state_dict().items()} == {
        k: v.shape for k, v in shipped.state_dict().items()
    }


@pytest.mark.parametrize("name", ["bert-base", "gpt2", "small-gpt2"])
def test_text_backbones(script, tmp_path, monkeypatch, name):
    module = script("text_backbones")
    monkeypatch.setattr(module, "BOOKS", 100)
    monkeypatch.setattr(module, "UPSTREAM_BOOKS", 100)
    miniature.topics(tmp_path, "yahoo_answers_csv", 3, 10)
    module.main([name], tmp_path / "out", tmp_path, steps=1)
    backbone = load_backbone(tmp_path / "out" / name)
    assert len(load_tokenizer(tmp_path / "out" / name)) == backbone.config.vocab_size


def test_hybrid_vits(script, archives, tmp_path, monkeypatch):
    module = script("hybrid_vits")
    members = {}
    for i in range(12):
        Image.fromarray(np.full((40, 48, 3), 20 * i, np.uint8)).save(file := io.BytesIO(), "PNG")
        members[f"train/{i}.png"] = file.getvalue()
    miniature.write_zip(archives / "tiny-imagenet-200.zip", members)
    config = EfficientNetLiteConfig(**module.CHECKPOINTS[module.STEM]["config"])
    first = {key: list(getattr(config, key)[: module.STAGES]) for key in module.BY_STAGE}
    overall = {key: getattr(config, key) for key in module.OVERALL}
    stem = Stem(EfficientNetLiteConfig(**overall | first)).eval()
    teacher = EfficientNetLiteModel(config).eval()
    classifier = torch.nn.Linear(1280, 10)
    monkeypatch.setattr(module, "networks", lambda wheels: (stem, teacher, classifier))
    module.main(["hybrid-vit-small"], archives, tmp_path / "out", epochs=1)
    shipped = load_backbone(ROOT / "data_prep/weights/small/hybrid-vit-small")
    found = load_backbone(tmp_path / "out/hybrid-vit-small")
    assert found.num_parameters() == shipped.num_parameters()


def test_synthetic_images(script, mini_world, tmp_path, monkeypatch):
    pytest.importorskip("diffusers")
    module = script("synthetic_images")
    monkeypatch.setattr(module, "vocabulary", blots)
    monkeypatch.setattr(module, "DENOISING", 2)
    monkeypatch.setattr(module, "EACH", 2)
    module.main(new=tmp_path / "model", steps=1)
    for folder in ("MLC_setup", "IC"):
        (tmp_path / folder).symlink_to(mini_world / folder)
    module.main(data_dir=tmp_path, model=tmp_path / "model")
    images = read_public(tmp_path / PUBLIC_SETS["synthetic"], 12, Pixels(32))
    noise = read_public(tmp_path / PUBLIC_SETS["noise"], 12, Pixels(32))
    assert images.shape == noise.shape == (12, 3, 32, 32)
    assert images.float().std() < noise.float().std()  # of images, half way to noise and back
