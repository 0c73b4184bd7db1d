"""Reads the README's ``data_dir`` layout: clients' local data sets and the public sets, as uint8 tensors.

Nothing here executes what a file says: pickles go through ``fedmuscle_lib.pickles``.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from pycocotools.coco import COCO
from torch import Tensor
from torch.nn import functional as F

from fedmuscle_lib.pickles import DataError, load_pickle, read_bytes
from fedmuscle_lib.randomness import generator
from fedmuscle_lib.tasks import ImageClassification, Task

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg"}


@dataclass(frozen=True)
class Samples:
    """``images`` (n, 3, h, w) uint8 and ``targets`` (n,) int64 labels, or (n, classes) float32 multi-hot."""

    images: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: str) -> Samples:
        return Samples(self.images.to(device), self.targets.to(device))

    def take(self, rows: Tensor) -> Samples:
        return Samples(self.images[rows], self.targets[rows])


# --- users -------------------------------------------------------------------------------------------------------------------


def read_user(
    data_dir: Path, task: Task, client: int, split: str, size: int, images: Path | None = None
) -> tuple[Samples, tuple[int, ...]]:
    """Local data of ``client_<client>`` for a task, and its class ids in the order of the targets' columns.

    Args:
        data_dir: root of the README's layout.
        split: "train", "val" or "test".
        size: side in pixels that images are resized to.
        images: where a COCO file's images are, if not below ``data_dir``.

    Raises:
        DataError: naming the file and what is wrong with it.
    """
    folder = data_dir / task.folder
    _refuse_unfinished(folder)
    if isinstance(task, ImageClassification):
        return _read_pickled(folder / split / f"client_{client}.pkl", task, size), tuple(range(task.n_classes))
    return _read_coco(folder / split / f"client_{client}.json", images or folder / "images" / split, size)


def _read_pickled(path: Path, task: ImageClassification, size: int) -> Samples:
    content = load_pickle(path)
    if missing := {"data", "labels"} - content.keys():
        raise DataError(f"{path}: lacks {sorted(missing)}")
    try:
        images, labels = np.asarray(content["data"]), np.asarray(content["labels"])
    except ValueError as error:  # ragged lists
        raise DataError(f"{path}: data or labels are no array ({error})") from None
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        raise DataError(f"{path}: data is {images.dtype} {images.shape}, not uint8 (n, h, w, 3)")
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: {labels.dtype} labels {labels.shape} for {len(images)} images")
    if len(labels) == 0 or labels.min() < 0 or labels.max() >= task.n_classes:
        raise DataError(f"{path}: {task.name} has labels 0..{task.n_classes - 1}, found {labels.min(initial=0)}..{labels.max(initial=-1)}")
    tensor = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return Samples(_resize(tensor, size), torch.from_numpy(labels.astype(np.int64)))


def _read_coco(path: Path, images: Path, size: int) -> tuple[Samples, tuple[int, ...]]:
    """Multi-hot targets from a COCO instances file: a picture has the categories of its annotations."""
    read_bytes(path)  # for the error that names the file
    try:
        with redirect_stdout(io.StringIO()):
            coco = COCO(str(path))
        if missing := {"images", "annotations", "categories"} - coco.dataset.keys():
            raise KeyError(f"lacks {sorted(missing)}")
        categories = {c: column for column, c in enumerate(sorted(coco.getCatIds()))}
        ids = sorted(coco.getImgIds())
        targets = torch.zeros(len(ids), len(categories))
        for row, i in enumerate(ids):
            for annotation in coco.imgToAnns[i]:
                targets[row, categories[annotation["category_id"]]] = 1
        paths = [images / coco.imgs[i]["file_name"] for i in ids]
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise DataError(f"{path}: not a COCO instances file ({type(error).__name__}: {error})") from None
    if not ids or not categories:
        raise DataError(f"{path}: {len(ids)} images and {len(categories)} categories")
    return Samples(load_images(paths, size), targets), tuple(categories)


# --- images ------------------------------------------------------------------------------------------------------------------


def read_public(folder: Path, n: int, size: int) -> Tensor:
    """The first ``n`` unlabelled images of a folder in the order of their names, (n, 3, size, size) uint8.

    Raises:
        DataError: the folder is missing or holds fewer than ``n`` images.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; `python -m data_prep` makes the public sets")
    _refuse_unfinished(folder)
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    if len(paths) < n:
        raise DataError(f"{folder}: a public set of {n} was asked for, it holds {len(paths)} images")
    return load_images(paths[:n], size)


def _refuse_unfinished(folder: Path) -> None:
    """``data_prep`` leaves a manifest with what it writes; a folder of the reader's own needs none."""
    path = folder / "manifest.json"
    if path.exists() and b'"whole": false' in path.read_bytes():
        raise DataError(f"{folder}: the command that writes it was interrupted (manifest.json); run it again")


def load_images(paths: list[Path], size: int) -> Tensor:
    """RGB images resized to ``size`` x ``size``, (n, 3, size, size) uint8."""
    out = torch.empty(len(paths), 3, size, size, dtype=torch.uint8)
    for row, path in enumerate(paths):
        try:
            with Image.open(io.BytesIO(read_bytes(path))) as image:
                rgb = image.convert("RGB")
                if rgb.size != (size, size):
                    rgb = rgb.resize((size, size), Image.Resampling.BICUBIC)
                out[row] = torch.from_numpy(np.array(rgb)).permute(2, 0, 1)
        except (UnidentifiedImageError, OSError, SyntaxError) as error:
            raise DataError(f"{path}: not a readable image ({error})") from None
    return out


def _resize(images: Tensor, size: int) -> Tensor:
    if images.shape[-1] == size and images.shape[-2] == size:
        return images
    options = {"size": (size, size), "mode": "bicubic", "antialias": True, "align_corners": False}
    # in parts, since a float image takes four times the memory
    parts = [F.interpolate(part.float(), **options).round_().clamp_(0, 255).to(torch.uint8) for part in images.split(256)]
    return torch.cat(parts)


# --- local training sets -----------------------------------------------------------------------------------------------------


def draw_local(samples: Samples, n: int, *address: object) -> Samples:
    """``n`` samples of a user's pool, drawn by the address; classes as even as the pool allows when targets are labels.

    Raises:
        DataError: the pool is smaller than ``n``.
    """
    if len(samples) < n:
        raise DataError(f"a local training set of {n} was asked for, the file holds {len(samples)} samples")
    order = torch.randperm(len(samples), generator=generator("local data", *address))
    if samples.targets.ndim == 1:
        labels = samples.targets[order]
        # a sample's rank is how many of its class stand before it; taking the least first goes round the classes
        by_class = torch.argsort(labels, stable=True)
        first = torch.searchsorted(labels[by_class], labels[by_class])
        rank = torch.empty_like(order)
        rank[by_class] = torch.arange(len(labels)) - first
        order = order[torch.argsort(rank, stable=True)]
    return samples.take(order[:n])
