"""Lists of a labelled set, such as the official splits: lines that are none, that lead outside, or
whose label is no class's.
"""

from __future__ import annotations

import random
from pathlib import Path

from hostile import arrays
from hostile.kind import Case, Kind, scrambled
from PIL import Image

from data_prep.io.writers import labelled
from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.data.labelled_sets import read

FOLDER = labelled("set")


def _prepare(folder: Path) -> None:
    arrays.prepare(folder)
    (folder / FOLDER / "images/a").mkdir(parents=True)
    for n in range(3):
        Image.new("RGB", (8, 8)).save(folder / FOLDER / f"images/a/{n}.png")


def _case(draws: random.Random) -> Case:
    lines = [
        f"a/{draws.randrange(3)}.png {n % 3}" for n in range(6)
    ]  # every class has a picture, also when one line is another
    content, choice = "\n".join(lines).encode(), draws.random()
    if choice < 0.1:
        return Case(content)
    if choice < 0.15:
        return Case(draws.choice(("pipe", "device", "folder")), "no file")
    if choice < 0.5:
        return Case(scrambled(content, draws))
    labels = ("3", "-1", "1.0", "0x1", "1e0", "\u0661", "\u00b2", "9" * 20, "1" * 6000, "nan")
    outside = ("../0.png", "/etc/passwd", "a/../../0.png", "..", "a\\0.png")
    no_pictures = ("a/9.png", "a", ".", "a/0.png/b", "a" * 9999, "\x1b[2J", "a\x000.png", "\u2028")
    wrong = {
        "a label that is none": f"a/0.png {draws.choice(labels)}",
        "a name that leads outside": f"{draws.choice(outside)} 1",
        "a name of no picture": f"{draws.choice(no_pictures)} 1",
        "no label": draws.choice(("a/0.png", "", " ", "0", "a/0.png ", "x" * 99_999)),
    }
    why, lines[draws.randrange(3)] = draws.choice([*wrong.items()])
    return Case("\n".join(lines).encode("utf-8", "surrogatepass"), why)


def _read(folder: Path) -> None:
    train = read(folder, "set", 8).train
    train.samples(range(len(train)))


KIND = Kind(
    file=f"{FOLDER}/train.txt",
    prepare=_prepare,
    case=_case,
    read=_read,
    refusals=(DataError,),
)
