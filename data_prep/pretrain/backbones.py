"""Pretrains the small profile's vision models: supervised classification of a folder of images, on a CPU core or a GPU.

Four vision transformers stand for the paper's ViT-Tiny, -Small, -Base and -Large (Appendix H) at a low resolution. They are unequal on
purpose, so that a model can learn from a peer: each is wider and deeper than the one before. Two encoders stand for SegFormer-B0 and
-B1, at half their width. The paper's were pretrained on ImageNet-1K and fine-tuned on the masks of ADE20K; these have seen no masks.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from transformers import PreTrainedModel

from data_prep.io.files import put
from data_prep.pretrain import segformer, vit
from data_prep.pretrain.image_folder import LabelledImages
from data_prep.pretrain.training import MAX_NORM, descend, optimisation, public, read_report, save

VERSION = 1  # of this module: raise it when the same settings make other weights

PADDING = 4  # of the random crop
JITTER = 0.2  # of contrast and of each colour's gain
SMOOTHING = 0.1  # of the labels


@dataclass(frozen=True)
class ViT:
    """Architecture and diet of a vision transformer."""

    hidden: int
    layers: int
    heads: int  # of dimension 32
    mlp: int
    epochs: int
    lr: float  # at its peak
    patch: int = 8

    card = (
        "ViT ({layers} layers of width {hidden}, {heads} heads) for {size}x{size} pictures in patches of {patch}",
        "the mean of the patch tokens after the last layer norm; pixels are scaled to [-1, 1]",
    )

    @property
    def width(self) -> int:
        """Of the features."""
        return self.hidden

    def build(self, size: int) -> PreTrainedModel:
        """Return the model, freshly initialised from torch's global generator; ``size`` must be a multiple of ``patch``."""
        if size % self.patch:
            raise ValueError(f"images of {size} px don't divide into patches of {self.patch}")
        return vit.build(self.hidden, self.layers, self.heads, self.mlp, size=size, patch=self.patch)

    @staticmethod
    def features(backbone: nn.Module, images: Tensor) -> Tensor:
        """Map images (b, 3, size, size) in 0..255 to features (b, width)."""
        return backbone(pixel_values=images / 127.5 - 1).last_hidden_state[:, 1:].mean(1)


@dataclass(frozen=True)
class SegFormer:
    """Architecture and diet of a SegFormer encoder; its stages are 1, 2, 5 and 8 times as wide as the first, as in B0 and B1."""

    hidden: int  # of the first stage
    layers: int  # of each
    decoder: int  # width of the head that is put on it
    epochs: int
    lr: float

    card = (
        "SegFormer encoder (stages of {layers} layer(s), 1, 2, 5 and 8 times {hidden} wide)",
        "the mean over places of its last stage; pixels are normalised as ImageNet's. The paper's SegFormers were pretrained on\n"
        "ImageNet-1K and fine-tuned on the masks of ADE20K; this one has seen {size}x{size} pictures and no mask",
    )

    @property
    def width(self) -> int:
        return 8 * self.hidden

    def build(self, size: int) -> PreTrainedModel:
        backbone = segformer.build(tuple(k * self.hidden for k in (1, 2, 5, 8)), (self.layers,) * 4, (1, 2, 5, 8), self.decoder)
        segformer.redraw_convolutions(backbone)
        return backbone

    @staticmethod
    def features(backbone: nn.Module, images: Tensor) -> Tensor:
        return backbone(pixel_values=segformer.normalised(images / 255)).last_hidden_state.mean((2, 3))


Recipe = ViT | SegFormer


# Training this short underfits, so mixup and dropout, which would slow it, are left out. At equal cost patches of 8
# learn faster than patches of 4: vit-small's loss after about 100 s was 4.99 (4 epochs) against 5.23 (1 epoch). SegFormers
# learn faster at 32 px than at 64: segformer-b0's loss after about 65 s was 4.88 (4 epochs) against 5.03 (2 epochs). After 5 epochs at a
# learning rate of 2e-3 it was 4.78, and 4.85 at 1e-3; segformer-b1's was 4.96 and 4.75 (5.6 % top-1 at
# 1e-3, and 15.8 % after 20 epochs).
RECIPES: dict[str, Recipe] = {
    "vit-tiny": ViT(64, 4, 2, 128, epochs=20, lr=2e-3),
    "vit-small": ViT(96, 5, 3, 192, epochs=24, lr=2e-3),
    "vit-base": ViT(128, 6, 4, 256, epochs=24, lr=1.5e-3),
    "vit-large": ViT(160, 7, 5, 320, epochs=20, lr=1e-3),
    "segformer-b0": SegFormer(16, 1, 64, epochs=20, lr=2e-3),
    "segformer-b1": SegFormer(32, 1, 64, epochs=20, lr=1e-3),
}


class Classifier(nn.Module):
    """A backbone with a linear head, which is dropped afterwards."""

    def __init__(self, recipe: Recipe, classes: int, size: int) -> None:
        super().__init__()
        self.backbone, self.features = recipe.build(size), recipe.features
        self.head = nn.Linear(recipe.width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (b, 3, size, size) in 0..255 to logits (b, classes)."""
        return self.head(self.features(self.backbone, images))


def recipe_of(name: str, **given: int | None) -> Recipe:
    """Return the recipe of ``name``, with the given values that it has in place of its own."""
    recipe = RECIPES[name]
    own: dict[str, Any] = {key: value for key, value in given.items() if value is not None and hasattr(recipe, key)}
    return replace(recipe, **own)


def accelerated(device: torch.device) -> bool:
    """Whether to run compiled and in bfloat16: on CUDA only. On a CPU without bfloat16 units both cost more than they save."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported()


def pretrain(
    name: str,
    data: LabelledImages,
    out: Path,
    *,
    patch: int | None = None,
    epochs: int | None = None,
    batch: int = 64,
    device: str = "cpu",
    threads: int = 1,
    seed: int = 0,
    val_share: float = 0.05,
    resume: bool = True,
) -> dict:
    """Pretrain ``name`` on ``data``, save it under ``out/name`` with a model card, and return its report.

    The same call resumes an interrupted training after its last epoch, and does not repeat a finished one. On a CPU the weights depend
    on the arguments and the number of threads alone, interrupted or not. Weights of another device or number of threads are reused, with
    a warning.

    Args:
        patch, epochs: the recipe's if None; a SegFormer has no patches.
        val_share: the share of the images that is held out to measure accuracy; the same images for each backbone of a seed.
        resume: False starts again, and replaces the files under ``out/name``.

    Raises:
        FileExistsError: ``out/name`` holds a backbone, or a checkpoint of one, of other settings.
        OSError: the checkpoint can't be read, or the folder can't be written.
        ValueError: the images don't divide into patches, or too few are left to train on.
        FloatingPointError: the loss is no longer a number.
    """
    recipe, size = recipe_of(name, patch=patch, epochs=epochs), data.images.shape[-1]
    settings = {
        "version": VERSION,
        **asdict(recipe),
        "data": data.digest,
        "size": size,
        "batch": batch,
        "seed": seed,
        "val_share": val_share,
    }
    folder, place = out / name, torch.device(device)
    folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        for leftover in ("pretraining.json", "checkpoint.pt"):
            (folder / leftover).unlink(missing_ok=True)
    made_by = {"device": place.type, "threads": threads}
    if finished := read_report(folder):
        _same(folder, finished.get("settings", {}), settings)
        _note(folder, finished, made_by)
        return finished

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    model = Classifier(recipe, len(data.classes), size).to(place)
    held_out, train = _split(len(data.images), val_share, seed)
    batch = min(batch, len(train))
    steps = len(train) // batch  # the rest of an epoch is dropped: one shape to compile for, and another rest each time
    optimizer, schedule = optimisation(model, recipe.lr, recipe.epochs * steps)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    log = _restore(folder, settings, parts, made_by)
    images, labels = _near(data.images, place), data.labels.to(place)

    forward = torch.compile(model) if accelerated(place) else model
    with tqdm(
        total=recipe.epochs * steps * batch, initial=len(log) * steps * batch, desc=name, unit="image", unit_scale=True, mininterval=5
    ) as bar:
        for epoch in range(len(log), recipe.epochs):
            started, losses = time.perf_counter(), []
            model.train()
            for rows, *draws in _draws(train, batch, seed, epoch, place):
                crops = augment(images[rows.to(images.device)].to(place), *draws)
                with torch.autocast(place.type, torch.bfloat16, enabled=accelerated(place)):
                    loss = F.cross_entropy(forward(crops), labels[rows], label_smoothing=SMOOTHING)
                descend(loss, model, optimizer, schedule, MAX_NORM)
                losses.append(loss.detach())
                bar.update(batch)
                if len(losses) % 20 == 0:  # reading it waits for the GPU
                    bar.set_postfix(epoch=f"{epoch + 1}/{recipe.epochs}", loss=f"{loss.item():.3f}")
            mean = torch.stack(losses).mean().item()
            if not mean < float("inf"):
                raise FloatingPointError(f"{name}: the loss of epoch {epoch + 1} is {mean}")
            top1, top5 = _accuracy(model, images, labels, held_out)
            seconds = time.perf_counter() - started
            log.append({"epoch": epoch + 1, "loss": mean, "val_accuracy": top1, "val_top5": top5, "seconds": seconds})
            _keep(folder, settings, parts, log, made_by)
            line = f"{name}: epoch {epoch + 1}/{recipe.epochs}, loss {mean:.3f}, top-1 {top1:.1%}, top-5 {top5:.1%}"
            bar.write(f"{line}, {seconds:.0f} s, {steps * batch / seconds:.0f} images/s", file=sys.stderr)

    report = {
        "name": name,
        "data": {
            "folder": public(data.folder),
            "per_class": data.per_class,
            "images": len(data.images),
            "classes": len(data.classes),
            "held_out": len(held_out),
        },
        "settings": settings,
        "parameters": sum(p.numel() for p in model.backbone.parameters()),
        "top1": round(log[-1]["val_accuracy"], 4),
        "top5": round(log[-1]["val_top5"], 4),
        "seconds": round(sum(row["seconds"] for row in log)),
        **made_by,
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    save(model.backbone, folder, report, _card(report))
    (folder / "checkpoint.pt").unlink()
    return report


def augment(images: Tensor, shift: Tensor, flip: Tensor, contrast: Tensor, gain: Tensor) -> Tensor:
    """Crop each padded image at random, mirror it or not, and jitter its colours.

    Args:
        images: (b, 3, s, s) uint8.
        shift: (b, 2) integers in 0..2 PADDING, the crop's corner in the padded image.
        flip: (b,) bool.
        contrast: (b,), about the image's mean.
        gain: (b, 3), of each colour.

    Returns:
        (b, 3, s, s) float32 in 0..255.
    """
    b, channels, _, side = images.shape
    span = torch.arange(side, device=images.device)
    rows = shift[:, :1] + span  # Shape: (b, s)
    cols = shift[:, 1:] + torch.where(flip[:, None], span.flip(0), span)
    every = torch.arange(b, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[None, :, None, None]
    crops = F.pad(images, [PADDING] * 4)[every, channel, rows[:, None, :, None], cols[:, None, None, :]].float()
    mean = crops.mean((1, 2, 3), keepdim=True)
    return ((mean + (crops - mean) * contrast[:, None, None, None]) * gain[:, :, None, None]).clamp(0, 255)


def _draws(train: Tensor, batch: int, seed: int, epoch: int, device: torch.device) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows of each batch and the arguments of ``augment`` for them.

    They are drawn on the CPU by a generator of the epoch: every device gets the same, and resuming needs no generator's state.
    """
    rng = torch.Generator().manual_seed(1_000_003 * (seed + 1) + epoch)
    n = len(train)
    draws = [
        train[torch.randperm(n, generator=rng)],
        torch.randint(2 * PADDING + 1, (n, 2), generator=rng),
        torch.rand(n, generator=rng) < 0.5,
        1 + JITTER * (2 * torch.rand(n, generator=rng) - 1),
        1 + JITTER * (2 * torch.rand(n, 3, generator=rng) - 1),
    ]
    whole = n - n % batch
    yield from zip(*(draw[:whole].to(device).split(batch) for draw in draws), strict=True)


def _split(n: int, val_share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the row numbers that are held out, and those to train on."""
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    k = max(1, round(val_share * n))
    if k >= n:
        raise ValueError(f"{n} images: none is left to train on with {val_share:.0%} held out")
    return rows[:k], rows[k:]


def _near(images: Tensor, device: torch.device) -> Tensor:
    """Move the images to the device if half of its free memory holds them; otherwise each batch moves by itself."""
    if device.type == "cuda" and images.nbytes > torch.cuda.mem_get_info(device)[0] / 2:
        return images
    return images.to(device)


@torch.no_grad()
def _accuracy(model: Classifier, images: Tensor, labels: Tensor, rows: Tensor) -> tuple[float, float]:
    """Return top-1 and top-5 accuracy on the rows, in full precision."""
    model.eval()
    hits = []
    for part in rows.split(256):
        logits = model(images[part.to(images.device)].to(labels.device).float())
        best = logits.topk(min(5, logits.shape[1])).indices
        hits.append(best == labels[part.to(labels.device), None])
    hit = torch.cat(hits).double()
    return hit[:, 0].mean().item(), hit.sum(1).mean().item()


# --- checkpoints -------------------------------------------------------------------------------------------------------------


def _same(folder: Path, found: dict, settings: dict) -> None:
    if found != settings:
        differing = sorted(key for key in found.keys() | settings.keys() if found.get(key) != settings.get(key))
        raise FileExistsError(f"{folder} is of other settings ({', '.join(differing)}); name another folder, or replace it with --fresh")


def _note(folder: Path, found: dict, made_by: dict) -> None:
    """Warn if the files were made with another device or number of threads."""
    if differing := [f"{key} {found[key]} instead of {value}" for key, value in made_by.items() if found.get(key, value) != value]:
        print(f"{folder.name}: NOTE: made with {', '.join(differing)}; the weights depend on it", file=sys.stderr)


def _restore(folder: Path, settings: dict, parts: dict, made_by: dict) -> list[dict]:
    """Load the parts from the folder's checkpoint, if there is one; return the log of the finished epochs."""
    path = folder / "checkpoint.pt"
    if not path.exists():
        return []
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        found, log = state["settings"], state["log"]
    except Exception as error:  # torch, zipfile and pickle have kinds of their own
        raise OSError(f"{path}: not a readable checkpoint ({type(error).__name__}); --fresh begins anew") from None
    _same(path, found, settings)
    _note(folder, state.get("made_by", {}), made_by)
    for key, part in parts.items():
        part.load_state_dict(state[key])
    return log


def _keep(folder: Path, settings: dict, parts: dict, log: list[dict], made_by: dict) -> None:
    """Write the checkpoint and the log atomically."""
    state = {"settings": settings, "made_by": made_by, "log": log, **{key: part.state_dict() for key, part in parts.items()}}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    _write(folder / "checkpoint.pt", buffer.getvalue())
    text = io.StringIO()
    rows = csv.DictWriter(text, log[0], lineterminator="\n")
    rows.writeheader()
    rows.writerows({key: f"{value:.6g}" for key, value in row.items()} for row in log)
    _write(folder / "training_log.csv", text.getvalue().encode())


def _write(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    put(aside, content)
    aside.replace(path)


# --- model card --------------------------------------------------------------------------------------------------------------


def _card(report: dict) -> str:
    settings, data = report["settings"], report["data"]
    facts = {**settings, **data, **report}
    given = ("per_class", "size", "patch", "epochs", "batch", "seed", "val_share", "device", "threads")
    options = " ".join(f"--{key.replace('_', '-')} {facts[key]}" for key in given if facts.get(key) is not None)
    kind, features = (part.format(**facts) for part in RECIPES[report["name"]].card)
    return _CARD.format(**facts, kind=kind, features=features, options=options, trained=data["images"] - data["held_out"])


_CARD = """---
library_name: transformers
license: other
---
# {name} of the small profile

A {parameters:,}-parameter {kind},
pretrained to tell {classes} classes apart. Stored in half precision, to be loaded in float32. Features are
{features}.

- data: {trained:,} images of `{folder}`, {held_out:,} more held out. The weights inherit the terms of their data: Tiny-ImageNet,
  the default, is a part of ImageNet, which is for non-commercial research and education alone.
- recipe: {epochs} epochs in batches of {batch}; AdamW with a one-cycle learning rate of {lr} at its peak and weight decay 0.05,
  label smoothing 0.1, gradients clipped at norm 1; random crops (padding 4), mirror images and colour jitter
- accuracy on the held-out images: {top1:.1%} top-1, {top5:.1%} top-5
- cost: {seconds} seconds of wall time on {device} (threads: {threads}), torch {torch}, {machine}
- remade by: `python -m data_prep backbones {name} --images {folder} {options}`
"""
