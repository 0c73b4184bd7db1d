"""Hybrid ViTs as a family of users' models, on a narrow stem with random weights; and the
checkpoints that are shipped.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import BatchNorm2d
from transformers import ViTConfig, ViTModel

from data_prep import SMALL_WEIGHTS
from fedmuscle_lib.core.notebooks import FIGURES
from fedmuscle_lib.models import architecture_of, checkpoint_digest, load_backbone
from fedmuscle_lib.models.efficientnet_lite import (
    EfficientNetLiteConfig,
    EfficientNetLiteModel,
    scaled,
)
from fedmuscle_lib.models.hybrid_vit import HybridViT, HybridViTConfig, HybridViTModel
from fedmuscle_lib.runs.store import ARCHIVE

STAGES = {
    "in_channels": [32, 8, 8, 16, 16],
    "out_channels": [8, 8, 16, 16, 24],
    "num_block_repeats": [1, 1, 1, 1, 2],
}
STAGES |= {
    "strides": [1, 2, 2, 2, 1],
    "kernel_sizes": [3, 3, 5, 3, 5],
    "expand_ratios": [1, 6, 6, 6, 6],
}
LITE = {
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "hidden_act": "relu6",
    "batch_norm_eps": 1e-3,
}
SIDE, PLACES = 64, 16
SHIPPED = ("hybrid-vit-small", "hybrid-vit-base", "hybrid-vit-large")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A checkpoint whose batch norms and standardisation have statistics of their own."""
    torch.manual_seed(0)
    width = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    model = HybridViTModel(HybridViTConfig(image_size=SIDE, stem=LITE | STAGES, **width))
    for norm in (module for module in model.modules() if isinstance(module, BatchNorm2d)):
        norm.weight.data.uniform_(0.5, 1.5)
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.01, 0.02)
    model.embeddings.mean.normal_()
    model.embeddings.std.uniform_(0.5, 2)
    folder = tmp_path_factory.mktemp("models") / "hybrid"
    model.save_pretrained(folder)
    return folder


def _images(n: int = 3, side: int = SIDE) -> torch.Tensor:
    return torch.randint(
        0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def _model(folder: Path, **options: str) -> HybridViT:
    torch.manual_seed(0)
    common = {
        "proj_dim": 16,
        "rank": 4,
        "lora_alpha": 4,
        "lora_layers": "linear",
        "lora_blocks": "all",
    }
    return HybridViT(
        load_backbone(folder), 5, head_hidden=8, head_on="features", **(common | options)
    )


def test_it_is_a_vit_on_the_standardised_map_of_the_stem(folder):
    """Composed by hand of transformers' parts: an EfficientNet that goes on to stride 32, cut off
    at its sixth block, and a ViT.
    """
    saved = load_file(folder / "model.safetensors")
    further = {
        key: [*values, last]
        for (key, values), last in zip(STAGES.items(), (24, 32, 1, 2, 3, 6), strict=True)
    }
    lite = EfficientNetLiteModel(EfficientNetLiteConfig(hidden_dim=1280, **LITE | further))
    prefix = "embeddings.stem."
    lite.load_state_dict(
        {
            name.removeprefix(prefix): tensor
            for name, tensor in saved.items()
            if name.startswith(prefix)
        },
        strict=False,
    )
    width = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    vit = ViTModel(
        ViTConfig(image_size=4, patch_size=1, num_channels=24, **width), add_pooling_layer=False
    ).eval()
    vit.load_state_dict({name: saved[name] for name in vit.state_dict()})
    pixels = (_images().float() - 127) / 128
    with torch.inference_mode():
        maps = lite.eval()(pixels, output_hidden_states=True).hidden_states[6]
        assert maps.shape == (3, 24, 4, 4)
        by_hand = vit((maps - saved["embeddings.mean"]) / saved["embeddings.std"]).last_hidden_state
        found = load_backbone(folder)(pixels).last_hidden_state
    assert found.shape == (3, 1 + PLACES, 16)
    torch.testing.assert_close(found, by_hand)


def test_the_stem_stays_in_evaluation_mode(folder):
    backbone, pixels = load_backbone(folder), scaled(_images())
    before = backbone(pixels).last_hidden_state
    assert torch.equal(backbone.train()(pixels).last_hidden_state, before)
    assert not any(module.training for module in backbone.embeddings.stem.modules())


def test_the_cls_token_is_refused_since_distillation_did_not_train_it(folder):
    with pytest.raises(ValueError, match="has no first token that stands for the whole input"):
        _model(folder, pooling="cls")


@pytest.mark.parametrize("layers", ["attention", "linear"])
def test_lora_leaves_the_stem_alone(folder, layers):
    """Whose 1 x 1 convolutions are linear in each position, too."""
    model = _model(folder, lora_layers=layers)
    adapted = {
        name.partition(".lora_")[0]
        for name, p in model.backbone.named_parameters()
        if p.requires_grad
    }
    assert len(adapted) == 2 * {"attention": 2, "linear": 6}[layers]
    assert {name.partition(".")[0] for name in adapted} == {"layers"}
    kept = model.frozen(_images())
    assert kept.keys() == {"hidden"} and kept["hidden"].shape == (
        3,
        1 + PLACES,
        16,
    ), "the stem is computed once"


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_checkpoints_tell_pictures_apart(name):
    folder = SMALL_WEIGHTS / name
    assert architecture_of(folder) is HybridViT
    features = _model(folder).features(_images(side=96)).detach()
    assert features.isfinite().all() and features.std(0).mean() > 0.01


def test_shipped_runs_are_found_with_the_shipped_checkpoints():
    """No fingerprint guards this family: the source that computed the runs is stated in it."""
    with ZipFile(FIGURES / "small" / ARCHIVE) as archive:
        runs = [
            ZipFile(io.BytesIO(archive.read(run)))
            for run in archive.namelist()
            if run.endswith(".zip")
        ]
    inputs = [json.loads(run.read("provenance.json")).get("inputs", {}) for run in runs]
    for name in SHIPPED:
        assert {own[f"checkpoint {name}"] for own in inputs if f"checkpoint {name}" in own} == {
            checkpoint_digest(SMALL_WEIGHTS / name)
        }
