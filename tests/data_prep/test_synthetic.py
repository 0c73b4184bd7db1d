"""Synthetic images: what pipelines make of a user's images, how the public set is laid out, and
that what is shipped is what was made.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import Tensor

from data_prep import MINI_DIFFUSION
from data_prep.__main__ import main
from data_prep.pretrain import diffusion, synthetic
from data_prep.pretrain.synthetic import (
    STABLE_DIFFUSION,
    USERS,
    Pipeline,
    claim,
    originals,
    write,
    write_sheet,
)
from data_prep.world import mini
from fedmuscle_lib.core.files import digest
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.public import PUBLIC_SETS, read_public
from fedmuscle_lib.fedmuscle.setups import SETUPS, task_of

SIDE = 32
EACH = 5  # images of a user, in place of fifty
IMAGES = torch.randint(
    256, (3, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)


@pytest.fixture
def users(mini_world, tmp_path) -> Path:
    """A data directory with the training files of Setup1's users alone, linked."""
    for part in (
        "MLC_setup/train",
        "MLC_setup/images/train",
        "IC/CIFAR100/train",
        "IC/CIFAR10/train",
    ):
        (tmp_path / "data" / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / part).symlink_to(mini_world / part)
    return tmp_path / "data"


def inverted(images: Tensor, seed: int) -> Tensor:
    return 255 - images


# --- the small model


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A model after two steps on a folder of images."""
    pytest.importorskip("diffusers")
    folder = tmp_path_factory.mktemp("images")
    for row, image in enumerate(IMAGES):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{row}.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diffusion, "BATCH", 4)
        patch.setattr(diffusion, "HELD_OUT", 4)
        diffusion.train(folder.parent / "model", folder, SIDE, steps=2)
    return folder.parent / "model"


def test_without_noise_images_stay_as_they_are(trained):
    assert torch.equal(diffusion.sdedit(diffusion.load(trained), 0, IMAGES, seed=0), IMAGES)


def test_the_seed_decides_which_images_are_made_and_more_noise_moves_them_further(
    trained, monkeypatch
):
    monkeypatch.setattr(diffusion, "DENOISING", 10)
    unet = diffusion.load(trained)
    weak, strong, again, other = (
        diffusion.sdedit(unet, strength, IMAGES, seed)
        for strength, seed in ((0.1, 0), (1, 0), (0.1, 0), (0.1, 1))
    )
    assert weak.shape == IMAGES.shape and weak.dtype == torch.uint8
    assert torch.equal(weak, again) and not torch.equal(weak, other)
    moved = [(made.float() - IMAGES.float()).square().mean() for made in (weak, strong)]
    assert moved[0] < moved[1]


def test_the_report_and_the_card_say_how_the_model_is_made_again(trained):
    report = json.loads((trained / "pretraining.json").read_text())
    assert (report["side"], report["steps"]) == (SIDE, 2) and report["images"].startswith(
        trained.parent.name
    )
    assert f"--images {report['images']} --side {SIDE}" in (trained / "README.md").read_text()


def test_a_command_makes_the_public_sets_with_the_small_model(trained, users, monkeypatch, capsys):
    monkeypatch.setattr(synthetic, "EACH", 2)
    own = [
        "--pipeline",
        "small",
        "--models-path",
        str(trained),
        "--data-dir",
        str(users),
        "--strength",
        "0.02",
    ]
    assert main(["synthetic", *own]) == 0
    request = json.loads((users / "public/synthetic/manifest.json").read_text())["request"]
    assert (request["pipeline"], request["strength"], request["each"], request["seed"]) == (
        "small",
        0.02,
        2,
        0,
    )
    assert len(request["weights"]) == len(request["originals"]) == 64
    assert main(["synthetic", *own]) == 0 and "nothing to do" in capsys.readouterr().out


# --- Stable Diffusion


@pytest.fixture
def stable(tmp_path) -> Path:
    """Checkpoints of the paper's kinds with few random weights, in the places of the real ones."""
    diffusers = pytest.importorskip("diffusers")
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    blocks = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}
    unet = diffusers.UNet2DConditionModel(
        **blocks,
        sample_size=8,
        cross_attention_dim=8,
        attention_head_dim=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    kinds = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "latent_channels": 4,
    }
    text = CLIPTextConfig(
        hidden_size=8,
        intermediate_size=8,
        num_attention_heads=2,
        num_hidden_layers=1,
        vocab_size=4,
        bos_token_id=0,
        eos_token_id=1,
    )
    (tmp_path / "vocab.json").write_text(
        json.dumps({"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2, "a": 3})
    )
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    base, control = (tmp_path / name for name in STABLE_DIFFUSION)
    diffusers.StableDiffusionPipeline(
        vae=diffusers.AutoencoderKL(**blocks | kinds),
        text_encoder=CLIPTextModel(text),
        tokenizer=CLIPTokenizer(
            str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"), model_max_length=8
        ),
        unet=unet,
        scheduler=diffusers.PNDMScheduler(skip_prk_steps=True, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(base)
    diffusers.ControlNetModel.from_unet(
        unet, conditioning_embedding_out_channels=(4, 8)
    ).save_pretrained(control)
    return tmp_path


def test_stable_diffusion_makes_images_of_images(stable, monkeypatch):
    monkeypatch.setattr(synthetic, "STABLE_SIDE", SIDE)
    monkeypatch.setattr(diffusion, "DENOISING", 2)
    pipeline = synthetic.stable_diffusion(stable, 1.0)
    made = pipeline.make(IMAGES[:2], 0)
    assert made.shape == (2, 3, SIDE, SIDE) and made.dtype == torch.uint8 and pipeline.side == SIDE
    assert torch.equal(made, pipeline.make(IMAGES[:2], 0)) and not torch.equal(
        made, pipeline.make(IMAGES[:2], 1)
    )
    assert pipeline.facts["pipeline"] == "stable-diffusion" and len(pipeline.facts["weights"]) == 64


# --- mistakes


@pytest.mark.parametrize(
    "command", [["synthetic"], ["synthetic", "--pipeline", "small"], ["diffusion"]]
)
def test_without_the_extra_one_line_says_what_installs_it(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    place = (
        ["--out", str(tmp_path / "model")]
        if command == ["diffusion"]
        else ["--data-dir", str(tmp_path)]
    )
    assert main([*command, *place]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "pip install -e '.[diffusion]'" in said
    assert list(tmp_path.iterdir()) == []


def test_a_missing_checkpoint_is_one_line_that_says_what_fetches_it(tmp_path, capsys):
    pytest.importorskip("diffusers")
    for pipeline, makes in (
        ("stable-diffusion", f"hf download {STABLE_DIFFUSION[0]}"),
        ("small", "python -m data_prep diffusion"),
    ):
        assert (
            main(
                [
                    "synthetic",
                    "--pipeline",
                    pipeline,
                    "--models-path",
                    str(tmp_path),
                    "--data-dir",
                    str(tmp_path),
                ]
            )
            == 2
        )
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and str(tmp_path) in said and makes in said


def test_a_folder_without_images_teaches_nothing(tmp_path, capsys):
    pytest.importorskip("diffusers")
    assert main(["diffusion", "--images", str(tmp_path), "--out", str(tmp_path / "model")]) == 2
    assert "no folder with images" in capsys.readouterr().err


def test_files_of_others_are_not_replaced(users):
    (users / "public/noise").mkdir(parents=True)
    (users / "public/noise/mine.png").write_bytes(b"mine")
    with pytest.raises(Exception, match="--force replaces them"):
        write(users, Pipeline(inverted, SIDE, {}), 0, str)
    assert not (users / "public/synthetic").exists()


# --- the public set


def test_the_images_are_made_from_setup1s_users():
    assert [(task_of(user).folder, user.client) for user in SETUPS["setup1"]] == list(USERS)


def test_the_sets_hold_images_of_all_users_in_turn_and_as_many_of_noise(users, monkeypatch):
    monkeypatch.setattr(synthetic, "EACH", EACH)
    write(users, Pipeline(inverted, SIDE, {}), 0, str)
    private = originals(users, SIDE)
    made, noise = (
        read_public(users / PUBLIC_SETS[name], EACH * len(USERS), Pixels(SIDE))
        for name in ("synthetic", "noise")
    )
    assert private.shape == (EACH, 6, 3, SIDE, SIDE)
    for row, user in ((0, 0), (1, 2), (EACH - 1, 5)):
        assert torch.equal(made[6 * row + user], 255 - private[row, user])
    assert noise.shape == made.shape and abs(noise.float().mean() - 127.5) < 1


def test_a_sheet_is_unpacked_to_the_images_that_it_was_made_of(users, tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "EACH", EACH)
    write_sheet(
        users,
        Pipeline(inverted, SIDE, {"pipeline": "inverted"}),
        3,
        tmp_path / "shipped/synthetic.png",
    )
    claim(
        users, tmp_path / "shipped/synthetic.png", force=False
    )  # what the command wrote it may replace
    monkeypatch.setattr(mini, "MINI_DIFFUSION", tmp_path / "shipped")
    mini._synthetic(tmp_path / "world")
    made = read_public(tmp_path / "world/public/synthetic", EACH * len(USERS), Pixels(SIDE))
    assert torch.equal(made, 255 - originals(users, SIDE).flatten(0, 1))
    request = json.loads((tmp_path / "world/public/synthetic/manifest.json").read_text())["request"]
    assert (request["pipeline"], request["seed"]) == ("inverted", 3)


# --- what is shipped


def test_the_shipped_model_is_small_and_of_the_recipe():
    report = json.loads((MINI_DIFFUSION / "pretraining.json").read_text())
    assert (report["steps"], report["batch"], report["channels"]) == (
        diffusion.STEPS,
        diffusion.BATCH,
        list(diffusion.CHANNELS),
    )
    (weights,) = MINI_DIFFUSION.glob("*.safetensors")
    assert (
        weights.stat().st_size < 3.1e6 and (MINI_DIFFUSION / "synthetic.png").stat().st_size < 1.5e6
    )
    with safe_open(weights, "pt") as tensors:
        assert {tensors.get_slice(key).get_dtype() for key in tensors.keys()} == {"F16"}  # noqa: SIM118  no mapping


def test_the_shipped_images_are_the_shipped_models_of_the_users_images(mini_world):
    request = json.loads((MINI_DIFFUSION / "synthetic.json").read_text())["request"]
    (weights,) = MINI_DIFFUSION.glob("*.safetensors")
    assert request["weights"] == hashlib.sha256(digest(weights).encode()).hexdigest()
    assert (
        request["originals"]
        == hashlib.sha256(originals(mini_world, SIDE).numpy().tobytes()).hexdigest()
    )


def test_the_shipped_images_are_made_again(mini_world):
    """To the bit on the processor that made them; on others a pixel may be rounded otherwise. The
    noise of the first images is the same however many follow.
    """
    pytest.importorskip("diffusers")
    request = json.loads((MINI_DIFFUSION / "synthetic.json").read_text())["request"]
    made: Callable[..., Tensor] = synthetic.small(MINI_DIFFUSION, request["strength"]).make
    shipped = read_public(mini_world / PUBLIC_SETS["synthetic"], 4, Pixels(SIDE))
    again = made(originals(mini_world, SIDE).flatten(0, 1)[:4], request["seed"])
    assert np.abs(again.numpy().astype(int) - shipped.numpy().astype(int)).mean() < 0.5
