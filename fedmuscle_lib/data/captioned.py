"""Captioned images: folders of images with all of their captions, of which a run takes disjoint
parts.

A folder holds ``images/`` and ``image_file_name_to_caption.pkl``, as the layout's public sets do.
Where ``dataset.json`` lies beside them, Karpathy's file as it is published, test images are those
of its split "test" and others those of its other splits. It knows an image by its file's name
without suffix, since ``data_prep`` writes an image that it scales down as a ``.png`` file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from fedmuscle_lib.core.errors import DataError, unreadable
from fedmuscle_lib.core.files import read_json
from fedmuscle_lib.core.randomness import numpy_generator
from fedmuscle_lib.data.encodings import Encoding, Pixels
from fedmuscle_lib.data.pickles import load_pickle
from fedmuscle_lib.data.public import CAPTIONS, captions_of, images_of

KARPATHY = "dataset.json"
TEST = "test"  # the part, and Karpathy's split


@dataclass(frozen=True)
class Captioned:
    """Images with their captions.

    Attributes:
        paths: of n images.
        captions: those of each image, m in all.
    """

    paths: tuple[Path, ...]
    captions: tuple[tuple[str, ...], ...]

    @property
    def image_of(self) -> Tensor:
        """The row of each caption's image, (m,), ascending."""
        return torch.repeat_interleave(torch.tensor([len(own) for own in self.captions]))

    def firsts(self) -> Captioned:
        """The same images, each with its first caption alone."""
        return Captioned(self.paths, tuple(own[:1] for own in self.captions))

    def encoded(self, encoding: Encoding) -> Tensor:
        """The images, (n, 3, h, w), or the captions, (m, l), as the encoding says."""
        return (
            encoding.load(self.paths)
            if isinstance(encoding, Pixels)
            else encoding.encode(list(chain(*self.captions)))
        )


def parts(folder: Path, sizes: Mapping[str, int]) -> dict[str, Captioned]:
    """Take disjoint parts of a folder, the same ones in every run with these sizes.

    Args:
        sizes: images of each part by its name; "test" stands for test images where the folder tells
            them from others.

    Raises:
        DataError: the folder is missing, unfinished or has too few images, or an image has no
            caption or no split; the message names it.
    """
    paths, captions = images_of(folder), load_pickle(folder / CAPTIONS)
    tests = test_images(folder, paths)
    order = [paths[i] for i in numpy_generator("captioned images").permutation(len(paths))]
    found, taken = {}, set[Path]()
    for name, size in sizes.items():
        free = [
            path
            for path in order
            if path not in taken and (tests is None or (path in tests) == (name == TEST))
        ]
        if len(free) < size:
            raise DataError(
                f"{folder}: {size} images were asked for {name}, {len(free)} of {len(paths)} are"
                " left; ask for fewer"
            )
        taken.update(free[:size])
        found[name] = Captioned(
            tuple(free[:size]),
            tuple(captions_of(folder / CAPTIONS, captions, path.name) for path in free[:size]),
        )
    return found


def test_images(folder: Path, paths: Sequence[Path]) -> set[Path] | None:
    """Return the images of Karpathy's split "test"; None where the folder has no such file.

    Args:
        paths: of the folder's images.

    Raises:
        DataError: the file is damaged, or lacks one of these images; the message names it.
    """
    file = folder / KARPATHY
    if not file.exists():
        return None
    images = read_json(file).get("images", ())
    with unreadable(f"{file}: not Karpathy's file of splits of these images"):
        splits = {Path(image["filename"]).stem: image["split"] for image in images}
        return {path for path in paths if splits[path.stem] == TEST}
