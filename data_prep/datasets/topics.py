"""Yahoo! Answers topics and AG's News: the TC users, from the CSV archives of Zhang, Zhao and LeCun
(2015).
"""

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
from fedmuscle_lib.core.errors import line_of
from fedmuscle_lib.data.client_files import text_fault

ENTRIES = tuple(described(name) for name in ("yahoo", "ag-news"))
csv.field_size_limit(1 << 24)  # an answer may be longer than the module's 128 KiB


def write(run: Run) -> None:
    """Write the data set of a run; raises SourceError if a file is missing, or a row is not a class
    and its texts.
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
    wanted = {
        "train": set(np.concatenate([*parts.train, *parts.val]).tolist()),
        "test": set(np.concatenate(parts.test).tolist()),
    }
    texts = {
        (split, row): _text(run.entry, fields)
        for split, row, _, fields in _rows(run.entry, path)
        if row in wanted[split]
    }
    # left out here, and not before the draw, which stays the same
    if unfit := {place for place, text in texts.items() if text_fault(text)}:
        note = (
            f"{len(unfit):,} rows that were drawn have no text, or one too long to be read; they"
            " are left out"
        )
        run.note(note, "rows left out: no text, or one too long", len(unfit))
    for user, split, chosen in parts.users():
        rows = [row for row in chosen.tolist() if (split, row) not in unfit]
        write_texts(
            run.folder / f"{user}.pkl",
            [texts[split, row] for row in rows],
            [labels[split][row] for row in rows],
        )


def excerpt(entry: Entry, path: Path, most: dict[str, int]) -> dict[str, list[tuple[int, str]]]:
    """Return label (from 0) and text of the first ``most[split]`` rows of a split but for the empty
    ones; raises as :func:`write`.
    """
    found: dict[str, list[tuple[int, str]]] = {split: [] for split in most}
    for split, row, label, fields in _rows(entry, path):
        if row < most[split] and (text := _text(entry, fields)):
            found[split].append((label, text))
    return found


def _rows(entry: Entry, path: Path) -> Iterator[tuple[str, int, int, list[str]]]:
    """Yield split, row, label (from 0) and texts of each row of train.csv and test.csv.

    A row is a line, since both archives escape line breaks; blank lines are skipped.
    """
    with opened(path) as members:
        for name, file in members:
            split = PurePosixPath(name).name.removesuffix(".csv")
            if split not in {"train", "test"}:
                continue
            lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
            for row, (number, line) in enumerate(lines):
                try:
                    label, fields = _row(line, entry.facts["classes"])
                except (ValueError, csv.Error) as error:
                    raise SourceError(
                        f"{path}: {name}, line {number}: not a row of the data set"
                        f" ({line_of(str(error))})"
                    ) from None
                yield split, row, label, fields


def _row(line: bytes, n_classes: int) -> tuple[int, list[str]]:
    """Return label (from 0) and texts of a line; raises ValueError or csv.Error if it is something
    else, or not UTF-8.
    """
    ((found, *fields),) = csv.reader([line.decode()], strict=True)
    label = int(found) - 1
    if not 0 <= label < n_classes or not fields:
        raise ValueError(f"class {found} with {len(fields)} texts")
    return label, fields


def _text(entry: Entry, fields: list[str]) -> str:
    """Join title, question and answer to one text.

    Yahoo's archive writes a line break as a backslash and an n. AG's News writes a backslash alone;
    an n behind it belongs to the next word.
    """
    if entry.name == "yahoo":
        fields = [field.replace("\\n", "\n") for field in fields]
    return " ".join(field.replace("\\", " ") for field in fields if field).strip()
