"""Pretraining of the embedded world's backbones on upstream glyphs and on books in its language:
deterministic, one thread, minutes each.

The four vision transformers differ in size, and each begins with a draw of classes of its own. The
two "weak" ones have seen fewer classes, on plain grounds alone, and lose much of their accuracy on
the downstream tasks' images. The two SegFormers learn to classify and to segment, as the paper's
did from ImageNet-1K and ADE20K, and differ in width as B0 and B1 do. BERT and DistilBERT differ in
depth.

But for the weak ones, all then learn by supervised contrast (``contrast``): images of the same
upstream classes, or texts of one upstream topic, get near features, whatever stands around.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
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

from data_prep.pretrain import language_models, training
from data_prep.world import language
from data_prep.world.glyphs import Vocabulary, vocabulary
from data_prep.world.mini import UNFINISHED
from data_prep.world.rendering import SIZE, Images, draw, outlined, scenes, single
from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.files import named
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.models import load_backbone

VERSION = 1  # of this module: raise it when the same recipe makes other weights

PATCH = 8
BATCH = 96
_MEAN, _STD = (
    (0.485, 0.456, 0.406),
    (
        0.229,
        0.224,
        0.225,
    ),
)  # of ImageNet's pixels in [0, 1]: what SegFormer checkpoints expect
LR, CONTRAST_LR = 2e-3, 1e-3  # at their peaks


@dataclass(frozen=True)
class ViT:
    """A vision transformer whose patch tokens each predict their 8x8 part of the object mask.

    Without this term the small transformers do not get past the uniform prediction within their
    budget.
    """

    dense_to_the_end = False

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

    def features(
        self, backbone: nn.Module, images: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean over places (b, width), and the input of the head."""
        patches = backbone(pixel_values=images * 2 - 1).last_hidden_state[
            :, 1:
        ]  # Shape: (b, 16, hidden)
        return patches.mean(1), patches

    def dense_loss(self, segmented: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the dense term of what the head makes of the places."""
        mask = F.unfold(batch.alphas.amax(1, keepdim=True), PATCH, stride=PATCH).transpose(
            1, 2
        )  # Shape: (b, 16, 64)
        return 5 * F.binary_cross_entropy_with_logits(segmented, mask)


@dataclass(frozen=True)
class SegFormer:
    """A SegFormer, of four stages of one layer each, with its decoder; methods as ViT's.

    The decoder predicts a class for the middle of each 4x4 pixels: 0 for the ground, classes from
        1. Upsampling so many classes to the
    image's size, as is done for a user's few, would be four fifths of the cost.
    """

    dense_to_the_end = True  # its users segment

    hidden: Sequence[int]
    decoder: int

    def build(self) -> tuple[PreTrainedModel, int]:
        config = SegformerConfig(
            hidden_sizes=list(self.hidden),
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 4, 4],
            decoder_hidden_size=self.decoder,
            sr_ratios=[
                4,
                2,
                1,
                1,
                # keys and values shrink less than in the paper's checkpoints, since the images are
                # small
            ],
            mlp_ratios=[2, 2, 2, 2],
            classifier_dropout_prob=0.0,
            drop_path_rate=0.0,
        )
        return SegformerModel(config), self.hidden[-1]

    def segmenter(self, config: PreTrainedConfig, classes: int) -> nn.Module:
        config = copy.deepcopy(config)
        config.num_labels = 1 + classes
        return SegformerDecodeHead(config)

    def features(
        self, backbone: nn.Module, images: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (_MEAN, _STD))
        stages = backbone(
            pixel_values=(images - mean) / std, output_hidden_states=True
        ).hidden_states
        return stages[-1].mean((2, 3)), stages

    def dense_loss(self, segmented: torch.Tensor, batch: Batch) -> torch.Tensor:
        regions = outlined(batch.alphas) > 0.5
        classes = torch.where(regions, 1 + batch.classes[:, :, None, None], 0).amax(
            1
        )  # Shape: (b, SIZE, SIZE)
        return F.cross_entropy(segmented, classes[:, 2::4, 2::4])


@dataclass(frozen=True)
class Contrast:
    """A phase of supervised contrast and cross-entropy over all upstream classes, 1 : 1, on images
    as detailed as downstream ones.

    A batch has ``singles`` images of one class, no two of them of the same, and ``scenes`` of one
    to three classes; each is drawn twice.
    """

    singles: int
    scenes: int
    steps: int

    def draw(self, pool: np.ndarray, words: Vocabulary, rng: np.random.RandomState) -> list[Images]:
        """Draw a batch; its second half shows what its first does, on other grounds and in other
        places.
        """
        classes = [
            single(rng.choice(pool, self.singles, replace=False)),
            scenes(self.scenes, pool, 1, 3, rng),
        ]
        return [draw(part, "upstream", words, rng) for part in 2 * classes if len(part)]


# Singles alone make the best features of one object, and ruin those of scenes.
SEMANTIC = (Contrast(singles=48, scenes=0, steps=1000), Contrast(singles=20, scenes=28, steps=1200))


@dataclass(frozen=True)
class Recipe:
    """Architecture and diet of one backbone.

    Attributes:
        classes: of the 460 upstream classes, a random subset of its own, for the first phase.
        detail: of the ground at the end of the first phase, from 0.3 at its start; downstream
            images have 1.
        steps: of the first phase.
        phases: those that follow.
    """

    architecture: ViT | SegFormer
    classes: int
    detail: float
    steps: int
    seed: int
    phases: Sequence[Contrast] = SEMANTIC


RECIPES = {
    name: Recipe(
        **own
        | {
            "architecture": (SegFormer if "decoder" in own["architecture"] else ViT)(
                **own["architecture"]
            )
        }
    )
    for name, own in training.RECIPES["mini_vision"].items()
}
TEXT_RECIPES = {
    name: language_models.Recipe(**own) for name, own in training.RECIPES["mini_text"].items()
}
CONTRAST_STEPS, CONTRAST_TOPICS = 1000, 48  # of the language models, and topics in a batch
BOOKS, UPSTREAM_BOOKS, HELD_OUT = 20_000, 10_000, 500  # sentences


class Pretraining(nn.Module):
    """A backbone with the heads of its upstream task, which are dropped afterwards.

    The loss is the cross-entropy over an image's classes, plus the binary cross-entropy of the mean
    feature against the 14x14 templates of the classes, plus a dense term for the places of the
    objects. In the phases of contrast it is :meth:`contrast_loss`.
    """

    def __init__(self, architecture: ViT | SegFormer, classes: int) -> None:
        super().__init__()
        self.architecture = architecture
        self.backbone, width = architecture.build()
        self.classify = nn.Linear(width, classes)
        self.segment = architecture.segmenter(self.backbone.config, classes)
        self.template = nn.Linear(width, 14 * 14)

    def features(self, images: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the mean over places (b, width), and the input of the dense term."""
        return self.architecture.features(self.backbone, images)

    def loss(self, batch: Batch) -> torch.Tensor:
        mean, places = self.features(batch.images)
        loss = F.cross_entropy(self.classify(mean), batch.target) + self.architecture.dense_loss(
            self.segment(places), batch
        )
        return loss + F.binary_cross_entropy_with_logits(self.template(mean), batch.template)

    def contrast_loss(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch whose halves show the same classes."""
        mean, places = self.features(batch.images)
        loss = training.contrastive(mean) + F.cross_entropy(self.classify(mean), batch.target)
        return (
            loss + self.architecture.dense_loss(self.segment(places), batch)
            if self.architecture.dense_to_the_end
            else loss
        )


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

    images: torch.Tensor
    classes: torch.Tensor
    alphas: torch.Tensor
    target: torch.Tensor
    template: torch.Tensor


def _mixed(
    pool: np.ndarray,
    words: Vocabulary,
    rng: np.random.RandomState,
    final_detail: float,
    progress: float,
) -> list[Images]:
    """Draw a batch of the first phase, half singles, half scenes.

    Detail rises over the first half of training; if it rises, a stroke joins after a quarter.
    """
    detail = 0.3 + (final_detail - 0.3) * min(1.0, 2 * progress)
    strokes = int(progress > 0.25 and final_detail > 0.3)
    return [
        draw(single(rng.choice(pool, BATCH // 2)), "upstream", words, rng, detail, strokes),
        draw(scenes(BATCH - BATCH // 2, pool, 1, 4, rng), "upstream", words, rng, detail, strokes),
    ]


def _batch(parts: list[Images], pool: np.ndarray, words: Vocabulary) -> Batch:
    """Join images of the classes in ``pool``."""
    n = sum(len(part.classes) for part in parts)
    index = {c: i for i, c in enumerate(pool)} | {-1: -1}
    slots = max(part.classes.shape[1] for part in parts)
    classes = torch.full((n, slots), -1)
    target = torch.zeros(n, len(pool))
    template = torch.zeros(n, 14 * 14)
    canonical = (
        F.avg_pool2d(words.masks[[words.instances["upstream"][c][0] for c in pool]][:, None], 2)
        .flatten(1)
        .float()
    )
    for row, drawn in enumerate(c for part in parts for c in part.classes):
        classes[row, : len(drawn)] = torch.tensor([index[c] for c in drawn])
        ids = classes[row][classes[row] >= 0]
        target[row, ids] = 1 / len(ids)
        template[row] = canonical[ids].amax(0)
    alphas = torch.cat(
        [F.pad(part.alphas, (0, 0, 0, 0, 0, slots - part.alphas.shape[1])) for part in parts]
    ).float()
    return Batch(
        torch.cat([part.images for part in parts]).float(), classes, alphas, target, template
    )


def pretrain(name: str, out: Path, steps: int | None = None, *, resume: bool = True) -> dict:
    """Pretrain ``name``, save it under ``out/name`` in half precision with a model card, and return
    its report.

    A finished backbone of the same recipe is not made again. The phases of an image's backbone are
    kept in ``out/.cache`` until the last is done: the same call resumes an interrupted pretraining
    after its last whole phase, with the same weights at the end.

    Args:
        steps: of each phase; the recipe's if None.
        resume: False starts again.

    Raises:
        NotOurs: ``out/name`` holds something else.
        OSError: the folder can't be written.
    """
    training.claim(out / name)
    make = _from_books if name in TEXT_RECIPES else _from_images
    return make(name, out, steps, resume)


def _finished(folder: Path, settings: dict) -> dict | None:
    """Return the report of the checkpoint in ``folder`` if it was made with these settings."""
    report = training.read_report(folder)
    return report if report and report.items() >= settings.items() else None


def _from_books(name: str, out: Path, steps: int | None, resume: bool) -> dict:
    recipe = replace(TEXT_RECIPES[name], steps=steps or TEXT_RECIPES[name].steps)
    contrast = language_models.Contrast(
        pairs=lambda rng: language.twice(CONTRAST_TOPICS, rng),
        about=(
            f"The {language.UPSTREAM_TOPICS} topics are upstream ones, of which no user and no"
            " public set writes."
        ),
        steps=steps or CONTRAST_STEPS,
    )
    settings = {**asdict(recipe), "contrast_steps": contrast.steps}
    del settings["vocabulary"]  # the report's is the tokenizer's, which has fewer tokens
    if resume and (report := _finished(out / name, settings)):
        return report
    facts = {
        "world": "the embedded world",
        "data": (
            "Sentences of the embedded world's language, which are generated:"
            " `data_prep/world/language.py`."
        ),
        "command": f"python -m data_prep mini-backbones {name}",
        "license": "mit",
    }
    texts = [*language.books(BOOKS, seed=1), *language.upstream_books(UPSTREAM_BOOKS, seed=3)]
    return language_models.pretrain(
        name, recipe, texts, language.books(HELD_OUT, seed=2), out, facts, contrast
    )


def _from_images(name: str, out: Path, steps: int | None, resume: bool) -> dict:
    recipe = RECIPES[name]
    if steps:
        recipe = replace(
            recipe,
            steps=steps,
            phases=tuple(replace(phase, steps=steps) for phase in recipe.phases),
        )
    settings = json.loads(json.dumps({"version": VERSION, **asdict(recipe)}))  # as a report says it
    folder, aside = (
        out / name,
        out / UNFINISHED / f"{name}-{hashlib.sha256(repr(settings).encode()).hexdigest()[:12]}",
    )
    ownership.reach(aside / "0", out)
    if not resume:
        _forget(aside)
    elif report := _finished(folder, settings):
        return report
    phases = [_phase(name, recipe, number, aside) for number in range(1 + len(recipe.phases))]
    report = {
        "name": name,
        **settings,
        "pictures": BATCH * (recipe.steps + sum(phase.steps for phase in recipe.phases)),
        "parameters": phases[-1]["parameters"],
        "upstream_accuracy": phases[-1]["accuracy"],
        "cpu_seconds": sum(phase["cpu_seconds"] for phase in phases),
        **training.MADE_WITH,
    }
    with training.placed(folder) as new, named(folder):
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(aside / str(len(recipe.phases)) / file, new / file)
        training.describe(new, report, _card(recipe, report))
    _forget(aside)
    return report


def _forget(aside: Path) -> None:
    """Remove the phases that were kept aside."""
    for phase in aside.glob("[0-9]"):
        ownership.remove(phase, ("config.json", "model.safetensors", "README.md", training.REPORT))
    with suppress(OSError):  # another backbone is under way, or there are files of others
        aside.rmdir()
        aside.parent.rmdir()


@fixed_state(1)  # one thread makes the sums, hence the weights, repeatable
def _phase(name: str, recipe: Recipe, number: int, aside: Path) -> dict:
    """Go through the recipe's first phase (0) or one of contrast, unless its weights are in
    ``aside``; return what it reached.

    Each phase begins with the half-precision weights of the one before, heads and an optimiser of
    its own.
    """
    folder = aside / str(number)
    if report := training.read_report(folder):
        return report
    started, words = time.process_time(), vocabulary()
    seed = recipe.seed + 10 * max(0, number - 1)
    torch.manual_seed(seed)
    rng = np.random.RandomState(seed)
    if number == 0:
        pool = rng.permutation(words.upstream)[: recipe.classes]
        model = Pretraining(recipe.architecture, len(pool))
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=training.WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, LR, total_steps=recipe.steps, pct_start=training.WARM_UP
        )

        def loss(step: int) -> torch.Tensor:
            return model.loss(
                _batch(_mixed(pool, words, rng, recipe.detail, step / recipe.steps), pool, words)
            )

        training.fit(
            name,
            model,
            loss,
            recipe.steps,
            training.Optimisation(optimizer, schedule, float("inf")),
        )
    else:
        phase, pool = recipe.phases[number - 1], np.array(words.upstream)
        model = Pretraining(recipe.architecture, len(pool))
        model.backbone.load_state_dict(load_backbone(aside / str(number - 1)).state_dict())

        def loss(step: int) -> torch.Tensor:
            return model.contrast_loss(_batch(phase.draw(pool, words, rng), pool, words))

        training.fit(
            f"{name}, contrast {number}",
            model,
            loss,
            phase.steps,
            training.optimisation(model, CONTRAST_LR, phase.steps),
        )
    report = {
        "parameters": model.backbone.num_parameters(),
        "accuracy": round(_accuracy(model, pool, words), 4),
        "cpu_seconds": round(time.process_time() - started),
    }
    training.save(
        model.backbone,
        folder,
        report,
        f"Phase {number} of {name}, whose pretraining is under way.\n",
    )
    return report


@torch.no_grad()
def _accuracy(model: Pretraining, pool: np.ndarray, words: Vocabulary) -> float:
    """Return top-1 accuracy on 2000 new single images of the upstream classes at detail 0.8."""
    rng = np.random.RandomState(99)
    classes = rng.choice(len(pool), 2000)
    pictures = draw(single(pool[classes]), "upstream", words, rng, 0.8, 1)
    model.eval()
    guesses = torch.cat(
        [
            model.classify(model.features(part)[0]).argmax(1)
            for part in pictures.images.float().split(500)
        ]
    )
    return (guesses.numpy() == classes).mean().item()


def _card(recipe: Recipe, report: dict) -> str:
    """Return the model card."""
    facts = report | training.RECIPES["words"][type(recipe.architecture).__name__]
    facts |= {"batch": BATCH, "lr": LR, "then": "", "known": recipe.classes}
    if recipe.phases:
        facts |= {
            "known": len(Vocabulary.upstream),
            "temperature": training.TEMPERATURE,
            "contrast_lr": CONTRAST_LR,
        }
        facts["batches"] = "; ".join(
            f"{p.steps:,} steps of {p.singles} singles and {p.scenes} scenes" for p in recipe.phases
        )
        facts["then"] = training.card("mini_vision_contrast", facts)
    return training.card("mini_vision", facts)
