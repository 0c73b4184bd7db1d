"""Reads a folder of labelled images, a sub-folder for each class, as one uint8 tensor; decodes once and caches on disk."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from tqdm import tqdm

from data_prep.io.files import named

SUFFIXES = {".jpeg", ".jpg", ".png"}


@dataclass(frozen=True)
class LabelledImages:
    """Images (n, 3, size, size) uint8, labels (n,) int64 that index ``classes``, and a digest of the files' names and lengths."""

    folder: Path
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    digest: str
    per_class: int | None = None  # at most so many of each class were taken


def read(folder: Path, size: int, cache: Path, per_class: int | None = None) -> LabelledImages:
    """Read ``folder/<class>/*.JPEG``, or ``folder/<class>/images/*.JPEG`` as Tiny-ImageNet has it; PNG and grey-scale too.

    Each image is cropped to its central square and averaged down to ``size`` pixels. The decoded images are cached below ``cache``
    under their digest.

    Args:
        per_class: take the first so many of each class by name; all if None.

    Raises:
        FileNotFoundError: there is no such folder, or a class in it has no images.
        OSError: an image can't be read; the message names it.
    """
    files = _list(folder, per_class)
    paths = [path for paths in files.values() for path in paths]
    listing = "".join(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n" for path in paths)
    digest = hashlib.sha256(f"{size}\n{listing}".encode()).hexdigest()[:16]
    kept = cache / f"images-{size}px-{digest}.npy"
    images = _kept(kept, (len(paths), 3, size, size))
    if images is None:
        images = np.stack([_decode(path, size) for path in tqdm(paths, desc=f"decode {folder.name}", unit="image", mininterval=5)])
        cache.mkdir(parents=True, exist_ok=True)
        aside = kept.with_suffix(f".{os.getpid()}.tmp")
        with named(aside), aside.open("wb") as file:
            np.save(file, images)
        aside.replace(kept)
    labels = torch.arange(len(files)).repeat_interleave(torch.tensor([len(paths) for paths in files.values()]))
    return LabelledImages(folder, torch.from_numpy(images), labels, tuple(files), digest, per_class)


def _list(folder: Path, per_class: int | None) -> dict[str, list[Path]]:
    """Return class -> its images, both sorted by name."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; `python -m data_prep tiny-imagenet` makes data/real/tiny_imagenet/train")
    files = {}
    for below in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        inner = below / "images"
        images = sorted(path for path in (inner if inner.is_dir() else below).iterdir() if path.suffix.lower() in SUFFIXES)
        if not images:
            raise FileNotFoundError(f"{below}: no JPEG or PNG image")
        files[below.name] = images[:per_class]
    if len(files) < 2:
        raise FileNotFoundError(f"{folder}: {len(files)} class sub-folders; a classification takes two or more")
    return files


def _kept(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return what an earlier call cached there, or None."""
    try:
        images = np.load(path)
    except (FileNotFoundError, ValueError, EOFError):  # the latter two: damaged, decoded anew
        return None
    return images if images.shape == shape and images.dtype == np.uint8 else None


def _decode(path: Path, size: int) -> np.ndarray:
    """Shape: (3, size, size), uint8."""
    try:
        with Image.open(path) as image:
            # the box filter averages whole pixels where the side is a multiple of `size`: Tiny-ImageNet's 64 is
            square = ImageOps.fit(image.convert("RGB"), (size, size), method=Image.Resampling.BOX)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # Pillow has all of these for a broken file
        raise OSError(f"{path}: not a readable image ({type(error).__name__})") from None
    return np.asarray(square).transpose(2, 0, 1)
