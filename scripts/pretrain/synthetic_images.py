"""Make the public sets ``synthetic`` and ``noise``: 50 images a user of Setup1, from its own.

    python scripts/pretrain/synthetic_images.py --data-dir data/real --stable-diffusion models
    python scripts/pretrain/synthetic_images.py --data-dir data/real --model FOLDER
    python scripts/pretrain/synthetic_images.py --train FOLDER

The first pipeline is the paper's (Appendix J): Stable Diffusion 1.5 with ControlNet on the edges of
the user's image, and no prompt. Its checkpoints lie below the folder by their Hugging Face names.
The second is image-to-image generation (SDEdit, Meng et al. 2022) by a small diffusion model, which
``--train`` makes: a U-Net that learns to predict the velocity (Salimans and Ho 2022) of noisy
images. Without ``--images`` it learns from upstream glyphs, as
``data_prep/weights/mini-diffusion`` did, so it never sees a user's class. All need
``pip install -e '.[diffusion]'``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import claim, fit, optimisation, save
from diffusers import (
    ControlNetModel,
    DDIMScheduler,
    StableDiffusionControlNetImg2ImgPipeline,
    UNet2DModel,
)
from kornia.filters import canny
from torch import Tensor
from torch.nn import functional as F

from data_prep.io.writers import write_images
from data_prep.world.glyphs import vocabulary
from data_prep.world.rendering import SIZE, draw, noise, scenes, single
from fedmuscle_lib.core.files import MANIFEST
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.data.coco import Instances
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.public import IMAGE_SUFFIXES, PUBLIC_SETS

EACH = 50  # images of a user. Appendix J: "each user generates 50 synthetic images"
USERS = (  # of Setup1
    ("MLC_setup", 0),
    ("MLC_setup", 1),
    ("MLC_setup", 2),
    ("IC/CIFAR100", 0),
    ("IC/CIFAR100", 1),
    ("IC/CIFAR10", 0),
)
# The paper states neither the versions nor the condition.
STABLE_DIFFUSION = ("stable-diffusion-v1-5/stable-diffusion-v1-5", "lllyasviel/sd-controlnet-canny")
STABLE_SIDE = 512  # pixels that it was trained at
STABLE_GUIDANCE = 3.0  # of ControlNet's guess mode; its authors recommend 3 to 5
CHANNELS = (48, 96)  # of the U-Net, from fine to coarse
BLOCK = 2  # pixels of the side of a block that the U-Net reads as one place
BATCH, STEPS, LR = 32, 3000, 2e-3
TIMES, DENOISING = 1000, 50  # levels of noise in training; steps from pure noise to an image
HELD_OUT = 256  # images of the report's loss

Make = Callable[[Tensor, int], Tensor]  # (n, 3, side, side) uint8 and a seed -> images alike


@fixed_state(1)  # one thread makes the sums, hence the weights, repeatable
def train(out: Path, images: Path | None, side: int, steps: int, seed: int) -> None:
    """Train the small model and save it in ``out``.

    Args:
        images: a folder with images, also in folders below it; upstream glyphs if None.
        side: of the images in pixels, a multiple of four.
    """
    folder = claim(out)
    batches = files(images, side) if images else upstream
    torch.manual_seed(seed)
    rng, levels = np.random.RandomState(seed), scheduler()
    unet = UNet2DModel(
        sample_size=side // BLOCK,
        in_channels=3 * BLOCK**2,
        out_channels=3 * BLOCK**2,
        block_out_channels=CHANNELS,
        down_block_types=("DownBlock2D",) * len(CHANNELS),
        up_block_types=("UpBlock2D",) * len(CHANNELS),
        layers_per_block=1,
        norm_num_groups=8,
    )

    def loss(n: int) -> Tensor:
        clean = batches(rng, n)
        added, at = torch.randn_like(clean), torch.randint(TIMES, (n,))
        found = velocity(unet, levels.add_noise(clean, added, at), at)
        return F.mse_loss(found, levels.get_velocity(clean, added, at))

    fit(out.name, unet, lambda _: loss(BATCH), steps, optimisation(unet, LR, steps))
    rng = np.random.RandomState(seed + 1)
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        held_out = loss(HELD_OUT).item()
    save(unet, folder, {"side": side, "steps": steps, "seed": seed, "loss": round(held_out, 4)})


def scheduler() -> DDIMScheduler:
    """A cosine schedule (Nichol and Dhariwal 2021) with DDIM's steps (Song et al. 2021)."""
    return DDIMScheduler(TIMES, beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction")


def velocity(unet: UNet2DModel, pixels: Tensor, at: Tensor) -> Tensor:
    """Return the velocity that the model predicts for noisy ``pixels`` (n, 3, side, side)."""
    return F.pixel_shuffle(unet(F.pixel_unshuffle(pixels, BLOCK), at).sample, BLOCK)


def upstream(rng: np.random.RandomState, n: int) -> Tensor:
    """Draw upstream images, half of one object and half of one to three, scaled to [-1, 1]."""
    words = vocabulary()
    pool = np.array(words.upstream)
    parts = [single(rng.choice(pool, n // 2)), scenes(n - n // 2, pool, 1, 3, rng)]
    drawn = [draw(part, "upstream", words, rng).images for part in parts]
    return torch.cat(drawn).float() * 2 - 1


def files(folder: Path, side: int) -> Callable[[np.random.RandomState, int], Tensor]:
    """Return what draws batches of the images in a folder and in those below it."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    pixels = Pixels(side)
    return lambda rng, n: to_floats(
        pixels.load([paths[row] for row in rng.randint(len(paths), size=n)])
    )


def to_floats(images: Tensor) -> Tensor:
    return images.float() / 127.5 - 1


def small(folder: Path, strength: float) -> tuple[Make, int]:
    """Return SDEdit by the small model in ``folder``, and the side of its images.

    It adds noise to images, ``strength`` of the way to pure noise, and removes it again.
    """
    options = {"torch_dtype": torch.float32, "use_safetensors": True, "local_files_only": True}
    unet = UNet2DModel.from_pretrained(folder, **options).eval()

    @fixed_state(1)
    @torch.no_grad()
    def make(images: Tensor, seed: int) -> Tensor:
        levels = scheduler()
        levels.set_timesteps(DENOISING)
        times = levels.timesteps[DENOISING - round(DENOISING * strength) :]
        pixels = to_floats(images)
        if len(times):
            added = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed))
            pixels = levels.add_noise(pixels, added, times[:1])
        for at in times:
            pixels = levels.step(velocity(unet, pixels, at), at, pixels).prev_sample
        return ((pixels + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)

    return make, unet.config.sample_size * BLOCK


def stable_diffusion(folder: Path, strength: float, device: str) -> tuple[Make, int]:
    """Return the paper's pipeline, whose checkpoints lie below ``folder``, and its images' side."""
    base, control = (folder / name for name in STABLE_DIFFUSION)
    options: dict[str, Any] = {"use_safetensors": True, "local_files_only": True}
    net = ControlNetModel.from_pretrained(control, **options)
    pipe = StableDiffusionControlNetImg2ImgPipeline.from_pretrained(
        base, controlnet=net, safety_checker=None, **options
    )
    pipe.to(device).set_progress_bar_config(disable=True)

    @torch.no_grad()
    def make(images: Tensor, seed: int) -> Tensor:
        made = []
        for row, image in enumerate(images):
            pixels = image[None] / 255
            found = pipe(
                "",
                pixels,
                canny(pixels)[1].expand_as(pixels),
                generator=torch.Generator().manual_seed(seed * len(images) + row),
                output_type="np",
                strength=strength,
                num_inference_steps=DENOISING,
                guidance_scale=STABLE_GUIDANCE,
                guess_mode=True,
            ).images[0]
            made.append(torch.from_numpy((found * 255).round().astype(np.uint8)).permute(2, 0, 1))
        return torch.stack(made)

    return make, STABLE_SIDE


def originals(data_dir: Path, side: int) -> Tensor:
    """Return the first images of each user's training file, (EACH, users, 3, side, side) uint8."""
    own, pixels = [], Pixels(side)
    for folder, client in USERS:
        path = data_dir / folder / f"train/client_{client}"
        if folder == "MLC_setup":
            images = Instances(path.with_suffix(".json")).load(
                data_dir / folder / "images/train", pixels
            )
        else:
            images = pixels.resize(Pickled(path.with_suffix(".pkl"), "data").images()[:EACH])
        own.append(images[:EACH])
    return torch.stack(own, 1)


def write(data_dir: Path, make: Make, side: int, seed: int, facts: dict[str, Any]) -> None:
    """Write the two public sets, as many images of either; image 6 r + k is made of image r of
    user k + 1.
    """
    folders = [claim(data_dir / PUBLIC_SETS[name]) for name in ("synthetic", "noise")]
    private = originals(data_dir, side)
    made = make(private.flatten(0, 1), seed).permute(0, 2, 3, 1).numpy()
    manifest = {"dataset": "synthetic", "whole": True, "request": facts | {"seed": seed}}
    for folder, images in zip(folders, (made, noise(len(made), side)), strict=True):
        write_images(folder, images)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def main(
    data_dir: Annotated[Path, typer.Option(help="The users' files.")] = Path("data/real"),
    model: Annotated[Path | None, typer.Option(help="Use the small model in this folder.")] = None,
    stable: Annotated[
        Path | None, typer.Option("--stable-diffusion", help="Use the checkpoints below it.")
    ] = None,
    strength: Annotated[float, typer.Option(help="Share of the way to pure noise.")] = 0.5,
    device: Annotated[str, typer.Option(help="Where Stable Diffusion runs.")] = "cpu",
    new: Annotated[Path | None, typer.Option("--train", help="Train a small model there.")] = None,
    images: Annotated[Path | None, typer.Option(help="Train on the images in it.")] = None,
    side: Annotated[int, typer.Option(help="Side of the images to train on.")] = SIZE,
    steps: Annotated[int, typer.Option(help="Steps of training.")] = STEPS,
    seed: Annotated[int, typer.Option(help="Seed of all random draws.")] = 0,
) -> None:
    """Make synthetic images, or train the small model that does."""
    if new:
        return train(new, images, side, steps, seed)
    if not (model or stable):
        raise typer.BadParameter("give --model, --stable-diffusion or --train")
    make, size = small(model, strength) if model else stable_diffusion(stable, strength, device)
    pipeline = {"pipeline": "small" if model else "stable-diffusion", "strength": strength}
    write(data_dir, make, size, seed, pipeline)


if __name__ == "__main__":
    typer.run(main)
