"""Pretrains the small profile's text backbones on a CPU core, each on texts of another data set than its users'.

They stand for the paper's BERT-Base and DistilBERT-Base (Appendix H) and for GPT-2, and are as small as the profile's ViTs. DistilBERT
has half of BERT's layers and the same tokens, as the paper's has. BERT and DistilBERT are pretrained on AG's News, since their users
classify Yahoo! Answers; GPT-2 is pretrained on Yahoo! Answers, since its user generates AG's News.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

from data_prep.datasets import CATALOGUE
from data_prep.datasets.topics import excerpt
from data_prep.pretrain.language_models import Recipe, pretrain
from data_prep.pretrain.training import public

LONGEST = 128  # tokens; the settings truncate a user's texts there
HELD_OUT = 1000  # texts of test.csv

RECIPES = {
    "bert-base": Recipe("bert", 128, 4, 4, 256, vocabulary=4000, longest=LONGEST, steps=3200, batch=8),
    "distilbert-base": Recipe("distilbert", 128, 2, 4, 256, vocabulary=4000, longest=LONGEST, steps=3200, batch=8),
    "gpt2": Recipe("gpt2", 128, 4, 4, 256, vocabulary=4000, longest=LONGEST, steps=800, lr=2e-3, batch=8),
}


@dataclass(frozen=True)
class Corpus:
    """What a backbone is pretrained on.

    Attributes:
        dataset: its name in the catalogue.
        joined: the numbers of texts that are joined to one, in turn. News have some 60 tokens: single texts would leave half of a
            model's positions untrained, and joined texts alone would never be short.
    """

    dataset: str
    joined: tuple[int, ...] = (1,)


CORPORA = dict.fromkeys(("bert-base", "distilbert-base"), Corpus("ag-news", joined=(1, 2, 3))) | {"gpt2": Corpus("yahoo")}


def make(name: str, archives: Path, out: Path, *, texts: int = 50_000, steps: int | None = None) -> dict:
    """Pretrain ``name``, save it under ``out/name``, and return its report.

    Args:
        archives: the folder of its data set's archive.
        texts: the number of texts to read at most, from the start of train.csv.
        steps: the recipe's if None.

    Raises:
        OSError: there is no archive, or the folder can't be written.
        SourceError: the archive is damaged, or not the data set's.
    """
    recipe, corpus = RECIPES[name], CORPORA[name]
    entry = CATALOGUE[corpus.dataset]
    (archive,) = entry.archives
    path = archives / archive.name
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such archive; `python -m data_prep {entry.name}` fetches it")
    train, test = excerpt(entry.name, path, {"train": texts, "test": HELD_OUT}).values()
    size = path.stat().st_size
    data = (
        f"They are of {entry.title.partition(':')[0]}: the first {len(train):,} rows of train.csv, of {len({label for label, _ in train})} "
        f"classes, and the first {len(test):,} of test.csv in `{public(path)}`"
        + (f", {' or '.join(map(str, corpus.joined))} rows a text" if len(corpus.joined) > 1 else "")
        + (f". Its {size:,} bytes are not the official {archive.bytes:,}" if size != archive.bytes else "")
        + f". The weights inherit the data's terms: {entry.terms}"
    )
    options = {"archives": public(archives), "texts": texts} | ({"steps": steps} if steps else {})
    return pretrain(
        name,
        replace(recipe, steps=steps or recipe.steps),
        list(_joined(train, corpus.joined)),
        out,
        held_out=list(_joined(test, corpus.joined)),
        world="the small profile",
        data=data,
        command=" ".join([f"python -m data_prep text-backbones {name}", *(f"--{key} {value}" for key, value in options.items())]),
        license="other",
    )


def _joined(rows: Sequence[tuple[int, str]], counts: tuple[int, ...]) -> Iterator[str]:
    left = (text for _, text in rows)
    for count in cycle(counts):
        if not (group := list(islice(left, count))):
            return
        yield " ".join(group)
