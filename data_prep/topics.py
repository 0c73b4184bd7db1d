"""Yahoo! Answers topics and AG's News: the TC users, from the CSV archives of Zhang, Zhao and LeCun (2015)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from data_prep.archives import opened
from data_prep.build import Place, Run
from data_prep.catalogue import SourceError
from data_prep.layout import write_texts
from data_prep.partition import division

_CORPORA = {"yahoo": ("TC/yahoo_qa", 10), "ag-news": ("TC/ag_news", 4)}
csv.field_size_limit(1 << 24)  # an answer may be longer than the module's 128 KiB


def places(name: str, options: dict) -> tuple[Place, ...]:
    return (Place(_CORPORA[name][0]),)


def write(run: Run) -> None:
    """Raises SourceError when a file is missing, or a row is not a class and its texts."""
    folder, n_classes = _CORPORA[run.entry.name]
    path = run.archive(run.entry.archives[0])
    # twice through the archive, so that 1.4 million texts are never in memory at once
    labels: dict[str, list[int]] = {"train": [], "test": []}
    for split, _, label, _ in _rows(path, n_classes):
        labels[split].append(label)
    if empty := [split for split, found in labels.items() if not found]:
        raise SourceError(f"{path}: no rows of {empty[0]}.csv")
    run.found = {split: len(found) for split, found in labels.items()}
    train, test = (np.array(labels[split]) for split in ("train", "test"))
    parts = division("TC", train, test, run.options, run.rng())
    run.sizes += parts.sizes
    wanted = {"train": set(np.concatenate([*parts.train, *parts.val]).tolist()), "test": set(np.concatenate(parts.test).tolist())}
    texts = {(split, row): _text(run.entry.name, fields) for split, row, _, fields in _rows(path, n_classes) if row in wanted[split]}
    for split, rows, source in (("train", parts.train, "train"), ("val", parts.val, "train"), ("test", parts.test, "test")):
        for client, chosen in enumerate(rows):
            target = run.root / folder / split / f"client_{client}.pkl"
            write_texts(target, [texts[source, row] for row in chosen.tolist()], [labels[source][row] for row in chosen.tolist()])


def excerpt(name: str, path: Path, most: dict[str, int]) -> dict[str, list[tuple[int, str]]]:
    """Label from 0 and text of the first rows of "train" and of "test", at most so many; rows without a text are left out.

    Raises:
        SourceError: the archive is damaged, or a row of it is not a class and its texts.
    """
    found: dict[str, list[tuple[int, str]]] = {split: [] for split in most}
    for split, row, label, fields in _rows(path, _CORPORA[name][1]):
        if row < most[split] and (text := _text(name, fields)):
            found[split].append((label, text))
    return found


def _rows(path: Path, n_classes: int) -> Iterator[tuple[str, int, int, list[str]]]:
    """Split, row, label from 0 and texts of every row of train.csv and test.csv."""
    with opened(path) as members:
        for name, file in members:
            split = PurePosixPath(name).name.removesuffix(".csv")
            if split not in {"train", "test"}:
                continue
            reader = csv.reader(line.decode("utf-8") for line in file)
            try:
                for row, fields in enumerate(reader):
                    label = int(fields[0]) - 1
                    if not 0 <= label < n_classes or len(fields) < 2:
                        raise ValueError(f"class {fields[0]} with {len(fields) - 1} texts")
                    yield split, row, label, fields[1:]
            except (ValueError, IndexError, csv.Error) as error:  # a UnicodeDecodeError is a ValueError
                raise SourceError(f"{path}: {name}, line {reader.line_num}: not a row of the data set ({error})") from None


def _text(name: str, fields: list[str]) -> str:
    """Title, question and answer as one text.

    Yahoo's archive writes a line break as a backslash and an n. AG's News has lost the n: its backslash alone stands for the break,
    and an n behind it begins the next word.
    """
    if name == "yahoo":
        fields = [field.replace("\\n", "\n") for field in fields]
    return " ".join(field.replace("\\", " ") for field in fields if field).strip()
