"""Pretrains the embedded world's backbones on upstream glyphs and on books in its language: deterministic, one thread, minutes each.

The four vision transformers are unequal on purpose, as the paper's are (Appendix H), so that a model can learn from a peer. Base and large
have seen twice as many classes, on textured and cluttered grounds; tiny and small have seen plain grounds alone, and lose much of their
accuracy on the downstream tasks' pictures. The two SegFormers learn to classify and to segment, as the paper's did from ImageNet-1K and
ADE20K, and differ in width as B0 and B1 do. BERT and DistilBERT differ in depth.
"""

from __future__ import annotations

import copy
import platform
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from tqdm import trange
from transformers import PreTrainedModel
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead

from data_prep.pretrain import language_models, segformer, vit
from data_prep.pretrain.training import descend, save
from data_prep.world import language
from data_prep.world.glyphs import Vocabulary, vocabulary
from data_prep.world.pictures import SIZE, draw, outlined, scenes, single

PATCH = 8
BATCH = 96


@dataclass(frozen=True)
class ViT:
    """Architecture of a vision transformer."""

    card = "ViT", "the mean of the patch tokens after the last layer norm; pixels are scaled to [-1, 1]"

    hidden: int
    layers: int
    heads: int
    mlp: int

    def model(self, classes: int) -> Pretraining:
        return _WithPatches(self, classes)


@dataclass(frozen=True)
class SegFormer:
    """Architecture of a SegFormer: the widths of its four stages of one layer each, and of its decoder."""

    card = "SegFormer encoder", "those of four stages, of which the last tells the classes; pixels are normalised as ImageNet's"

    hidden: tuple[int, int, int, int]
    decoder: int

    def model(self, classes: int) -> Pretraining:
        return _WithDecoder(self, classes)


@dataclass(frozen=True)
class Recipe:
    """Architecture and diet of one backbone."""

    architecture: ViT | SegFormer
    classes: int  # of the 460 upstream classes, a random subset of its own
    detail: float  # of the ground at the end of training, from 0.3 at its start; downstream pictures have 1
    steps: int
    seed: int


RECIPES = {
    "vit-tiny": Recipe(ViT(48, 3, 3, 96), classes=160, detail=0.3, steps=2500, seed=1),
    "vit-small": Recipe(ViT(64, 4, 4, 192), classes=160, detail=0.3, steps=2000, seed=2),
    "vit-base": Recipe(ViT(96, 4, 4, 288), classes=320, detail=0.8, steps=2200, seed=3),
    "vit-large": Recipe(ViT(128, 4, 4, 384), classes=320, detail=0.8, steps=1800, seed=4),
    "segformer-b0": Recipe(SegFormer((16, 32, 80, 128), 64), classes=160, detail=0.8, steps=1500, seed=5),
    "segformer-b1": Recipe(SegFormer((32, 64, 160, 256), 64), classes=320, detail=0.8, steps=1500, seed=6),
}
# Few layers, wide, trained for long: the mean token of a narrower model, or of one trained for less, says so little of a text's topic
# that local training on 100 texts has not converged when a run of mini ends.
TEXT_RECIPES = {
    "bert-base": language_models.Recipe("bert", 192, 2, 4, 192, vocabulary=1000, longest=32, steps=1500, seed=7),
    "distilbert-base": language_models.Recipe("distilbert", 192, 1, 4, 192, vocabulary=1000, longest=32, steps=1000, seed=8),
    "gpt2": language_models.Recipe("gpt2", 128, 2, 4, 256, vocabulary=1000, longest=64, steps=1000, seed=9),
}
BOOKS, HELD_OUT = 20_000, 500  # sentences


class Pretraining(nn.Module, ABC):
    """A backbone with the heads of its upstream task, which are dropped afterwards.

    The loss is the cross-entropy over a picture's classes, plus the binary cross-entropy of the mean feature against the 14x14 templates
    of the classes, plus a dense term for the places of the objects.
    """

    def __init__(self, backbone: PreTrainedModel, width: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.classify = nn.Linear(width, classes)
        self.segment = self.build_segment(width, classes)
        self.template = nn.Linear(width, 14 * 14)

    @abstractmethod
    def build_segment(self, width: int, classes: int) -> nn.Module:
        """The head of the dense term."""

    @abstractmethod
    def features(self, images: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the mean over places (b, width), and the input of the dense term."""

    @abstractmethod
    def dense_loss(self, places: Any, batch: Batch) -> torch.Tensor:
        """The dense term."""

    def loss(self, batch: Batch) -> torch.Tensor:
        mean, places = self.features(batch.images)
        loss = F.cross_entropy(self.classify(mean), batch.target) + self.dense_loss(places, batch)
        return loss + F.binary_cross_entropy_with_logits(self.template(mean), batch.template)


class _WithPatches(Pretraining):
    """A ViT whose patch tokens each predict their 8x8 part of the object mask.

    Without this term the small transformers do not get past the uniform prediction within their budget.
    """

    def __init__(self, shape: ViT, classes: int) -> None:
        super().__init__(vit.build(shape.hidden, shape.layers, shape.heads, shape.mlp, size=SIZE, patch=PATCH), shape.hidden, classes)

    def build_segment(self, width: int, classes: int) -> nn.Module:
        return nn.Linear(width, PATCH * PATCH)

    def features(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        patches = self.backbone(pixel_values=images * 2 - 1).last_hidden_state[:, 1:]  # Shape: (b, 16, hidden)
        return patches.mean(1), patches

    def dense_loss(self, places: torch.Tensor, batch: Batch) -> torch.Tensor:
        mask = F.unfold(batch.alphas.amax(1, keepdim=True), PATCH, stride=PATCH).transpose(1, 2)  # Shape: (b, 16, 64)
        return 5 * F.binary_cross_entropy_with_logits(self.segment(places), mask)


class _WithDecoder(Pretraining):
    """A SegFormer with its decoder, which predicts a class for the middle of each 4x4 pixels: 0 for the ground, classes from 1.

    Upsampling so many classes to the picture's size, as is done for a user's few, would be four fifths of the cost.
    """

    def __init__(self, shape: SegFormer, classes: int) -> None:
        super().__init__(segformer.build(shape.hidden, (1, 1, 1, 1), (1, 2, 4, 4), shape.decoder), shape.hidden[-1], classes)

    def build_segment(self, width: int, classes: int) -> nn.Module:
        config = copy.deepcopy(self.backbone.config)
        config.num_labels = 1 + classes
        return SegformerDecodeHead(config)

    def features(self, images: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        stages = self.backbone(pixel_values=segformer.normalised(images), output_hidden_states=True).hidden_states
        return stages[-1].mean((2, 3)), stages

    def dense_loss(self, places: tuple[torch.Tensor, ...], batch: Batch) -> torch.Tensor:
        regions = outlined(batch.alphas) > 0.5
        classes = torch.where(regions, 1 + batch.classes[:, :, None, None], 0).amax(1)  # Shape: (b, SIZE, SIZE)
        return F.cross_entropy(self.segment(places), classes[:, 2::4, 2::4])


@dataclass(frozen=True)
class Batch:
    """Pictures of a backbone's own ``n`` classes.

    Attributes:
        images: (b, 3, SIZE, SIZE) in [0, 1].
        classes: (b, 4), 0 .. n - 1, or -1 for an empty slot.
        alphas: (b, 4, SIZE, SIZE), the mask of each slot's object.
        target: (b, n), 1 / number of objects for each class that is present.
        template: (b, 14 * 14), the drawings of the objects' classes, superimposed.
    """

    images: torch.Tensor
    classes: torch.Tensor
    alphas: torch.Tensor
    target: torch.Tensor
    template: torch.Tensor


def _batch(n: int, pool: np.ndarray, words: Vocabulary, rng: np.random.RandomState, final_detail: float, progress: float) -> Batch:
    """Draw half singles, half scenes. Detail rises over the first half of training; if it rises, a stroke joins after a quarter."""
    detail = 0.3 + (final_detail - 0.3) * min(1.0, 2 * progress)
    strokes = int(progress > 0.25 and final_detail > 0.3)
    parts = [
        draw(single(rng.choice(pool, n // 2)), "upstream", words, rng, detail, strokes),
        draw(scenes(n - n // 2, pool, 1, 4, rng), "upstream", words, rng, detail, strokes),
    ]
    index = {c: i for i, c in enumerate(pool)} | {-1: -1}
    slots = max(part.classes.shape[1] for part in parts)
    classes = torch.full((n, slots), -1)
    target = torch.zeros(n, len(pool))
    template = torch.zeros(n, 14 * 14)
    canonical = F.avg_pool2d(words.masks[[words.instances["upstream"][c][0] for c in pool]][:, None], 2).flatten(1)
    for row, drawn in enumerate(c for part in parts for c in part.classes):
        classes[row, : len(drawn)] = torch.tensor([index[c] for c in drawn])
        ids = classes[row][classes[row] >= 0]
        target[row, ids] = 1 / len(ids)
        template[row] = canonical[ids].amax(0)
    alphas = torch.cat([F.pad(part.alphas, (0, 0, 0, 0, 0, slots - part.alphas.shape[1])) for part in parts])
    return Batch(torch.cat([part.images for part in parts]), classes, alphas, target, template)


def pretrain(name: str, out: Path, steps: int | None = None) -> dict:
    """Pretrain ``name``, save it under ``out/name`` in half precision with a model card, and return its report."""
    if name in TEXT_RECIPES:
        return language_models.pretrain(
            name,
            replace(TEXT_RECIPES[name], steps=steps or TEXT_RECIPES[name].steps),
            language.books(BOOKS, seed=1),
            out,
            held_out=language.books(HELD_OUT, seed=2),
            world="the embedded world",
            data="Sentences of the embedded world's language, which are generated: `data_prep/world/language.py`.",
            command=f"python -m data_prep mini-backbones {name}",
            license="mit",
        )
    recipe, words = RECIPES[name], vocabulary()
    steps = steps or recipe.steps
    torch.set_num_threads(1)  # one thread makes the sums, hence the weights, repeatable
    torch.manual_seed(recipe.seed)
    rng = np.random.RandomState(recipe.seed)
    pool = rng.permutation(words.upstream)[: recipe.classes]
    model = recipe.architecture.model(recipe.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    started = time.process_time()
    bar = trange(steps, desc=name, mininterval=5)
    for step in bar:
        loss = model.loss(_batch(BATCH, pool, words, rng, recipe.detail, step / steps))
        descend(loss, model, optimizer, schedule)
        if step % 100 == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}")
    report = {
        "name": name,
        "classes": recipe.classes,
        "detail": recipe.detail,
        "steps": steps,
        "pictures": steps * BATCH,
        "parameters": sum(p.numel() for p in model.backbone.parameters()),
        "upstream_accuracy": round(_accuracy(model, pool, words), 4),
        "cpu_seconds": round(time.process_time() - started),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    kind, features = recipe.architecture.card
    save(model.backbone, out / name, report, _CARD.format(kind=kind, features=features, **report))
    return report


@torch.no_grad()
def _accuracy(model: Pretraining, pool: np.ndarray, words: Vocabulary) -> float:
    """Return top-1 accuracy on 2000 new single pictures of the upstream classes at detail 0.8."""
    rng = np.random.RandomState(99)
    classes = rng.choice(len(pool), 2000)
    pictures = draw(single(pool[classes]), "upstream", words, rng, 0.8, 1)
    model.eval()
    guesses = torch.cat([model.classify(model.features(part)[0]).argmax(1) for part in pictures.images.split(500)])
    return (guesses.numpy() == classes).mean().item()


_CARD = """---
library_name: transformers
license: mit
---
# {name} of the embedded world

A {parameters:,}-parameter {kind} ({steps} steps of 96 generated 32x32 pictures) pretrained on {classes} upstream glyph classes that
no downstream task of the embedded world contains, on grounds of detail 0.3 to {detail} (downstream pictures have 1). Features are
{features}. Stored in half precision, to be loaded in
float32.

- upstream accuracy: {upstream_accuracy:.1%} top-1 on 2000 new single pictures of detail 0.8, {classes} classes
- cost: {cpu_seconds} CPU seconds, one thread, torch {torch}
- remade by: `python -m data_prep mini-backbones {name}`
"""
