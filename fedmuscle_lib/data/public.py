"""The public sets, one row each, and their reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from torch import Tensor

from fedmuscle_lib.core.errors import DataError, line_of
from fedmuscle_lib.core.files import digest
from fedmuscle_lib.data.client_files import text_fault
from fedmuscle_lib.data.encodings import Encoding, Pixels
from fedmuscle_lib.data.layout import refuse_unfinished
from fedmuscle_lib.data.pickles import load_pickle

# name -> folder below data_dir
PUBLIC_SETS: dict[str, str] = {
    "voc": "MLC_setup/public_Pascal",  # the original README's "unlabeled Pascal VOC images"
    "coco": (
        "MLC_setup/public_COCO"
    ),  # named in Section 6.1, in no layout; after the pattern of Pascal VOC's folder
    "cifar100": "IC/CIFAR100/public",  # the original README's "unlabeled CIFAR-100 images"
    "cifar10": "IC/CIFAR10/public",  # the original README's "if using CIFAR10 public dataset"
    "flickr30k": (
        "TC/flicker_public"
    ),  # the original README's "unlabeled Flickr images"; its spelling
    "synthetic": (
        "public/synthetic"
    ),  # Appendix J: images that Setup1's users make of their own; in no layout
    "noise": "public/noise",  # as many images of noise, a control
}
NAMES = {
    "voc": "Pascal VOC",
    "coco": "COCO",
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "flickr30k": "Flickr30k",
}
NAMES |= {"synthetic": "synthetic images", "noise": "images of noise"}
CAPTIONS = "image_file_name_to_caption.pkl"
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}


def read_public(folder: Path, n: int, encoding: Encoding) -> Tensor:
    """The first ``n`` images of a public set in the order of their names, or these images'
    captions, encoded.

    Images lie in the folder itself, or below it in ``images`` beside the file of their captions.

    Raises:
        DataError: the folder is missing, unfinished or holds fewer than ``n`` images, or an image
            has no caption.
    """
    paths = first_images(folder, n)
    if isinstance(encoding, Pixels):
        return encoding.load(paths)
    return encoding.encode(_captions(folder / CAPTIONS, [path.name for path in paths]))


def public_digest(folder: Path, n: int, reads: str) -> str:
    """SHA-256 of what :func:`read_public` reads, before it is encoded; parties who have the same
    set find the same.

    Args:
        reads: "images", for these with their names, or "texts", for their captions.

    Raises:
        DataError: as :func:`read_public`.
    """
    paths = first_images(folder, n)
    if reads == "images":
        parts = [f"{path.name} {digest(path)}" for path in paths]
    else:
        parts = _captions(folder / CAPTIONS, [path.name for path in paths])
    return sha256("\0".join(parts).encode()).hexdigest()


def first_images(folder: Path, n: int) -> list[Path]:
    """The files of the first ``n`` images in the order of their names; raises as
    :func:`read_public`.
    """
    paths = images_of(folder)
    if len(paths) < n:
        raise DataError(
            f"{folder}: a public set of {n} was asked for, it holds {len(paths)} images"
            f" ({', '.join(sorted(IMAGE_SUFFIXES))}); the setting public_size asks for fewer"
        )
    return paths[:n]


def images_of(folder: Path) -> list[Path]:
    """The files of a set's images, in the order of their names.

    Raises:
        DataError: the folder is missing or unfinished.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; `python -m data_prep` makes data sets")
    refuse_unfinished(folder)
    images = folder / "images" if (folder / "images").is_dir() else folder
    return sorted(path for path in images.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)


def _captions(path: Path, names: Sequence[str]) -> list[str]:
    """One caption an image; the first if it has several."""
    content = load_pickle(path)
    return [captions_of(path, content, name)[0] for name in names]


def captions_of(path: Path, captions: Mapping[str, object], name: str) -> tuple[str, ...]:
    """An image's captions among those of the file ``path``, one or several.

    Raises:
        DataError: naming the file and the image; it has none, or one that is empty.
    """
    given = captions.get(name) or ()
    own = (given,) if isinstance(given, str) else given
    if not isinstance(own, list | tuple) or not own:
        raise DataError(f"{path}: {line_of(name)} has no caption")
    for caption in own:
        if fault := text_fault(caption):
            raise DataError(f"{path}: a caption of {line_of(name)} {fault}")
    return tuple(own)
