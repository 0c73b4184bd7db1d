"""Pretraining of the small profile's GPT-2 on a CPU core, on Yahoo! Answers, since its user
generates AG's News.

The profile's other text backbones are real pretrained weights, see ``pretrained``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from data_prep.datasets import CATALOGUE
from data_prep.datasets.topics import excerpt
from data_prep.pretrain.language_models import Recipe, pretrain
from data_prep.pretrain.training import RECIPES, claim, public

NAME, CORPUS = "gpt2", "yahoo"
HELD_OUT = 1000  # texts of test.csv
RECIPE = Recipe(**RECIPES["small_text"][NAME])


def make(archives: Path, out: Path, *, texts: int = 50_000, steps: int | None = None) -> dict:
    """Pretrain the GPT-2, save it under ``out/gpt2``, and return its report.

    Args:
        archives: the folder of its data set's archive.
        texts: the number of texts to read at most, from the start of train.csv.
        steps: the recipe's if None.

    Raises:
        NotOurs: ``out/gpt2`` holds something else.
        OSError: there is no archive, or the folder can't be written.
        SourceError: the archive is damaged, or not the data set's.
    """
    claim(out / NAME)
    entry = CATALOGUE[CORPUS]
    (archive,) = entry.archives
    path = archives / archive.name
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no such archive; `python -m data_prep {entry.name}` fetches it"
        )
    train, test = excerpt(entry, path, {"train": texts, "test": HELD_OUT}).values()
    size = path.stat().st_size
    data = (
        f"They are of {entry.display_name}: the first {len(train):,} rows of train.csv, of"
        f" {len({label for label, _ in train})} classes, and the first {len(test):,} of test.csv in"
        f" `{public(path)}`"
        + (
            f". Its {size:,} bytes are not the official {archive.bytes:,}"
            if size != archive.bytes
            else ""
        )
        + f". The weights inherit the data's terms: {entry.terms}"
    )
    options = {"archives": public(archives), "texts": texts} | ({"steps": steps} if steps else {})
    command = " ".join(
        [
            "python -m data_prep text-backbones",
            *(f"--{key} {value}" for key, value in options.items()),
        ]
    )
    facts = {"world": "the small profile", "data": data, "command": command, "license": "other"}
    recipe = replace(RECIPE, steps=steps or RECIPE.steps)
    return pretrain(
        NAME, recipe, [text for _, text in train], [text for _, text in test], out, facts
    )
