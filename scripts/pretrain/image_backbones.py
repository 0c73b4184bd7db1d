"""Pretrain image backbones of the embedded world on upstream glyphs: minutes each on one core.

    python scripts/pretrain/image_backbones.py vit-tiny --out FOLDER

``data_prep/weights/mini`` has the results. The ViTs differ in size, the SegFormers in width as B0
and B1 do. The two "weak" ViTs see fewer classes, on plain grounds. All others then learn by
supervised contrast: images of the same upstream classes get near features. The weights depend on
the recipe alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import RECIPES, WARM_UP, WEIGHT_DECAY, claim, contrastive, fit, optimisation, save
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    PreTrainedConfig,
    PreTrainedModel,
    SegformerConfig,
    SegformerModel,
    ViTConfig,
    ViTModel,
)
from transformers.models.segformer.modeling_segformer import SegformerDecodeHead

from data_prep.world.glyphs import Vocabulary, vocabulary
from data_prep.world.rendering import SIZE, Images, draw, outlined, scenes, single
from fedmuscle_lib.core.torch_state import fixed_state

PATCH = 8
BATCH = 96
LR, CONTRAST_LR = 2e-3, 1e-3  # at their peaks
# The phases of contrast: images of one class and of one to three classes in a batch, each drawn
# twice, and steps. Single images alone make the best features of one object, and ruin those of
# scenes.
CONTRAST = ((48, 0, 1000), (20, 28, 1200))


@dataclass(frozen=True)
class ViT:
    """A vision transformer whose patch tokens each predict their 8x8 part of the object mask.

    Without this term the small transformers do not get past the uniform prediction.
    """

    hidden: int
    layers: int
    heads: int
    mlp: int

    def build(self) -> tuple[PreTrainedModel, int]:
        """Return a fresh backbone and the width of its features."""
        config = ViTConfig(
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.mlp,
            image_size=SIZE,
            patch_size=PATCH,
        )
        return ViTModel(config, add_pooling_layer=False), self.hidden

    def segmenter(self, config: PreTrainedConfig, classes: int) -> nn.Module:
        """Return the head of the dense term."""
        return nn.Linear(config.hidden_size, PATCH * PATCH)

    def features(self, backbone: nn.Module, images: Tensor) -> tuple[Tensor, Any]:
        """Return the mean over places (b, width), and the input of the head."""
        patches = backbone(pixel_values=images * 2 - 1).last_hidden_state[:, 1:]
        return patches.mean(1), patches

    def dense_loss(self, segmented: Tensor, batch: Batch) -> Tensor:
        """Return the dense term of what the head makes of the places."""
        mask = F.unfold(batch.alphas.amax(1, keepdim=True), PATCH, stride=PATCH).transpose(1, 2)
        return 5 * F.binary_cross_entropy_with_logits(segmented, mask)


@dataclass(frozen=True)
class SegFormer:
    """A SegFormer of four stages of one layer each, with its decoder; methods as ViT's.

    The decoder predicts a class for the middle of each 4x4 pixels; 0 is the ground.
    """

    hidden: Sequence[int]
    decoder: int

    def build(self) -> tuple[PreTrainedModel, int]:
        config = SegformerConfig(
            hidden_sizes=list(self.hidden),
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 4, 4],
            decoder_hidden_size=self.decoder,
            sr_ratios=[4, 2, 1, 1],  # smaller than the paper's, since the images are small
            mlp_ratios=[2, 2, 2, 2],
            classifier_dropout_prob=0.0,
            drop_path_rate=0.0,
        )
        return SegformerModel(config), self.hidden[-1]

    def segmenter(self, config: PreTrainedConfig, classes: int) -> nn.Module:
        config = copy.deepcopy(config)
        config.num_labels = 1 + classes
        return SegformerDecodeHead(config)

    def features(self, backbone: nn.Module, images: Tensor) -> tuple[Tensor, Any]:
        # ImageNet's normalisation, which SegFormer checkpoints expect
        mean = torch.tensor((0.485, 0.456, 0.406)).view(3, 1, 1)
        std = torch.tensor((0.229, 0.224, 0.225)).view(3, 1, 1)
        stages = backbone(
            pixel_values=(images - mean) / std, output_hidden_states=True
        ).hidden_states
        return stages[-1].mean((2, 3)), stages

    def dense_loss(self, segmented: Tensor, batch: Batch) -> Tensor:
        regions = outlined(batch.alphas) > 0.5
        classes = torch.where(regions, 1 + batch.classes[:, :, None, None], 0).amax(1)
        return F.cross_entropy(segmented, classes[:, 2::4, 2::4])


@dataclass(frozen=True)
class Recipe:
    """Architecture and diet of one backbone.

    Attributes:
        classes: of the 460 upstream classes, a random subset for the first phase.
        detail: of the ground at the end of the first phase, from 0.3 at its start; downstream
            images have 1.
        steps: of the first phase.
        contrast: whether the phases of contrast follow.
    """

    architecture: ViT | SegFormer
    classes: int
    detail: float
    steps: int
    seed: int
    contrast: bool = True


class Pretraining(nn.Module):
    """A backbone with the heads of its upstream task, which are dropped afterwards.

    The loss is the cross-entropy over an image's classes, plus the binary cross-entropy of the mean
    feature against the 14x14 templates of the classes, plus a dense term for the objects' places.
    """

    def __init__(self, architecture: ViT | SegFormer, classes: int) -> None:
        super().__init__()
        self.architecture = architecture
        self.backbone, width = architecture.build()
        self.classify = nn.Linear(width, classes)
        self.segment = architecture.segmenter(self.backbone.config, classes)
        self.template = nn.Linear(width, 14 * 14)

    def features(self, images: Tensor) -> tuple[Tensor, Any]:
        """Return the mean over places (b, width), and the input of the dense term."""
        return self.architecture.features(self.backbone, images)

    def loss(self, batch: Batch) -> Tensor:
        mean, places = self.features(batch.images)
        dense = self.architecture.dense_loss(self.segment(places), batch)
        loss = F.cross_entropy(self.classify(mean), batch.target) + dense
        return loss + F.binary_cross_entropy_with_logits(self.template(mean), batch.template)

    def contrast_loss(self, batch: Batch) -> Tensor:
        """Return the loss of a batch whose halves show the same classes."""
        mean, places = self.features(batch.images)
        loss = contrastive(mean) + F.cross_entropy(self.classify(mean), batch.target)
        if isinstance(self.architecture, SegFormer):  # its users segment
            loss = loss + self.architecture.dense_loss(self.segment(places), batch)
        return loss


@dataclass(frozen=True)
class Batch:
    """Images of a pool of ``n`` classes, of at most k objects each.

    Attributes:
        images: (b, 3, SIZE, SIZE) in [0, 1].
        classes: (b, k), 0 .. n - 1, or -1 for an empty slot.
        alphas: (b, k, SIZE, SIZE), the mask of each slot's object.
        target: (b, n), 1 / number of objects for each class that is present.
        template: (b, 14 * 14), the drawings of the objects' classes, superimposed.
    """

    images: Tensor
    classes: Tensor
    alphas: Tensor
    target: Tensor
    template: Tensor


def batch_of(parts: list[Images], pool: np.ndarray, words: Vocabulary) -> Batch:
    """Join images of the classes in ``pool``."""
    n = sum(len(part.classes) for part in parts)
    index = {c: i for i, c in enumerate(pool)} | {-1: -1}
    slots = max(part.classes.shape[1] for part in parts)
    classes = torch.full((n, slots), -1)
    target = torch.zeros(n, len(pool))
    template = torch.zeros(n, 14 * 14)
    drawings = words.masks[[words.instances["upstream"][c][0] for c in pool]]
    canonical = F.avg_pool2d(drawings[:, None], 2).flatten(1).float()
    for row, drawn in enumerate(c for part in parts for c in part.classes):
        classes[row, : len(drawn)] = torch.tensor([index[c] for c in drawn])
        ids = classes[row][classes[row] >= 0]
        target[row, ids] = 1 / len(ids)
        template[row] = canonical[ids].amax(0)
    padded = [F.pad(part.alphas, (0, 0, 0, 0, 0, slots - part.alphas.shape[1])) for part in parts]
    images = torch.cat([part.images for part in parts]).float()
    return Batch(images, classes, torch.cat(padded).float(), target, template)


@fixed_state(1)  # one thread makes the sums, hence the weights, repeatable
def pretrain(name: str, out: Path, steps: int | None = None) -> None:
    """Pretrain a backbone and save it in ``out/name``.

    Args:
        steps: of each phase; the recipe's if None.
    """
    own = RECIPES["image_backbones"][name]
    kind = SegFormer if "decoder" in own["architecture"] else ViT
    recipe = Recipe(**own | {"architecture": kind(**own["architecture"])})
    folder, words = claim(out / name), vocabulary()
    model, pool = first_phase(name, recipe, steps or recipe.steps, words)
    for number, phase in enumerate(CONTRAST if recipe.contrast else ()):
        model = contrast_phase(name, recipe, model, number, (*phase[:2], steps or phase[2]), words)
        pool = np.array(words.upstream)
    accuracy = round(upstream_accuracy(model, pool, words), 4)
    save(model.backbone, folder, {"name": name, **asdict(recipe), "upstream_accuracy": accuracy})


def first_phase(
    name: str, recipe: Recipe, steps: int, words: Vocabulary
) -> tuple[Pretraining, np.ndarray]:
    """Learn to classify; return the model and its pool of classes.

    Half a batch has one object an image, half one to four. Detail rises over the first half of the
    steps; if it rises, a stroke joins after a quarter.
    """
    torch.manual_seed(recipe.seed)
    rng = np.random.RandomState(recipe.seed)
    pool = rng.permutation(words.upstream)[: recipe.classes]
    model = Pretraining(recipe.architecture, len(pool))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LR, total_steps=steps, pct_start=WARM_UP
    )

    def loss(step: int) -> Tensor:
        progress = step / steps
        detail = 0.3 + (recipe.detail - 0.3) * min(1.0, 2 * progress)
        strokes = int(progress > 0.25 and recipe.detail > 0.3)
        half = BATCH // 2
        parts = [
            draw(single(rng.choice(pool, half)), "upstream", words, rng, detail, strokes),
            draw(scenes(half, pool, 1, 4, rng), "upstream", words, rng, detail, strokes),
        ]
        return model.loss(batch_of(parts, pool, words))

    fit(name, model, loss, steps, (optimizer, schedule), max_norm=float("inf"))
    return model, pool


def contrast_phase(
    name: str,
    recipe: Recipe,
    before: Pretraining,
    number: int,
    phase: tuple[int, int, int],
    words: Vocabulary,
) -> Pretraining:
    """Go on with the half-precision weights of the phase before, with new heads and all classes."""
    singles, n_scenes, steps = phase
    torch.manual_seed(recipe.seed + 10 * number)
    rng = np.random.RandomState(recipe.seed + 10 * number)
    pool = np.array(words.upstream)
    model = Pretraining(recipe.architecture, len(pool))
    model.backbone.load_state_dict(before.backbone.half().state_dict())

    def loss(step: int) -> Tensor:
        classes = [
            single(rng.choice(pool, singles, replace=False)),
            scenes(n_scenes, pool, 1, 3, rng),
        ]
        parts = [draw(part, "upstream", words, rng) for part in 2 * classes if len(part)]
        return model.contrast_loss(batch_of(parts, pool, words))

    how = optimisation(model, CONTRAST_LR, steps)
    fit(f"{name}, contrast {number + 1}", model, loss, steps, how)
    return model


@torch.no_grad()
def upstream_accuracy(model: Pretraining, pool: np.ndarray, words: Vocabulary) -> float:
    """Return top-1 accuracy on 2000 new single images of the upstream classes at detail 0.8."""
    rng = np.random.RandomState(99)
    classes = rng.choice(len(pool), 2000)
    images = draw(single(pool[classes]), "upstream", words, rng, 0.8, 1).images.float()
    model.eval()
    guesses = [model.classify(model.features(part)[0]).argmax(1) for part in images.split(500)]
    return (torch.cat(guesses).numpy() == classes).mean().item()


def main(
    names: list[str],
    out: Annotated[Path, typer.Option(help="Write NAME below this folder.")],
    steps: Annotated[int | None, typer.Option(help="Steps of each phase.")] = None,
) -> None:
    """Pretrain image backbones of the embedded world."""
    for name in names:
        pretrain(name, out, steps)


if __name__ == "__main__":
    typer.run(main)
