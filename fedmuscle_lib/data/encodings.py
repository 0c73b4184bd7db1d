"""Encodings of inputs: images as pixels of one size, texts as token ids, or as words where no model
reads them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from fedmuscle_lib.core.errors import DataError, prefixed
from fedmuscle_lib.core.files import read_bytes
from fedmuscle_lib.data.images import decode

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Modality = Literal["images", "texts"]


@dataclass(frozen=True)
class Pixels:
    """A vision model's: uint8 RGB images, ``size`` x ``size``; smaller ones are enlarged."""

    reads: ClassVar[Modality] = "images"
    size: int

    def load(
        self, paths: Sequence[Path], sides: Sequence[tuple[int | None, int | None]] = ()
    ) -> Tensor:
        """(n, 3, size, size) uint8 from image files.

        Args:
            sides: height and width in pixels that each must have, upright, None where any will do.

        Raises:
            DataError: naming the file; it is missing, no image or of another size.
        """
        shape = (self.size, self.size)
        images = torch.empty(len(paths), 3, *shape, dtype=torch.uint8)
        given = sides or [(None, None)] * len(paths)
        for row, (path, side) in enumerate(zip(paths, given, strict=True)):
            content = read_bytes(path)
            with prefixed(str(path), DataError):
                rgb = decode(content)
            if None not in side and side != (rgb.height, rgb.width):
                raise DataError(
                    f"{path}: an image of {rgb.width} x {rgb.height} pixels, whose record says"
                    f" {side[1]} x {side[0]}"
                )
            resized = rgb.resize(shape, Image.Resampling.BICUBIC)
            images[row] = torch.from_numpy(np.array(resized)).permute(2, 0, 1)
        return images

    def resize(self, images: Tensor) -> Tensor:
        """(n, 3, h, w) uint8 -> (n, 3, size, size) uint8."""
        shape = (self.size, self.size)
        if images.shape[-2:] == shape:
            return images
        parts = []
        for part in images.split(256):  # an image in floats takes four times the memory
            floats = F.interpolate(
                part.float(), shape, mode="bicubic", antialias=True, align_corners=False
            )
            parts.append(floats.round_().clamp_(0, 255).to(torch.uint8))
        return torch.cat(parts)


@dataclass(frozen=True)
class Tokens:
    """A language model's: token ids, at most ``longest`` a text."""

    reads: ClassVar[Modality] = "texts"
    tokenizer: PreTrainedTokenizerBase
    longest: int

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(n, l) token ids, padded on the right to the longest text."""
        encoded = self.tokenizer(
            list(texts),
            return_tensors="pt",
            padding="longest",
            truncation=True,
            max_length=self.longest,
            padding_side="right",
        )
        return encoded.input_ids


@dataclass(frozen=True)
class Words:
    """No model's: the words of whole texts, two letters or more, in small letters, each as a number
    that is its hash.
    """

    reads: ClassVar[Modality] = "texts"

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(n, l) numbers of words, and ``NO_WORD`` behind a text's end."""
        rows = [
            torch.tensor([_number(word) for word in _WORD.findall(text.lower())], dtype=torch.int64)
            for text in texts
        ]
        return pad_sequence(rows, batch_first=True, padding_value=NO_WORD)


NO_WORD = -1
_WORD = re.compile(r"\b\w\w+\b")  # as scikit-learn takes texts to pieces


def _number(word: str) -> int:
    """A number of 63 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) >> 1


Encoding = Pixels | Tokens | Words
