"""A small diffusion model, and image-to-image generation with it: SDEdit (Meng et al. 2022).

The model is a U-Net of `diffusers`, an optional extra, that learns to predict the velocity
(Salimans and Ho 2022) of noisy images. For the embedded world it learns from images of upstream
glyphs, as the backbones do, so it never sees a user's class, image or test image.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from data_prep.io.entry import SourceError
from data_prep.pretrain.training import MADE_WITH, card, claim, fit, optimisation, public, save
from data_prep.world.glyphs import vocabulary
from data_prep.world.rendering import SIZE, draw, scenes, single
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.public import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from diffusers import DDIMScheduler, UNet2DModel

VERSION = 1  # of this module: raise it when the same recipe makes other weights
CHANNELS = (48, 96)  # of the U-Net, from fine to coarse
# pixels of the side of a block that the U-Net reads as one place: half the places, a quarter of the
# time
BLOCK = 2
BATCH, STEPS, LR = 32, 3000, 2e-3
TIMES = 1000  # levels of noise in training
DENOISING = 50  # steps from pure noise to an image
HELD_OUT = 256  # images of the report's loss

Batches = Callable[[np.random.RandomState, int], Tensor]


def diffusers() -> ModuleType:
    """Return the package of the optional extra; raises SourceError if it is not installed."""
    try:
        return import_module("diffusers")
    except ImportError:
        raise SourceError(
            "diffusers, which makes synthetic images, is not installed; `pip install -e"
            " '.[diffusion]'` does it"
        ) from None


@fixed_state(1)  # one thread makes the sums, hence the weights, repeatable
def train(
    out: Path, images: Path | None = None, side: int = SIZE, steps: int = STEPS, seed: int = 0
) -> dict:
    """Train the model, save it in ``out`` in half precision with a model card, and return its
    report.

    Args:
        images: a folder with images, also in folders below it; upstream images of the embedded
            world if None.
        side: of the images in pixels, a multiple of four.

    Raises:
        SourceError: diffusers is not installed, or ``images`` holds none.
        ValueError: ``side`` is no multiple of four.
        NotOurs: ``out`` holds something else.
        OSError: the folder can't be written.
    """
    claim(out)
    library = diffusers()
    if side % (2 * BLOCK):
        raise ValueError(
            f"side: {side} pixels are no multiple of {2 * BLOCK}, which the model halves twice"
        )
    batches, started = _files(images, side) if images else _upstream(), time.process_time()
    torch.manual_seed(seed)
    rng, noise = np.random.RandomState(seed), scheduler()
    unet = library.UNet2DModel(
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
        return F.mse_loss(
            velocity(unet, noise.add_noise(clean, added, at), at),
            noise.get_velocity(clean, added, at),
        )

    fit(out.name, unet, lambda step: loss(BATCH), steps, optimisation(unet, LR, steps))
    rng = np.random.RandomState(seed + 1)
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        held_out = loss(HELD_OUT).item()
    report = {
        "name": out.name,
        "version": VERSION,
        "images": public(images) if images else "upstream images of the embedded world",
        "side": side,
        "channels": CHANNELS,
        "batch": BATCH,
        "steps": steps,
        "seed": seed,
        "parameters": unet.num_parameters(),
        "loss": round(held_out, 4),
        "cpu_seconds": round(time.process_time() - started),
        **MADE_WITH,
    }
    options = {"images": report["images"] if images else None, "side": side if images else None}
    command = "python -m data_prep diffusion" + "".join(
        f" --{name} {value}" for name, value in options.items() if value
    )
    save(unet, out, report, card("diffusion", report | {"lr": LR, "command": command}))
    return report


def load(folder: Path) -> UNet2DModel:
    """The trained model in ``folder``, in full precision; raises SourceError if diffusers or a
    readable model is missing.
    """
    library = diffusers()
    try:
        options = {"torch_dtype": torch.float32, "use_safetensors": True, "local_files_only": True}
        return library.UNet2DModel.from_pretrained(folder, **options).eval()
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{folder}: no diffusion model ({str(error).splitlines()[0]}); `python -m data_prep"
            " diffusion` makes it"
        ) from None


@fixed_state(1)
@torch.no_grad()
def sdedit(unet: UNet2DModel, strength: float, images: Tensor, seed: int) -> Tensor:
    """Add noise to images and remove it again, which keeps what is coarse and draws what is fine
    anew.

    Args:
        strength: share of the way to pure noise, from 0 (the images themselves) to 1.
        images: (n, 3, side, side) uint8.
        seed: of the noise.

    Returns:
        images alike.
    """
    noise = scheduler()
    noise.set_timesteps(DENOISING)
    times = noise.timesteps[DENOISING - round(DENOISING * strength) :]
    pixels = _scaled(images)
    if len(times):
        added = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed))
        pixels = noise.add_noise(pixels, added, times[:1])
    for at in times:
        pixels = noise.step(velocity(unet, pixels, at), at, pixels).prev_sample
    return ((pixels + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def scheduler() -> DDIMScheduler:
    """The levels of noise: a cosine schedule (Nichol and Dhariwal 2021), with DDIM's deterministic
    steps (Song et al. 2021).
    """
    return diffusers().DDIMScheduler(
        TIMES, beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction"
    )


def velocity(unet: UNet2DModel, pixels: Tensor, at: Tensor) -> Tensor:
    """The velocity that the model predicts for noisy ``pixels`` (n, 3, side, side) at the times
    ``at``, (n,) or one for all.
    """
    return F.pixel_shuffle(unet(F.pixel_unshuffle(pixels, BLOCK), at).sample, BLOCK)


def _scaled(images: Tensor) -> Tensor:
    return images.float() / 127.5 - 1


def _upstream() -> Batches:
    """Batches of upstream images, half of one object and half of one to three, on grounds as
    detailed as the users'.
    """
    words = vocabulary()
    pool = np.array(words.upstream)

    def batch(rng: np.random.RandomState, n: int) -> Tensor:
        parts = [single(rng.choice(pool, n // 2)), scenes(n - n // 2, pool, 1, 3, rng)]
        return (
            torch.cat([draw(part, "upstream", words, rng).images for part in parts]).float() * 2 - 1
        )

    return batch


def _files(folder: Path, side: int) -> Batches:
    """Batches of the images in a folder and in those below it."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    if not paths:
        raise SourceError(f"{folder}: no folder with images to learn from")
    return lambda rng, n: _scaled(
        Pixels(side).load([paths[row] for row in rng.randint(len(paths), size=n)])
    )
