"""Users' models: where checkpoints are found, what precision touches, and the paper's own
architectures.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from data_prep.checkpoints.paper import ARCHITECTURES, fetch
from data_prep.checkpoints.wheels import CHECKPOINTS, SHIPPED
from fedmuscle_lib import Settings
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.fedmuscle.profiles import PROFILES
from fedmuscle_lib.fedmuscle.setups import SETUPS
from fedmuscle_lib.models import UserModel, checkpoint_folder, load_backbone
from fedmuscle_lib.models.vision import VisionTransformer

TINY = "WinKawaks/vit-tiny-patch16-224"


@pytest.fixture(scope="module")
def models_path(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    fetch(TINY, folder, random=True)
    return folder


def _model(backbone: torch.nn.Module, precision: str, **given: Any) -> UserModel:
    torch.manual_seed(0)
    options = {
        "rank": 4,
        "lora_alpha": 4,
        "lora_layers": "attention",
        "lora_blocks": "all",
        "head_hidden": 8,
        "head_on": "features",
    }
    return VisionTransformer(backbone, 3, proj_dim=16, precision=precision, **options, **given)


def test_the_papers_checkpoints_have_the_papers_sizes():
    """ViT-Ti, -S, -B and -L of 5.5, 22, 86 (88 with patches of 32 px) and 303 million parameters
    (Dosovitskiy et al., 2021; Touvron et al., 2021); encoders of SegFormer-B0 and -B1 of 3.4 and
    13.1 (Xie et al., 2021, Table 1a); BERT-Base of 110 with its pooler, DistilBERT of 66, GPT-2 of
    124.
    """
    assert set(ARCHITECTURES) == set(PROFILES["paper"]["backbones"].values())
    with torch.device("meta"):
        sizes = {
            name: sum(p.numel() for p in AutoModel.from_config(config).parameters())
            for name, config in ARCHITECTURES.items()
        }
    assert [round(size / 1e6) for size in sizes.values()] == [6, 22, 88, 304, 3, 13, 109, 66, 124]


def test_a_checkpoint_is_found_by_name_or_in_hugging_faces_cache(models_path, tmp_path):
    assert checkpoint_folder(models_path, TINY) == models_path / TINY
    cached = tmp_path / "WinKawaks/models--WinKawaks--vit-tiny-patch16-224"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs/main").write_text("abc123")
    shutil.copytree(models_path / TINY, cached / "snapshots/abc123")
    assert checkpoint_folder(tmp_path, TINY) == cached / "snapshots/abc123"
    load_backbone(checkpoint_folder(tmp_path, TINY))
    with pytest.raises(FileNotFoundError, match="vit-nowhere"):
        load_backbone(checkpoint_folder(tmp_path, "google/vit-nowhere"))


def test_smalls_checkpoints_are_those_that_data_prep_writes():
    """One for every model of every setup, but for that which is mini's alone."""
    backbones = Settings(profile="small").backbones
    assert set(backbones) == {
        row.model for name, users in SETUPS.items() if name != "setup1_cls" for row in users
    }
    assert set(backbones.values()) <= CHECKPOINTS.keys() | SHIPPED.keys()


def test_a_vits_cls_token_stands_before_its_patches(models_path):
    backbone, pixels = (
        load_backbone(models_path / TINY),
        torch.zeros(2, 3, 224, 224, dtype=torch.uint8),
    )
    cls, mean = (
        _model(load_backbone(models_path / TINY), "float32", pooling=pooling)
        for pooling in ("cls", "mean")
    )
    with torch.no_grad():
        states = backbone(pixel_values=pixels / 127.5 - 1).last_hidden_state
        torch.testing.assert_close(cls.features(pixels), states[:, 0])
        torch.testing.assert_close(mean.features(pixels), states[:, 1:].mean(1))
        levels = cls.forward_with_levels(pixels)[1]
        torch.testing.assert_close(
            cls.finish(levels[-2]), states[:, 0]
        )  # of the last block, before the layer norm


def test_a_checkpoint_that_is_a_pickle_is_not_read(models_path, tmp_path):
    folder = shutil.copytree(models_path / TINY, tmp_path / "vit")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"vit: not a readable checkpoint .*model\.safetensors"):
        load_backbone(folder)


def test_random_weights_do_not_pass_for_the_papers(models_path):
    assert (models_path / TINY / "random.json").exists()
    assert fetch(TINY, models_path, random=True) == 5524416
    with pytest.raises(
        OSError, match=f"{TINY}: holds random weights.*delete it to fetch the real ones"
    ):
        fetch(TINY, models_path)


def test_a_damaged_checkpoint_is_named(models_path, tmp_path):
    shutil.copytree(models_path / TINY, tmp_path / TINY)
    weights = tmp_path / TINY / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(OSError, match=f"{TINY}: a damaged checkpoint .*delete it"):
        fetch(TINY, tmp_path, random=True)


def test_bfloat16_touches_the_backbone_alone(models_path):
    images = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    exact, rounded = (
        _model(load_backbone(models_path / TINY), precision)
        for precision in ("float32", "bfloat16")
    )
    with torch.no_grad():
        a, b = exact.represent(images), rounded.represent(images)
    assert a.dtype == b.dtype == torch.float32
    assert not torch.equal(a, b)
    assert torch.allclose(a, b, atol=0.02)  # bfloat16 keeps eight bits
    assert (
        rounded(images).dtype == torch.float32
    )  # autocast around the head too would give bfloat16


def test_the_paper_profile_builds_a_user_that_trains_and_represents(models_path, small_world):
    """The paper's numbers and architecture at 224 px, on the embedded world's pictures; the
    machine's device in place of a GPU.
    """
    given = {
        "profile": "paper",
        "device": "cpu",
        "precision": "float32",
        "data_dir": small_world,
        "models_path": models_path,
    }
    settings = Settings(
        users=(6,), algorithm="self", public_size=32, train_samples={"IC10": 8}, **given
    )
    assert settings.rounds == 150 and settings.proj_dim == 256
    client = build(settings).clients[0]
    assert client.public.shape == (32, 3, 224, 224)
    assert client.fit_batch(torch.arange(2)).isfinite()
    assert client.represent(torch.arange(2)).shape == (2, 256)
