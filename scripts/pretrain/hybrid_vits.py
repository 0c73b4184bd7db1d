"""Distil the small profile's hybrid ViTs from EfficientNet-Lite2, on images without labels.

    python scripts/pretrain/hybrid_vits.py hybrid-vit-small --archives FOLDER --out FOLDER

``data_prep/weights/small`` has the results, which were made of 25,944 images of Tiny ImageNet,
Food-101, Caltech-101 and Flickr30k; no user of Setup1 or Setup2 trains on these. A hybrid ViT
stands on the first eleven blocks of EfficientNet-Lite0, which are frozen, and imitates the larger
network (Hinton et al., 2015). Both networks come from wheels that pip downloads. On one core the
views of the images take 15 to 35 minutes, the training 10 to 20 a ViT.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import RECIPES, claim, fit, optimisation, save
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from data_prep.checkpoints.conversion import converted
from data_prep.checkpoints.wheels import CHECKPOINTS, tensors
from data_prep.datasets import CATALOGUE
from data_prep.io.archives import Members, nested, opened
from data_prep.io.image_files import decoded
from fedmuscle_lib.core.torch_state import fixed_state
from fedmuscle_lib.data.public import IMAGE_SUFFIXES
from fedmuscle_lib.models.efficientnet_lite import (
    EfficientNetLiteConfig,
    EfficientNetLiteModel,
    scaled,
)
from fedmuscle_lib.models.hybrid_vit import HybridViTConfig, HybridViTModel, Stem

DATA_SETS = ("tiny-imagenet", "food101", "caltech101", "flickr30k")
MOST = 20_000  # images of a data set
STEM, TEACHER = "efficientnet-lite0", "efficientnet-lite2"
STUDENT_SIDE, TEACHER_SIDE = 96, 128  # px
STAGES = 5  # of the stem: blocks 0 to 10, to stride 16, as the patches of the paper's ViTs
BY_STAGE = (
    "in_channels",
    "out_channels",
    "num_block_repeats",
    "strides",
    "kernel_sizes",
    "expand_ratios",
)
OVERALL = ("width_coefficient", "depth_coefficient", "hidden_act", "hidden_dim", "batch_norm_eps")
CHUNK = 16  # images: with more, the convolutions outgrow a core's cache, and cost twice as much
BATCH = 96
LR = 1e-3  # at its peak
DROPPED = 0.15  # share of the patches
NOISE = 0.1  # in standard deviations of the stem's map
TEMPERATURE = 2.0  # of the soft labels
# Weights of the loss; the second is TEMPERATURE^2, which makes up for the smaller gradient.
FEATURES_WEIGHT, LABELS_WEIGHT = 2.0, 4.0
HELD_OUT = 512  # images to measure on, a tenth at most


@dataclass(frozen=True)
class Views:
    """Two views of each image, as it is and mirrored, in half precision.

    Attributes:
        rows: (images, 2), with the fields "map" (channels, h, w), "features" and "logits".
        mean, std: of the maps by channel, over all views, (channels, 1, 1).
        centre: the mean of the features.
    """

    rows: np.ndarray
    mean: Tensor
    std: Tensor
    centre: Tensor

    def of(self, images: Tensor, mirrored: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return maps, centred features and logits of a batch, in single precision."""
        batch = self.rows[images.numpy(), mirrored.long().numpy()]
        maps, features, logits = (
            torch.from_numpy(batch[field].astype(np.float32))
            for field in ("map", "features", "logits")
        )
        return maps, features - self.centre, logits


def networks(wheels: Path) -> tuple[Stem, EfficientNetLiteModel, nn.Linear]:
    """Return the stem, the teacher and the teacher's classifier, frozen."""
    config = EfficientNetLiteConfig(**CHECKPOINTS[STEM]["config"])
    first = {key: list(getattr(config, key)[:STAGES]) for key in BY_STAGE}
    overall = {key: CHECKPOINTS[STEM]["config"][key] for key in OVERALL}
    stem = Stem(EfficientNetLiteConfig(**overall | first))
    stem.load_state_dict(converted(tensors(STEM, wheels, None)), strict=False)
    teacher = EfficientNetLiteModel(EfficientNetLiteConfig(**CHECKPOINTS[TEACHER]["config"]))
    weights = tensors(TEACHER, wheels, None)
    teacher.load_state_dict(converted(weights), strict=False)
    classifier = nn.Linear(*reversed(weights["_fc.weight"].shape))
    classifier.load_state_dict({kind: weights[f"_fc.{kind}"] for kind in ("weight", "bias")})
    for network in (stem, teacher, classifier):
        network.requires_grad_(False).eval().to(memory_format=torch.channels_last)
    return stem, teacher, classifier


@torch.inference_mode()
def compute(
    archives: Path, stem: Stem, teacher: nn.Module, classifier: nn.Linear, most: int
) -> Views:
    """Return the views of at most ``most`` images of each data set whose archive is there."""
    names = {
        path: image_names(path, most)
        for path in (archives / CATALOGUE[name].archives[0].name for name in DATA_SETS)
        if path.exists()
    }
    count, done, rows = sum(map(len, names.values())), 0, np.empty(0)
    if not count:
        raise typer.BadParameter(f"{archives}: holds no image archive of {', '.join(DATA_SETS)}")
    pending: list[list[np.ndarray]] = []
    for squares in tqdm(image_squares(names), "views", count, unit="image", mininterval=5):
        pending.append(squares)
        if len(pending) < CHUNK and done + len(pending) < count:
            continue
        small, large = (
            torch.from_numpy(np.stack(side)).permute(0, 3, 1, 2)
            for side in zip(*pending, strict=True)
        )
        for mirrored in (0, 1):
            inputs = [images.flip(3) if mirrored else images for images in (small, large)]
            little, big = (
                scaled(images).contiguous(memory_format=torch.channels_last) for images in inputs
            )
            features = teacher(big).last_hidden_state.mean((2, 3))
            view = {"map": stem(little), "features": features, "logits": classifier(features)}
            if not len(rows):
                fields = [(key, np.float16, tuple(value.shape[1:])) for key, value in view.items()]
                rows = np.empty((count, 2), fields)
            for key, value in view.items():
                rows[key][done : done + len(pending), mirrored] = value.numpy()
        done += len(pending)
        pending = []
    return Views(rows, *moments(rows))


def photographs(members: Members) -> Members:
    """Yield the images of an archive, and of the archives in it."""
    for name, file in members:
        pure = PurePosixPath(name)
        if pure.name.endswith(".tar.gz"):
            yield from photographs(nested(file))
        elif pure.suffix.lower() in IMAGE_SUFFIXES and not pure.name.startswith("."):
            yield name, file


def image_names(path: Path, most: int) -> list[str]:
    """Draw names of images from an archive; return them in its order."""
    with opened(path) as members:
        names = [name for name, _ in photographs(members)]
    chosen = np.random.RandomState(0).permutation(len(names))[:most]
    return [names[row] for row in sorted(chosen.tolist())]


def image_squares(names: dict[Path, list[str]]) -> Iterator[list[np.ndarray]]:
    """Yield the central square of each image, at the student's side and at the teacher's."""
    for path, own in names.items():
        wanted = set(own)
        with opened(path) as members:
            for name, file in photographs(members):
                if name in wanted:
                    image = decoded(file.read(), f"{path}: {name}")
                    yield [
                        np.asarray(ImageOps.fit(image, (side, side), Image.Resampling.BICUBIC))
                        for side in (STUDENT_SIDE, TEACHER_SIDE)
                    ]


def moments(rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and standard deviation of the maps by channel, and the mean of the features."""
    total = squares = centre = 0.0
    for start in range(0, len(rows), 1024):
        maps = rows["map"][start : start + 1024].astype(np.float32)
        total = total + maps.mean((3, 4), dtype=np.float64).sum((0, 1))
        squares = squares + (maps**2).mean((3, 4), dtype=np.float64).sum((0, 1))
        centre = centre + rows["features"][start : start + 1024].sum((0, 1), dtype=np.float64)
    mean = total / rows.size
    std = np.sqrt(np.maximum(squares / rows.size - mean**2, 1e-6))
    map_mean, map_std = (torch.from_numpy(values).float().view(-1, 1, 1) for values in (mean, std))
    return map_mean, map_std, torch.from_numpy(centre / rows.size).float()


class Student(nn.Module):
    """A hybrid ViT with two linear heads on the mean of its patch tokens, which are dropped
    afterwards.
    """

    def __init__(self, recipe: dict[str, Any], views: Views, stem: Stem) -> None:
        super().__init__()
        shapes, hidden = views.rows.dtype, recipe["hidden"]
        config = HybridViTConfig(
            hidden_size=hidden,
            num_hidden_layers=recipe["layers"],
            num_attention_heads=recipe["heads"],
            intermediate_size=4 * hidden,
            image_size=STUDENT_SIDE,
            patch_size=STUDENT_SIDE // shapes["map"].shape[1],
            stem={key: getattr(stem.config, key) for key in (*BY_STAGE, *OVERALL)},
        )
        self.backbone = HybridViTModel(config)
        embeddings = self.backbone.embeddings
        embeddings.stem.load_state_dict(stem.state_dict())
        embeddings.stem.requires_grad_(False)
        embeddings.mean.copy_(views.mean)
        embeddings.std.copy_(views.std)
        self.features = nn.Linear(hidden, shapes["features"].shape[0])
        self.logits = nn.Linear(hidden, shapes["logits"].shape[0])

    def forward(self, maps: Tensor, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map the stem's maps (b, channels, h, w) to features and logits.

        Args:
            kept: the places that are not dropped, in rows of equal length, (b, k).
        """
        tokens = self.backbone.embeddings.tokens(maps)
        if kept is not None:  # the [CLS] token stays, too
            places = torch.cat([torch.zeros_like(kept[:, :1]), 1 + kept], 1)[:, :, None]
            tokens = tokens.gather(1, places.expand(-1, -1, tokens.shape[2]))
        for layer in self.backbone.layers:
            tokens = layer(tokens)
        pooled = self.backbone.layernorm(tokens)[:, 1:].mean(1)
        return self.features(pooled), self.logits(pooled)


def distillation_loss(found: tuple[Tensor, Tensor], features: Tensor, logits: Tensor) -> Tensor:
    """Return 2 (1 - cosine) to the teacher's centred features, plus 4 KL(teacher, student) of the
    labels at temperature 2.
    """
    cosine = F.cosine_similarity(found[0], features).mean()
    ours, theirs = (F.log_softmax(values / TEMPERATURE, 1) for values in (found[1], logits))
    return FEATURES_WEIGHT * (1 - cosine) + LABELS_WEIGHT * F.kl_div(
        ours, theirs, reduction="batchmean", log_target=True
    )


@fixed_state(1)
def distil(name: str, views: Views, stem: Stem, out: Path, epochs: int | None = None) -> None:
    """Distil a hybrid ViT, measure it on images held out, and save it in ``out/name``."""
    recipe = RECIPES["hybrid_vits"][name]
    epochs, folder = epochs or recipe["epochs"], claim(out / name)
    torch.manual_seed(0)
    student = Student(recipe, views, stem)
    images = torch.randperm(len(views.rows), generator=torch.Generator().manual_seed(0))
    held_out, train = images.tensor_split([max(1, min(HELD_OUT, len(images) // 10))])
    batch = min(BATCH, len(train))
    steps = len(train) // batch
    how = optimisation(student, LR, epochs * steps)
    for epoch in range(epochs):
        student.train()
        drawn = batches(views, train, batch, epoch)

        def loss(_: int, drawn: Iterator[tuple[Tensor, ...]] = drawn) -> Tensor:
            maps, features, logits, kept = next(drawn)
            return distillation_loss(student(maps, kept), features, logits)

        fit(f"{name}, epoch {epoch + 1}/{epochs}", student, loss, steps, how)
    cosine, agreement = imitation(student, views, held_out)
    report = {"name": name, **recipe, "epochs": epochs, "images": len(views.rows)}
    report |= {"cosine": round(cosine, 4), "agreement": round(agreement, 4)}
    save(student.backbone, folder, report)


def batches(views: Views, train: Tensor, batch: int, epoch: int) -> Iterator[tuple[Tensor, ...]]:
    """Yield noisy maps, features, logits and the places that are kept."""
    rng = torch.Generator().manual_seed(1_000_003 + epoch)
    for images in train[torch.randperm(len(train), generator=rng)].split(batch):
        if len(images) < batch:  # the rest of an epoch is dropped, another one each time
            return
        maps, features, logits = views.of(images, torch.rand(batch, generator=rng) < 0.5)
        places = maps.shape[2] * maps.shape[3]
        kept = torch.rand(batch, places, generator=rng).argsort(1)[:, round(DROPPED * places) :]
        noise = NOISE * views.std * torch.randn(maps.shape, generator=rng)
        yield maps + noise, features, logits, kept


@torch.inference_mode()
def imitation(student: Student, views: Views, images: Tensor) -> tuple[float, float]:
    """Return the mean cosine to the teacher's features, and the share of images with the teacher's
    likeliest class.
    """
    student.eval()
    cosines, agreements = [], []
    for rows in images.split(BATCH):
        maps, features, logits = views.of(rows, torch.zeros(len(rows), dtype=torch.bool))
        ours = student(maps)
        cosines.append(F.cosine_similarity(ours[0], features))
        agreements.append((ours[1].argmax(1) == logits.argmax(1)).float())
    return torch.cat(cosines).mean().item(), torch.cat(agreements).mean().item()


def main(
    names: list[str],
    archives: Annotated[Path, typer.Option(help="The folder of the images' archives.")],
    out: Annotated[Path, typer.Option(help="Write NAME below this folder.")],
    most: Annotated[int, typer.Option(help="Images of an archive at most.")] = MOST,
    epochs: Annotated[int | None, typer.Option(help="Epochs of training.")] = None,
) -> None:
    """Distil hybrid ViTs."""
    stem, teacher, classifier = networks(archives)
    views = compute(archives, stem, teacher, classifier, most)
    for name in names:
        distil(name, views, stem, out, epochs)


if __name__ == "__main__":
    typer.run(main)
