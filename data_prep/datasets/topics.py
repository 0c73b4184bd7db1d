"""Yahoo! Answers topics and AG's News: the TC users, from the CSV archives of Zhang, Zhao and LeCun (2015)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from data_prep.datasets.catalogue import described
from data_prep.datasets.partition import division
from data_prep.io.archives import opened
from data_prep.io.build import Run
from data_prep.io.entry import Entry, SourceError
from data_prep.io.writers import write_texts

ENTRIES = tuple(described(name) for name in ("yahoo", "ag-news"))
csv.field_size_limit(1 << 24)  # an answer may be longer than the module's 128 KiB


def write(run: Run) -> None:
    """Write the data set of a run.

    Raises:
        SourceError: a file is missing, or a row is not a class and its texts.
    """
    path = run.archive(run.entry.archives[0])
    # twice through the archive, so that 1.4 million texts are never in memory at once
    labels: dict[str, list[int]] = {"train": [], "test": []}
    for split, _, label, _ in _rows(run.entry, path):
        labels[split].append(label)
    if empty := [split for split, found in labels.items() if not found]:
        raise SourceError(f"{path}: no rows of {empty[0]}.csv")
    run.found = {split: len(found) for split, found in labels.items()}
    train, test = (np.array(labels[split]) for split in ("train", "test"))
    parts = division("TC", train, test, run.options, run.rng())
    run.sizes += parts.sizes
    wanted = {"train": set(np.concatenate([*parts.train, *parts.val]).tolist()), "test": set(np.concatenate(parts.test).tolist())}
    texts = {(split, row): _text(run.entry, fields) for split, row, _, fields in _rows(run.entry, path) if row in wanted[split]}
    for user, split, chosen in parts.users():
        rows = chosen.tolist()
        write_texts(run.folder / f"{user}.pkl", [texts[split, row] for row in rows], [labels[split][row] for row in rows])


def excerpt(entry: Entry, path: Path, most: dict[str, int]) -> dict[str, list[tuple[int, str]]]:
    """Return label (from 0) and text of at most ``most[split]`` first rows of "train" and "test", without rows that have no text.

    Raises:
        SourceError: the archive is damaged, or a row of it is not a class and its texts.
    """
    found: dict[str, list[tuple[int, str]]] = {split: [] for split in most}
    for split, row, label, fields in _rows(entry, path):
        if row < most[split] and (text := _text(entry, fields)):
            found[split].append((label, text))
    return found


def _rows(entry: Entry, path: Path) -> Iterator[tuple[str, int, int, list[str]]]:
    """Yield split, row, label (from 0) and texts of each row of train.csv and test.csv."""
    with opened(path) as members:
        for name, file in members:
            split = PurePosixPath(name).name.removesuffix(".csv")
            if split not in {"train", "test"}:
                continue
            reader = csv.reader(line.decode("utf-8") for line in file)
            try:
                for row, fields in enumerate(reader):
                    label = int(fields[0]) - 1
                    if not 0 <= label < entry.facts["classes"] or len(fields) < 2:
                        raise ValueError(f"class {fields[0]} with {len(fields) - 1} texts")
                    yield split, row, label, fields[1:]
            except (ValueError, IndexError, csv.Error) as error:  # a UnicodeDecodeError is a ValueError
                raise SourceError(f"{path}: {name}, line {reader.line_num}: not a row of the data set ({error})") from None


def _text(entry: Entry, fields: list[str]) -> str:
    """Join title, question and answer to one text.

    Yahoo's archive writes a line break as a backslash and an n. AG's News writes a backslash alone; an n behind it belongs to the
    next word.
    """
    if entry.name == "yahoo":
        fields = [field.replace("\\n", "\n") for field in fields]
    return " ".join(field.replace("\\", " ") for field in fields if field).strip()
