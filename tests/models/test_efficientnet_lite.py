"""EfficientNet-Lite as a family of users' models, on a narrow network with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import BatchNorm2d

from fedmuscle_lib import Settings
from fedmuscle_lib.fedmuscle.build import build
from fedmuscle_lib.models import FrozenStates, load_backbone
from fedmuscle_lib.models.efficientnet_lite import (
    EfficientNetLite,
    EfficientNetLiteConfig,
    EfficientNetLiteModel,
    scaled,
)

NARROW = {"out_channels": [8, 8, 16, 16, 24, 24, 32], "num_block_repeats": [1, 2, 1, 1, 2, 1, 1]}
LITE0 = {
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "hidden_dim": 1280,
    "hidden_act": "relu6",
    "batch_norm_eps": 1e-3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A checkpoint whose batch norms have statistics of their own."""
    torch.manual_seed(0)
    channels = NARROW["out_channels"]
    model = EfficientNetLiteModel(
        EfficientNetLiteConfig(in_channels=[32, *channels[:-1]], **NARROW, **LITE0)
    )
    for norm in (module for module in model.modules() if isinstance(module, BatchNorm2d)):
        norm.weight.data.uniform_(0.5, 1.5)
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.01, 0.02)
    folder = tmp_path_factory.mktemp("models") / "lite"
    model.save_pretrained(folder)
    return folder


def _model(folder: Path, head: str = "two layers", **options: object) -> EfficientNetLite:
    torch.manual_seed(0)
    common = {
        "proj_dim": 16,
        "rank": 4,
        "lora_alpha": 4,
        "lora_layers": "linear",
        "lora_blocks": "all",
        "head_hidden": 8,
        "head_on": "features",
    }
    return EfficientNetLite(load_backbone(folder), 5, head=head, **(common | options))


def _images(side: int = 64) -> torch.Tensor:
    return torch.randint(
        0, 256, (3, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def test_the_last_map_is_a_thirty_second_of_the_picture(folder):
    backbone = load_backbone(folder)
    assert backbone(torch.zeros(2, 3, 64, 96)).last_hidden_state.shape == (2, 1280, 2, 3)


def test_a_checkpoint_is_read_whole(folder, tmp_path):
    saved = load_file(folder / "model.safetensors")
    assert not any("squeeze_excite" in name for name in saved)
    assert all(
        torch.equal(saved[name], tensor)
        for name, tensor in load_backbone(folder).state_dict().items()
    )
    weights = {
        name: tensor for name, tensor in saved.items() if not name.endswith("num_batches_tracked")
    }
    for name, kept in (
        ("uncounted", weights),
        ("short", {k: v for k, v in weights.items() if k != "encoder.top_bn.running_var"}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_bytes((folder / "config.json").read_bytes())
        save_file(kept, tmp_path / name / "model.safetensors", metadata={"format": "pt"})
    pixels = scaled(_images())
    assert torch.equal(
        load_backbone(tmp_path / "uncounted")(pixels).last_hidden_state,
        load_backbone(folder)(pixels).last_hidden_state,
    )
    with pytest.raises(OSError, match=r"lacks encoder\.top_bn\.running_var"):
        load_backbone(tmp_path / "short")


def test_batch_norm_keeps_the_statistics_of_the_pretraining(folder):
    model = _model(folder).train()
    before = {name: buffer.clone() for name, buffer in model.backbone.named_buffers()}
    model(_images()).sum().backward()
    assert before and all(
        torch.equal(buffer, before[name]) for name, buffer in model.backbone.named_buffers()
    )
    backbone = load_backbone(folder)
    assert torch.equal(
        backbone.train()(scaled(_images())).last_hidden_state,
        backbone.eval()(scaled(_images())).last_hidden_state,
    )


def test_the_last_blocks_are_two_stages_and_the_top(folder):
    model = _model(folder, lora_blocks="last")
    adapted = [
        name.partition(".lora_")[0]
        for name, p in model.backbone.named_parameters()
        if p.requires_grad
    ]
    last = [
        f"encoder.blocks.{block}.{layer}"
        for block in (7, 8)
        for layer in ("expansion.expand_conv", "projection.project_conv")
    ]
    assert model.depth == 7 and list(dict.fromkeys(adapted)) == [*last, "encoder.top_conv"]
    with pytest.raises(
        ValueError, match="lora_layers: efficientnet_lite has no layers of the kind 'attention'"
    ):
        _model(folder, lora_layers="attention")


def test_features_are_1280_wide(folder):
    model, images = _model(folder), _images()
    expected = load_backbone(folder)((images.float() - 127) / 128).last_hidden_state.mean((2, 3))
    assert torch.allclose(model.features(images), expected, atol=1e-6)
    assert model.represent(images).shape == (3, 16) and model(images).shape == (3, 5)
    outputs, levels = model.forward_with_levels(images)
    assert torch.equal(outputs, model(images))
    assert [level.shape[1] for level in levels] == [
        8,
        16,
        24,
        1280,
        16,
    ]  # after blocks 3, 5 and 8 of 9, the top and the projection
    assert torch.equal(levels[-2], model.features(images))
    with pytest.raises(ValueError, match="multiples of 32 px, got 80 x 96"):
        model.features(torch.zeros(2, 3, 80, 96))


def test_a_decoder_reads_four_strides(folder):
    model, images = _model(folder, "decoder"), _images(96)
    assert [tuple(stage.shape[1:]) for stage in model.maps(images)] == [
        (8, 24, 24),
        (16, 12, 12),
        (24, 6, 6),
        (1280, 3, 3),
    ]
    assert model(images).shape == (3, 5, 24, 24)
    assert model.features(images).shape == (3, 1280) and model.represent(images).shape == (3, 16)
    with pytest.raises(ValueError, match="no levels"):
        model.forward_with_levels(images)


@pytest.mark.parametrize("head", ["two layers", "decoder"])
@pytest.mark.parametrize("blocks", ["all", "last", "none"])
def test_kept_states_are_the_plain_path(folder, head, blocks):
    """Forward and backward, in batches of another size than the states were computed in: 1e-5 of
    the largest entry.
    """
    model, images = (
        _model(folder, head, lora_blocks=blocks).eval(),
        torch.cat([_images(), _images().flip(-1)]),
    )
    for p in (p for name, p in model.named_parameters() if "lora_B" in name):
        torch.nn.init.normal_(p, std=0.02)  # zero at first, which would hide LoRA
    results = []
    for inputs in (images[2:5], FrozenStates().of(model, images).take(torch.arange(2, 5))):
        model.zero_grad()
        outputs, z = model(inputs), model.represent(inputs)
        (outputs.square().mean() + z[:, 0].sum()).backward()
        results.append(
            [outputs, z, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        )
    for plain, kept in zip(*results, strict=True):
        torch.testing.assert_close(kept, plain, rtol=1e-4, atol=1e-5 * plain.abs().max().item())


@pytest.mark.parametrize("size, repeats", [(0, [1, 2, 2, 3, 3, 4, 1]), (2, [1, 3, 3, 4, 4, 5, 1])])
@pytest.mark.parametrize("side", [64, 96])
def test_parity_with_the_reference_code(size, repeats, side):
    """With efficientnet-lite-pytorch 0.1.0, where it is on the path: equal to the bit."""
    reference = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet
    from data_prep.checkpoints.conversion import converted
    from data_prep.checkpoints.wheels import CHECKPOINTS

    config = CHECKPOINTS[f"efficientnet-lite{size}"]["config"]
    assert config["num_block_repeats"] == repeats
    torch.manual_seed(0)
    theirs = reference.from_name(f"efficientnet-lite{size}", image_size=side).eval()
    ours = EfficientNetLiteModel(EfficientNetLiteConfig.from_dict(config)).eval()
    ours.load_state_dict(converted(theirs.state_dict()), strict=False)
    pixels = scaled(_images(side))
    with torch.no_grad():
        assert torch.equal(ours(pixels).last_hidden_state, theirs.extract_features(pixels))


# --- in a federation


@pytest.fixture
def mixed(settings, folder) -> Callable[..., Settings]:
    """Settings of a user who classifies (6, IC10) and one who segments (7), both with the
    convolutional network.
    """
    given = {
        "setup": "setup2",
        "users": (6, 7),
        "others": 1,
        "train_samples": {"SS": 8, "IC10": 8},
        "lora_layers": "linear",
    }
    members = Settings(setup="setup2", users=(6, 7), others=1).members
    given |= {
        "backbones": {user.model: str(folder) for user in members},
        "public": "flickr30k",
        "public_size": 32,
        "batch_size": 8,
    }
    return lambda **more: settings(**(given | more))


@pytest.mark.parametrize("name, user", [("image_size", 6), ("mask_size", 7)])
def test_a_side_that_does_not_fit_is_named(mixed, name, user):
    with pytest.raises(
        ValueError,
        match=rf"{name}: 48 is no multiple of 32, as the EfficientNetLite of user {user} needs it",
    ):
        build(mixed(**({"image_size": 32, "mask_size": 32} | {name: 48})))
