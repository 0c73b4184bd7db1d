"""The captions of a public set: texts that are none, too long or missing, and scrambled bytes."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
from hostile.kind import Case, Kind, scrambled

from data_prep.io.writers import write_images
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.encodings import Words
from fedmuscle_lib.data.public import read_public

N = 3


def _prepare(folder: Path) -> None:
    write_images(folder / "images", np.zeros((N, 8, 8, 3), np.uint8))


def _case(draws: random.Random) -> Case:
    captions: dict[object, object] = {
        f"{i:06d}.png": [f"caption {draws.randrange(100)} of it"] for i in range(N)
    }
    choice = draws.random()
    if choice < 0.1:
        return Case(pickle.dumps(captions, draws.randint(2, 5)))
    if choice < 0.5:
        return Case(scrambled(pickle.dumps(captions, draws.randint(2, 5)), draws))
    name = f"{draws.randrange(N):06d}.png"
    bad = {
        "no caption": [],
        "an empty caption": ["  "],
        "a caption of another type": [
            draws.choice((7, None, b"bytes", ("a",), np.zeros(3), np.float64(1)))
        ],
        "a caption that is a dict": {"a": "b"},
        "half a character": [f"a {chr(draws.randrange(0xD800, 0xE000))} word"],
        "a long caption": ["a word " * draws.choice((2_000, 300_000))],
        "a caption of many lines, none of them a text": np.array(["a\n" * 1000] * 10),
    }
    why, captions[name] = draws.choice([*bad.items()])
    if draws.random() < 0.1:
        why, captions = (
            "a picture without a caption",
            {key: value for key, value in captions.items() if key != name},
        )
    return Case(pickle.dumps(captions, draws.randint(2, 5)), why)


KIND = Kind(
    file="image_file_name_to_caption.pkl",
    prepare=_prepare,
    case=_case,
    read=lambda folder: read_public(folder, N, Words()),
    refusals=(DataError,),
)
