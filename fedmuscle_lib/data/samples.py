"""Reads the README's ``data_dir`` layout: clients' local data sets and the public sets, as tensors.

Pictures become uint8 pixels and texts token ids, as the model that reads them wants them. Nothing here executes what a file says: pickles
go through ``fedmuscle_lib.pickles``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from fedmuscle_lib.pickles import DataError, load_pickle, read_bytes
from fedmuscle_lib.randomness import generator
from fedmuscle_lib.tasks import ImageClassification, SemanticSegmentation, Task, TextClassification, TextGeneration
from fedmuscle_lib.tasks.segmentation import BACKGROUND, IGNORED
from fedmuscle_lib.tasks.text_generation import NO_TOKEN

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg"}
CAPTIONS = "image_file_name_to_caption.pkl"


@dataclass(frozen=True)
class Samples:
    """What a user learns from.

    Attributes:
        inputs: (n, 3, h, w) uint8 pixels, or (n, l) int64 token ids.
        targets: (n,) labels, (n, classes) float32 multi-hot, (n, h, w) classes of pixels, or (n, l) token ids.
    """

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: str) -> Samples:
        return Samples(self.inputs.to(device), self.targets.to(device))

    def take(self, rows: Tensor) -> Samples:
        return Samples(self.inputs[rows], self.targets[rows])


@dataclass(frozen=True)
class Pixels:
    """How a vision model reads pictures: resized to ``size`` x ``size``."""

    size: int

    def empty(self) -> Tensor:
        return torch.empty(0, 3, self.size, self.size, dtype=torch.uint8)


@dataclass(frozen=True)
class Tokens:
    """How a language model reads texts: by its tokenizer, cut after ``longest`` tokens."""

    tokenizer: PreTrainedTokenizerBase
    longest: int

    def empty(self) -> Tensor:
        return torch.empty(0, 1, dtype=torch.int64)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(n, l) token ids, padded on the right to the longest text."""
        options = {"padding": "longest", "truncation": True, "max_length": self.longest, "padding_side": "right"}
        return self.tokenizer(list(texts), return_tensors="pt", **options).input_ids


Encoding = Pixels | Tokens


# --- users -------------------------------------------------------------------------------------------------------------------


def read_user(
    data_dir: Path, task: Task, client: int, split: str, encoding: Encoding, images: Path | None = None
) -> tuple[Samples, tuple[int, ...]]:
    """Local data of ``client_<client>`` for a task, and its class ids in the order of the outputs, without SS's background.

    Args:
        data_dir: root of the README's layout.
        split: "train", "val" or "test".
        encoding: how the user's model reads its inputs.
        images: where a COCO file's images are, if not below ``data_dir``.

    Raises:
        DataError: naming the file, its row where there is one, and what is wrong with it.
    """
    folder = data_dir / task.folder
    _refuse_unfinished(folder)
    stem = folder / split / f"client_{client}"
    images = images or folder / "images" / split
    match task:
        case ImageClassification():
            return _read_pictures(stem.with_suffix(".pkl"), task, encoding.size), tuple(range(task.n_classes))
        case TextClassification():
            return _read_texts(stem.with_suffix(".pkl"), task, encoding), tuple(range(task.n_classes))
        case TextGeneration():
            return _read_prose(stem.with_suffix(".pkl"), encoding), ()
        case SemanticSegmentation():
            return _read_masks(stem.with_suffix(".json"), images, encoding.size)
        case _:
            return _read_multi_hot(stem.with_suffix(".json"), images, encoding.size)


def _read_pictures(path: Path, task: ImageClassification, size: int) -> Samples:
    content = _fields(path, "data", "labels")
    try:
        images = np.asarray(content["data"])
    except ValueError as error:  # ragged lists
        raise DataError(f"{path}: data are no array ({error})") from None
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
        raise DataError(f"{path}: data is {images.dtype} {images.shape}, not uint8 (n, h, w, 3)")
    labels = _labels(path, content["labels"], len(images), task)
    tensor = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return Samples(_resize(tensor, size), labels)


def _fields(path: Path, *names: str) -> dict:
    content = load_pickle(path)
    if missing := set(names) - content.keys():
        raise DataError(f"{path}: lacks {sorted(missing)}")
    return content


def _labels(path: Path, given: object, n: int, task: ImageClassification | TextClassification) -> Tensor:
    try:
        labels = np.asarray(given)
    except ValueError as error:
        raise DataError(f"{path}: labels are no array ({error})") from None
    if labels.shape != (n,) or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{path}: {labels.dtype} labels {labels.shape} for {n} samples")
    if n == 0 or labels.min() < 0 or labels.max() >= task.n_classes:
        raise DataError(f"{path}: {task.name} has labels 0..{task.n_classes - 1}, found {labels.min(initial=0)}..{labels.max(initial=-1)}")
    return torch.from_numpy(labels.astype(np.int64))


def _read_texts(path: Path, task: TextClassification, encoding: Tokens) -> Samples:
    content = _fields(path, "texts", "labels")
    texts = _texts(path, content["texts"])
    return Samples(encoding.encode(texts), _labels(path, content["labels"], len(texts), task))


def _read_prose(path: Path, encoding: Tokens) -> Samples:
    """A text is its own target."""
    inputs = encoding.encode(_texts(path, _fields(path, "texts")["texts"]))
    targets = inputs.masked_fill(inputs == encoding.tokenizer.pad_token_id, NO_TOKEN)
    if not (targets[:, 1:] != NO_TOKEN).any():
        raise DataError(f"{path}: no text has a second token that could be predicted from a first")
    return Samples(inputs, targets)


def _texts(path: Path, given: object) -> list[str]:
    if not isinstance(given, list | tuple):
        raise DataError(f"{path}: texts are a {type(given).__name__}, not a list")
    if not given:
        raise DataError(f"{path}: holds no text")
    for row, text in enumerate(given):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{path}: row {row} is {'empty' if isinstance(text, str) else f'a {type(text).__name__}, no text'}")
    return list(given)


# --- COCO --------------------------------------------------------------------------------------------------------------------


def _read_multi_hot(path: Path, images: Path, size: int) -> tuple[Samples, tuple[int, ...]]:
    """A picture has the categories of its annotations."""
    coco, categories = _read_coco(path)
    ids = sorted(coco.getImgIds())
    targets = torch.zeros(len(ids), len(categories))
    for row, i in enumerate(ids):
        for annotation in coco.imgToAnns[i]:
            targets[row, _column(path, categories, annotation)] = 1
    return Samples(load_images(_image_paths(path, coco, ids, images), size), targets), tuple(categories)


def _read_masks(path: Path, images: Path, size: int) -> tuple[Samples, tuple[int, ...]]:
    """A pixel has the category of the smallest object that covers it; what only a crowd covers is ignored."""
    coco, categories = _read_coco(path)
    ids = sorted(coco.getImgIds())
    targets = torch.full((len(ids), size, size), BACKGROUND)
    for row, i in enumerate(ids):
        record = coco.imgs[i]
        scene = np.full((record["height"], record["width"]), BACKGROUND)
        for annotation in sorted(coco.imgToAnns[i], key=lambda a: (not a.get("iscrowd", 0), -a.get("area", 0))):  # small ones last
            column = _column(path, categories, annotation)
            scene[_mask(path, coco, annotation, record)] = IGNORED if annotation.get("iscrowd", 0) else 1 + column
        targets[row] = F.interpolate(torch.from_numpy(scene)[None, None].float(), size=(size, size), mode="nearest")[0, 0].long()
    return Samples(load_images(_image_paths(path, coco, ids, images), size), targets), tuple(categories)


def _read_coco(path: Path) -> tuple[COCO, dict[int, int]]:
    """An instances file, and the column of each of its categories."""
    read_bytes(path)  # for the error that names the file
    try:
        with redirect_stdout(io.StringIO()):
            coco = COCO(str(path))
        if missing := {"images", "annotations", "categories"} - coco.dataset.keys():
            raise KeyError(f"lacks {sorted(missing)}")
        categories = {c: column for column, c in enumerate(sorted(coco.getCatIds()))}
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise DataError(f"{path}: not a COCO instances file ({type(error).__name__}: {error})") from None
    if not coco.imgs or not categories:
        raise DataError(f"{path}: {len(coco.imgs)} images and {len(categories)} categories")
    return coco, categories


def _column(path: Path, categories: dict[int, int], annotation: dict) -> int:
    category = annotation.get("category_id")
    if category not in categories:
        raise DataError(f"{path}: annotation {annotation.get('id')} has the category {category!r}, which the file does not list")
    return categories[category]


def _image_paths(path: Path, coco: COCO, ids: Sequence[int], images: Path) -> list[Path]:
    try:
        return [images / coco.imgs[i]["file_name"] for i in ids]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: not a COCO instances file ({type(error).__name__}: {error})") from None


def _mask(path: Path, coco: COCO, annotation: dict, record: dict) -> np.ndarray:
    """(height, width) bool, of the record's size."""
    where = f"{path}: annotation {annotation.get('id')}"
    try:
        mask = coco_mask.decode(coco.annToRLE(annotation)).astype(bool)
    except Exception as error:  # pycocotools is C: what it raises depends on what is wrong
        raise DataError(f"{where} has no readable segmentation ({type(error).__name__}: {error})") from None
    if mask.shape != (record["height"], record["width"]):
        raise DataError(f"{where} has a mask of {mask.shape[1]} x {mask.shape[0]} in a picture of {record['width']} x {record['height']}")
    return mask


# --- public sets -------------------------------------------------------------------------------------------------------------


def read_public(folder: Path, n: int, encoding: Encoding) -> Tensor:
    """The first ``n`` unlabelled images of a folder in the order of their names, or those images' captions, encoded.

    Images lie in the folder itself, or below it in ``images`` beside the file of their captions.

    Raises:
        DataError: the folder is missing or holds fewer than ``n`` images, or an image has no caption.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; `python -m data_prep` makes the public sets")
    _refuse_unfinished(folder)
    images = folder / "images" if (folder / "images").is_dir() else folder
    paths = sorted(path for path in images.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    if len(paths) < n:
        raise DataError(f"{folder}: a public set of {n} was asked for, it holds {len(paths)} images")
    if isinstance(encoding, Pixels):
        return load_images(paths[:n], encoding.size)
    return encoding.encode(_captions(folder / CAPTIONS, [path.name for path in paths[:n]]))


def _captions(path: Path, names: Sequence[str]) -> list[str]:
    """One caption a picture: its first, where it has several."""
    content = load_pickle(path)
    captions = []
    for name in names:
        given = content.get(name)
        first = given[0] if isinstance(given, list | tuple) and given else given
        if not isinstance(first, str) or not first.strip():
            raise DataError(f"{path}: {name} has {'no caption' if name not in content else f'{given!r} for a caption'}")
        captions.append(first)
    return captions


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
