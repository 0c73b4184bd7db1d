"""Pretrains the embedded world's four vision transformers on the upstream glyphs; deterministic, one thread, minutes.

The four are unequal on purpose, as ViT-Tiny and ViT-Large are in the paper (Appendix H), so that there is something to learn from
a peer: base and large have seen twice the classes, on textured and cluttered grounds; tiny and small have seen plain grounds alone,
and lose much of what they know on the pictures of the downstream tasks.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from tqdm import trange
from transformers import ViTModel

from data_prep import vit
from data_prep.glyphs import Vocabulary, vocabulary
from data_prep.pictures import SIZE, draw, scenes, single
from data_prep.pretraining import save

WEIGHTS = Path(__file__).parent / "weights/mini"  # what the repository ships
PATCH = 8
BATCH = 96


@dataclass(frozen=True)
class Recipe:
    """Architecture and diet of one backbone."""

    hidden: int
    layers: int
    heads: int
    mlp: int
    classes: int  # of the 460 upstream classes, a random subset of its own
    detail: float  # of the ground at the end of training, from 0.3 at its start; downstream pictures have 1
    steps: int
    seed: int


RECIPES = {
    "vit-tiny": Recipe(48, 3, 3, 96, classes=160, detail=0.3, steps=2500, seed=1),
    "vit-small": Recipe(64, 4, 4, 192, classes=160, detail=0.3, steps=2000, seed=2),
    "vit-base": Recipe(96, 4, 4, 288, classes=320, detail=0.8, steps=2200, seed=3),
    "vit-large": Recipe(128, 4, 4, 384, classes=320, detail=0.8, steps=1800, seed=4),
}


def build(recipe: Recipe) -> ViTModel:
    """The Hugging Face model, freshly initialised from torch's global generator."""
    return vit.build(recipe.hidden, recipe.layers, recipe.heads, recipe.mlp, size=SIZE, patch=PATCH)


class Pretraining(nn.Module):
    """Backbone with the three heads of its upstream task, all dropped afterwards."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.backbone = build(recipe)
        self.classify = nn.Linear(recipe.hidden, recipe.classes)
        self.segment = nn.Linear(recipe.hidden, PATCH * PATCH)
        self.template = nn.Linear(recipe.hidden, 14 * 14)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        patches = self.backbone(pixel_values=images * 2 - 1).last_hidden_state[:, 1:]  # Shape: (b, 16, hidden)
        mean = patches.mean(1)
        return self.classify(mean), self.segment(patches), self.template(mean)


def _batch(
    n: int, pool: np.ndarray, words: Vocabulary, rng: np.random.RandomState, final_detail: float, progress: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Half singles, half scenes; detail rises over the first half of training, and a stroke joins at a quarter if it rises at all."""
    detail = 0.3 + (final_detail - 0.3) * min(1.0, 2 * progress)
    strokes = int(progress > 0.25 and final_detail > 0.3)
    parts = [
        draw(single(rng.choice(pool, n // 2)), "upstream", words, rng, detail, strokes),
        draw(scenes(n - n // 2, pool, 1, 4, rng), "upstream", words, rng, detail, strokes),
    ]
    index = {c: i for i, c in enumerate(pool)}
    target = torch.zeros(n, len(pool))
    template = torch.zeros(n, 14 * 14)
    canonical = F.avg_pool2d(words.masks[[words.instances["upstream"][c][0] for c in pool]][:, None], 2).flatten(1)
    for row, classes in enumerate(c for part in parts for c in part.classes):
        ids = [index[c] for c in classes if c >= 0]
        target[row, ids] = 1 / len(ids)
        template[row] = canonical[ids].amax(0)
    mask = torch.cat([part.alphas.amax(1) for part in parts])
    mask = F.unfold(mask[:, None], PATCH, stride=PATCH).transpose(1, 2)  # Shape: (n, 16, 64)
    return torch.cat([part.images for part in parts]), target, mask, template


def pretrain(name: str, out: Path = WEIGHTS, steps: int | None = None) -> dict:
    """Pretrain ``name`` and save it under ``out/name`` in half precision with a model card; returns what it cost and reached.

    Loss: cross-entropy over the picture's classes + 5 x binary cross-entropy of every patch token against its 8x8 object mask +
    binary cross-entropy of the mean feature against the 14x14 class templates. Without the dense mask term the small
    transformers do not leave the uniform prediction within their budget.
    """
    recipe, words = RECIPES[name], vocabulary()
    steps = steps or recipe.steps
    torch.set_num_threads(1)  # one thread makes the sums, hence the weights, repeatable
    torch.manual_seed(recipe.seed)
    rng = np.random.RandomState(recipe.seed)
    pool = rng.permutation(words.upstream)[: recipe.classes]
    model = Pretraining(recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    started = time.process_time()
    bar = trange(steps, desc=name, mininterval=5)
    for step in bar:
        images, target, mask, template = _batch(BATCH, pool, words, rng, recipe.detail, step / steps)
        logits, segments, templates = model(images)
        loss = F.cross_entropy(logits, target)
        loss = loss + 5 * F.binary_cross_entropy_with_logits(segments, mask)
        loss = loss + F.binary_cross_entropy_with_logits(templates, template)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
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
    save(model.backbone, out / name, report, _CARD.format(**report))
    return report


@torch.no_grad()
def _accuracy(model: Pretraining, pool: np.ndarray, words: Vocabulary) -> float:
    """Top-1 on 2000 new single pictures of the upstream classes at detail 0.8."""
    rng = np.random.RandomState(99)
    classes = rng.choice(len(pool), 2000)
    pictures = draw(single(pool[classes]), "upstream", words, rng, 0.8, 1)
    model.eval()
    guesses = torch.cat([model(part)[0].argmax(1) for part in pictures.images.split(500)])
    return (guesses.numpy() == classes).mean().item()


_CARD = """---
library_name: transformers
license: mit
---
# {name} of the embedded world

A {parameters:,}-parameter ViT ({steps} steps of 96 generated 32x32 pictures) pretrained on {classes} upstream glyph classes that
no downstream task of the embedded world contains, on grounds of detail 0.3 to {detail} (downstream pictures have 1). Features are
the mean of the patch tokens after the last layer norm; pixels are scaled to [-1, 1]. Stored in half precision, to be loaded in
float32.

- upstream accuracy: {upstream_accuracy:.1%} top-1 on 2000 new single pictures of detail 0.8, {classes} classes
- cost: {cpu_seconds} CPU seconds, one thread, torch {torch}
- remade by: `python -m data_prep mini-backbones {name}`
"""
