"""The vocabulary of the embedded world: printed glyphs and handwritten digits, and who may see
which.

This module rules out two kinds of leakage for everything that draws images:

* **classes**: no upstream class, which the backbones are pretrained on, is a downstream class or
  looks like a digit;
* **instances**: a glyph's sixteen fonts, and a digit's handwritten examples, are divided between
  train, validation, test and public images, so that no drawing of a class occurs in two of them.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.ft2font import FT2Font
from sklearn.datasets import load_digits
from torch.nn import functional as F

SIDE = 28  # pixels of a mask; its longest side fills 24 of them
SPLITS = ("train", "validation", "test", "public")
N_IC100, N_UPSTREAM = 100, 460
N_MLC = 20  # ten of the IC100 classes and the ten digits

_FAMILIES = (
    ("DejaVuSans", ("", "-Bold", "-Oblique", "-BoldOblique")),
    ("DejaVuSansMono", ("", "-Bold", "-Oblique", "-BoldOblique")),
    ("DejaVuSerif", ("", "-Bold", "-Italic", "-BoldItalic")),
    ("STIXGeneral", ("", "Bol", "Italic", "BolIta")),
)
_BLOCKS = (
    (0x21, 0x7E), (0xA1, 0x24F), (0x370, 0x45F), (0x2190, 0x22FF),
    (0x2500, 0x27BF), (0x2900, 0x2B1F), (0x531, 0x587), (0x10D0, 0x10FA),
)  # fmt: skip
# correlation with a printed digit, in any two fonts, at which a glyph is dropped
_DIGIT_LOOKALIKE = 0.75
_SAME_GLYPH = 0.85  # correlation with a kept glyph, in any one font, at which a glyph is its double
# correlation at which two fonts share a drawing; a downstream class has none such in two splits
_SAME_DRAWING = 0.98
_DIGIT_SHARES = {
    "train": (0.0, 0.30),
    "validation": (0.30, 0.45),
    "test": (0.45, 0.75),
    "public": (0.75, 1.0),
}


@dataclass(frozen=True)
class Vocabulary:
    """Masks of every class, and the division of classes and instances.

    Attributes:
        masks: ``(n_masks, SIDE, SIDE)`` float64 in [0, 1].
        instances: ``instances[split][c]`` lists the rows of ``masks`` that may draw class ``c`` in
            that split; class ids are 0-99 for IC100, 100-109 for the digits 0-9, and 110 on for
            upstream classes, which exist in the split "upstream".
        names: a printable name for each class.
    """

    masks: torch.Tensor
    instances: dict[str, dict[int, np.ndarray]]
    names: dict[int, str]

    ic100 = tuple(range(N_IC100))
    digits = tuple(range(N_IC100, N_IC100 + 10))
    upstream = tuple(range(N_IC100 + 10, N_IC100 + 10 + N_UPSTREAM))
    mlc = tuple(range(N_MLC - 10)) + digits


def _font(family: int, style: int) -> FT2Font:
    stem, styles = _FAMILIES[family]
    return FT2Font(
        str(Path(matplotlib.get_data_path()) / "fonts/ttf" / f"{stem}{styles[style]}.ttf")
    )


def _draw(font: FT2Font, char: str) -> np.ndarray | None:
    """Return the glyph as a ``(SIDE, SIDE)`` mask, or None if the font lacks it or it is too thin
    to tell from a stroke.
    """
    if font.get_char_index(ord(char)) == 0:
        return None
    font.clear()
    font.set_size(48, 72)
    font.set_text(char)
    font.draw_glyphs_to_bitmap(antialiased=True)
    image = np.asarray(font.get_image(), dtype=np.float64) / 255
    rows, cols = np.flatnonzero(image.max(1) > 0.1), np.flatnonzero(image.max(0) > 0.1)
    if len(rows) < 10 or len(cols) < 10:
        return None
    image = image[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1]
    return _fit(torch.from_numpy(image), "area")


def _fit(image: torch.Tensor, mode: str) -> np.ndarray:
    scale = 24 / max(image.shape)
    size = [max(1, round(s * scale)) for s in image.shape]
    small = F.interpolate(image[None, None], size=size, mode=mode)[0, 0].clamp(0, 1)
    top, left = (SIDE - size[0]) // 2, (SIDE - size[1]) // 2
    return F.pad(small, (left, SIDE - size[1] - left, top, SIDE - size[0] - top)).numpy()


def _unit(masks: np.ndarray) -> np.ndarray:
    flat = masks.reshape(len(masks), -1)
    flat = flat - flat.mean(1, keepdims=True)
    return flat / np.linalg.norm(flat, axis=1, keepdims=True)


def _printed() -> dict[str, dict[tuple[int, int], np.ndarray]]:
    """Return char -> {(family, style): mask} for each glyph of half the fonts or more that looks
    like no digit and no other glyph.
    """
    fonts = {(f, s): _font(f, s) for f in range(4) for s in range(4)}
    digits = _unit(
        np.stack(
            [
                mask
                for font in fonts.values()
                for digit in "0123456789"
                if (mask := _draw(font, digit)) is not None
            ]
        )
    )
    kept: dict[str, dict[tuple[int, int], np.ndarray]] = {}
    most = sum(last - first + 1 for first, last in _BLOCKS)
    kept_units = {
        key: np.empty((most, SIDE * SIDE), np.float64) for key in fonts
    }  # of each font the first `counts[key]` rows
    counts = dict.fromkeys(fonts, 0)
    for first, last in _BLOCKS:
        for code in range(first, last + 1):
            char = chr(code)
            name = unicodedata.name(char, "")
            if unicodedata.numeric(char, None) is not None or "EZH" in name or "YOGH" in name:
                continue
            drawn = {
                key: mask for key, font in fonts.items() if (mask := _draw(font, char)) is not None
            }
            # every split needs an own font of the class: the four splits of `_split_of` must all be
            # inhabited
            if len(drawn) < 8 or {_split_of(key) for key in drawn} != set(SPLITS):
                continue
            units = dict(zip(drawn, _unit(np.stack(list(drawn.values()))), strict=True))
            if max((digits @ unit).max() for unit in units.values()) > _DIGIT_LOOKALIKE:
                continue
            if any(
                (kept_units[key][: counts[key]] @ unit).max(initial=-1) > _SAME_GLYPH
                for key, unit in units.items()
            ):
                continue
            kept[char] = drawn
            for key, unit in units.items():
                kept_units[key][counts[key]] = unit
                counts[key] += 1
    return kept


def _split_of(key: tuple[int, int]) -> str:
    """Return the split of a font (family, style) by a Latin square: each split has each family and
    each style once.
    """
    return SPLITS[(key[0] + key[1]) % 4]


def _drawn_anew_in_every_split(drawn: dict[tuple[int, int], np.ndarray]) -> bool:
    """Return whether no two splits' fonts share a drawing, as they often do for geometric
    shapes.
    """
    units = _unit(np.stack(list(drawn.values())))
    splits = np.array([_split_of(key) for key in drawn])
    return (units @ units.T)[splits[:, None] != splits[None, :]].max() < _SAME_DRAWING


def _handwritten() -> dict[str, dict[int, list[np.ndarray]]]:
    digits = load_digits()
    out: dict[str, dict[int, list[np.ndarray]]] = {split: {} for split in SPLITS}
    for digit in range(10):
        images = torch.from_numpy(digits.images[digits.target == digit]) / 16
        big = F.interpolate(images[:, None], size=(24, 24), mode="bicubic")[:, 0]
        big = ((big - 0.35) / 0.35).clamp(0, 1)
        masks = [_fit(image, "nearest") for image in big]
        for split, (low, high) in _DIGIT_SHARES.items():
            out[split][digit] = masks[int(low * len(masks)) : int(high * len(masks))]
    return out


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """Draw the masks and divide them; all machines with the pinned matplotlib and scikit-learn
    agree.
    """
    printed = _printed()
    chars = sorted(printed)
    order = np.random.RandomState(1234).permutation(len(chars))
    varied = [
        chars[i]
        for i in order
        if len(printed[chars[i]]) >= 12 and _drawn_anew_in_every_split(printed[chars[i]])
    ]
    downstream = varied[:N_IC100]
    upstream = [chars[i] for i in order if chars[i] not in set(downstream)][:N_UPSTREAM]
    if len(upstream) < N_UPSTREAM:
        raise RuntimeError(
            f"the fonts yield {len(upstream)} upstream glyphs, {N_UPSTREAM} are needed"
        )

    masks: list[np.ndarray] = []
    instances: dict[str, dict[int, np.ndarray]] = {split: {} for split in (*SPLITS, "upstream")}
    names: dict[int, str] = {}

    def add(split: str, class_id: int, new: list[np.ndarray]) -> None:
        instances[split][class_id] = np.arange(len(masks), len(masks) + len(new))
        masks.extend(new)

    for class_id, char in enumerate(downstream):
        names[class_id] = f"U+{ord(char):04X}"
        for split in SPLITS:
            add(split, class_id, [m for key, m in printed[char].items() if _split_of(key) == split])
    for split, by_digit in _handwritten().items():
        for digit, drawn in by_digit.items():
            names[N_IC100 + digit] = f"digit {digit}"
            add(split, N_IC100 + digit, drawn)
    for class_id, char in zip(Vocabulary.upstream, upstream, strict=True):
        names[class_id] = f"U+{ord(char):04X}"
        add("upstream", class_id, list(printed[char].values()))
    return Vocabulary(torch.from_numpy(np.stack(masks)), instances, names)
