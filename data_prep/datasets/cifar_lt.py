"""CIFAR-10 and CIFAR-100 for long-tailed federations: the whole balanced sets. A run draws its long tail from its own settings."""

from __future__ import annotations

from dataclasses import replace

from data_prep.datasets import cifar
from data_prep.datasets.partition import PER_CLASS, SEED, of_each_class
from data_prep.io.build import Place, Run
from data_prep.io.entry import SourceError
from data_prep.io.writers import labelled, write_arrays, write_classes

_EDITIONS = {f"{name}-lt": edition for name, edition in cifar.EDITIONS.items()}
ENTRIES = tuple(
    replace(
        entry,
        name=f"{entry.name}-lt",
        title=f"{entry.title.partition(':')[0]}: the whole set, of which a long-tailed federation draws its own.",
        takes=(SEED, PER_CLASS),
    )
    for entry in cifar.ENTRIES
)


def places(name: str, options: dict) -> tuple[Place, ...]:
    return (Place(labelled(name.replace("-", "_"))),)


def write(run: Run) -> None:
    """Raises SourceError if a batch, or the file of the classes' names, is missing or malformed."""
    edition = _EDITIONS[run.entry.name]
    images, labels, names = cifar.content(run, edition)
    if not names:
        raise SourceError(f"{run.entry.archives[0].name}: lacks {edition.meta}, which names the classes")
    write_classes(run.folder, names)
    for split, of_split in labels.items():
        rows = of_each_class(split, of_split, run)
        write_arrays(run.folder, split, images[split][rows], of_split[rows])
