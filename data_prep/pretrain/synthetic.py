"""The public set of synthetic images: each user of Setup1 makes some of its own by an
image-to-image diffusion pipeline (Appendix J).

A pipeline is one function from images to images. The paper's is Stable Diffusion with ControlNet;
the project has a small model of its own for images of few pixels. Image 6 r + k of the set is made
from image r of the training file of user k + 1, so each part of the set has images of all six.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kornia.filters import canny
from PIL import Image
from torch import Tensor

from data_prep.io.build import Place, Run, prepare, refuse_others
from data_prep.io.entry import Entry, SourceError
from data_prep.io.fetch import Source
from data_prep.io.writers import write_images
from data_prep.pretrain import diffusion
from data_prep.world.rendering import noise
from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.files import digest, named, put
from fedmuscle_lib.data.client_files import Pickled
from fedmuscle_lib.data.coco import Instances
from fedmuscle_lib.data.encodings import Pixels
from fedmuscle_lib.data.public import PUBLIC_SETS

EACH = 50  # images of a user. Appendix J: "each user generates 50 synthetic images"
USERS = (
    ("MLC_setup", 0),
    ("MLC_setup", 1),
    ("MLC_setup", 2),
    ("IC/CIFAR100", 0),
    ("IC/CIFAR100", 1),
    ("IC/CIFAR10", 0),
)  # of Setup1
# Neither the versions nor the condition are stated: Stable Diffusion 1.5, on the edges of the
# user's image.
STABLE_DIFFUSION = ("stable-diffusion-v1-5/stable-diffusion-v1-5", "lllyasviel/sd-controlnet-canny")
STABLE_SIDE = 512  # pixels that it was trained at
# of ControlNet's guess mode, which needs no prompt; its authors recommend 3 to 5
STABLE_GUIDANCE = 3.0
_START = b'{\n "dataset": "synthetic",'  # of what lies beside a sheet
ENTRY = Entry(
    name="synthetic",
    title="Synthetic images of Setup1's users",
    home="Appendix J",
    terms=(
        "those of the users' images and of the model; Stable Diffusion 1.5: CreativeML Open RAIL-M"
    ),
    archives=(),
    counts={},
)


@dataclass(frozen=True)
class Pipeline:
    """An image-to-image pipeline.

    Attributes:
        make: images (n, 3, side, side) uint8 and a seed -> images alike.
        side: of its images in pixels.
        facts: its settings and the digest of its weights, for the manifest.
    """

    make: Callable[[Tensor, int], Tensor]
    side: int
    facts: dict[str, Any]


def small(folder: Path, strength: float, device: str = "cpu") -> Pipeline:
    """The pipeline of the project's small model in ``folder``: see :func:`diffusion.sdedit`; raises
    as :func:`diffusion.load`.
    """
    unet = diffusion.load(folder)
    facts = {
        "pipeline": "small",
        "strength": strength,
        "steps": diffusion.DENOISING,
        "weights": _weights(folder),
    }
    return Pipeline(
        partial(diffusion.sdedit, unet, strength), unet.config.sample_size * diffusion.BLOCK, facts
    )


def stable_diffusion(folder: Path, strength: float, device: str = "cpu") -> Pipeline:
    """The paper's pipeline: Stable Diffusion with ControlNet, whose checkpoints lie below
    ``folder`` by their Hugging Face names.

    ControlNet keeps the edges of the user's image. There is no prompt, so no label of a user goes
    into an image.

    Raises:
        SourceError: diffusers is not installed, or a checkpoint is not there or can't be read.
    """
    library = diffusion.diffusers()
    base, control = (folder / name for name in STABLE_DIFFUSION)
    for name, config in zip(
        STABLE_DIFFUSION, (base / "model_index.json", control / "config.json"), strict=True
    ):
        if not config.is_file():
            raise SourceError(
                f"{config}: no checkpoint; `hf download {name} --local-dir {config.parent}`"
                " fetches it"
            )
    options = {"use_safetensors": True, "local_files_only": True}
    try:
        net = library.ControlNetModel.from_pretrained(control, **options)
        pipe = library.StableDiffusionControlNetImg2ImgPipeline.from_pretrained(
            base, controlnet=net, safety_checker=None, **options
        )
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{folder}: no readable checkpoint ({str(error).splitlines()[0]})"
        ) from None
    pipe.to(device).set_progress_bar_config(disable=True)
    facts = {
        "pipeline": "stable-diffusion",
        "strength": strength,
        "steps": diffusion.DENOISING,
        "guidance": STABLE_GUIDANCE,
    }
    return Pipeline(
        partial(_with_edges, pipe, strength),
        STABLE_SIDE,
        facts | {"weights": _weights(base, control)},
    )


@torch.no_grad()
def _with_edges(pipe: Any, strength: float, images: Tensor, seed: int) -> Tensor:
    """Make an image from each of ``images``, one after the other, each with noise of its own."""
    made = []
    options = {
        "strength": strength,
        "num_inference_steps": diffusion.DENOISING,
        "guidance_scale": STABLE_GUIDANCE,
        "guess_mode": True,
    }
    for row, image in enumerate(images):
        pixels = image[None] / 255
        edges, own = (
            canny(pixels)[1].expand_as(pixels),
            torch.Generator().manual_seed(seed * len(images) + row),
        )
        found = pipe("", pixels, edges, generator=own, output_type="np", **options).images[0]
        made.append(torch.from_numpy((found * 255).round().astype(np.uint8)).permute(2, 0, 1))
    return torch.stack(made)


PIPELINES = {"small": small, "stable-diffusion": stable_diffusion}


def originals(data_dir: Path, side: int) -> Tensor:
    """The first images of each user's training file: (EACH, users, 3, side, side) uint8.

    Raises:
        DataError: naming a file that is missing or damaged.
        SourceError: naming a file that holds fewer.
    """
    own = []
    for folder, client in USERS:
        path, pixels = data_dir / folder / f"train/client_{client}", Pixels(side)
        if folder == "MLC_setup":
            images = Instances(path.with_suffix(".json")).load(
                data_dir / folder / "images/train", pixels
            )
        else:
            images = pixels.resize(Pickled(path.with_suffix(".pkl"), "data").images()[:EACH])
        if len(images) < EACH:
            raise SourceError(f"{path}: holds {len(images)} images; {EACH} are needed")
        own.append(images[:EACH])
    return torch.stack(own, 1)


def facts_of(pipeline: Pipeline, private: Tensor, seed: int) -> dict[str, Any]:
    """What a manifest says of the images that ``pipeline`` makes of the users' ``private`` ones."""
    own = hashlib.sha256(private.numpy().tobytes()).hexdigest()
    return {**pipeline.facts, "each": EACH, "side": pipeline.side, "seed": seed, "originals": own}


def write(
    data_dir: Path, pipeline: Pipeline, seed: int, say: Callable[[str], None], force: bool = False
) -> dict:
    """Write the public sets ``synthetic`` and ``noise`` below ``data_dir``, as many images of
    either; return the manifest.

    Raises:
        SourceError: a folder holds files of others and ``force`` is not given; or as
            :func:`originals`.
        OSError: a folder can't be read or written.
    """
    private = originals(data_dir, pipeline.side)

    def write_sets(run: Run) -> None:
        made = pipeline.make(private.flatten(0, 1), seed).permute(0, 2, 3, 1).numpy()
        for place, images in zip(run.places, (made, noise(len(made), pipeline.side)), strict=True):
            write_images(run.root / place.folder, images)

    return prepare(_run(data_dir, facts_of(pipeline, private, seed), say, force), write_sets)


def _run(data_dir: Path, options: dict[str, Any], say: Callable[[str], None], force: bool) -> Run:
    places = tuple(Place(PUBLIC_SETS[name]) for name in ("synthetic", "noise"))
    return Run(
        ENTRY,
        options,
        Source.of(data_dir / "archives", None, None),
        places,
        data_dir,
        say,
        force=force,
    )


def claim(data_dir: Path, sheet: Path | None, force: bool) -> None:
    """Check, before hours of making, that :func:`write_sheet` may write ``sheet``, or if that is
    None, that :func:`write` may write.

    Raises:
        SourceError, NotOurs: naming what lies in the place.
    """
    if sheet is None:
        return refuse_others(_run(data_dir, {}, print, force))
    about = sheet.with_suffix(".json")
    ownership.reach(sheet, sheet.parent)
    ownership.headed(about, _START)
    if not about.exists():  # nothing says that the sheet is ours
        ownership.headed(sheet, _START)


def write_sheet(data_dir: Path, pipeline: Pipeline, seed: int, path: Path) -> None:
    """Write the synthetic images as one PNG file, a column a user, and their manifest as JSON
    beside it; raises as :func:`write`.
    """
    private = originals(data_dir, pipeline.side)
    made = pipeline.make(private.flatten(0, 1), seed).view_as(private)
    sheet = (
        made.permute(0, 3, 1, 4, 2)
        .reshape(EACH * pipeline.side, len(USERS) * pipeline.side, 3)
        .numpy()
    )
    manifest = {"dataset": ENTRY.name, "whole": True, "request": facts_of(pipeline, private, seed)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with named(path):
        Image.fromarray(sheet).save(path, "PNG", optimize=True)
    put(path.with_suffix(".json"), (json.dumps(manifest, indent=1) + "\n").encode())


def _weights(*folders: Path) -> str:
    """A digest of the weights in folders and below them."""
    sums = [digest(path) for folder in folders for path in sorted(folder.rglob("*.safetensors"))]
    return hashlib.sha256("".join(sums).encode()).hexdigest()
