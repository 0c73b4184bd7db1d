"""CIFAR-10 and CIFAR-100, from the official Python archives: the IC10 and IC100 users, public
images, and pools of the non-IID setting.

``cifar10-lt`` and ``cifar100-lt`` are the whole balanced sets, of which a long-tailed federation's
run draws its own from its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from data_prep.datasets.catalogue import OPTIONS, described
from data_prep.datasets.partition import SEED, division, of_each_class, pool_of
from data_prep.io.archives import needed
from data_prep.io.build import Run
from data_prep.io.entry import SourceError
from data_prep.io.writers import labelled, write_arrays, write_classes, write_images, write_pickle
from fedmuscle_lib.data.pickles import parse_pickle

_USERS = (described("cifar10"), described("cifar100"))
_POOLS = tuple(map(pool_of, _USERS))
ENTRIES = (*_USERS, *_POOLS) + tuple(
    replace(
        entry,
        name=f"{entry.name}-lt",
        title=(
            f"{entry.display_name}: the whole set, of which a long-tailed federation draws its own."
        ),
        folder=labelled(f"{entry.name}_lt"),
        takes=(SEED, OPTIONS["per_class"]),
    )
    for entry in _USERS
)


def write(run: Run) -> None:
    """Write the data set of a run; raises SourceError or DataError if a batch or the names of the
    classes are missing or malformed.
    """
    images, labels, names = _content(run)
    if run.entry in (*_USERS, *_POOLS):
        parts = division(
            run.entry.facts["task"], labels["train"], labels["test"], run.options, run.rng()
        )
        run.sizes += parts.sizes
        for user, split, rows in parts.users():
            write_pickle(run.folder / f"{user}.pkl", images[split][rows], labels[split][rows])
        if run.entry in _USERS:
            write_images(run.folder / "public", images["train"][parts.public])
        return
    if not names:
        raise SourceError(
            f"{run.entry.archives[0].name}: lacks {run.entry.facts['meta']}, which names the"
            " classes"
        )
    write_classes(run.folder, names)
    for split, of_split in labels.items():
        rows = of_each_class(split, of_split, run)
        write_arrays(run.folder, split, images[split][rows], of_split[rows])


def _content(run: Run) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], tuple[str, ...]]:
    """Read the archive of the run, and count what it holds.

    Returns:
        Images (n, 32, 32, 3) uint8 and labels (n,) by split, ``train`` and ``test``; and the names
        of the classes, none if it lacks them.
    """
    facts, path = run.entry.facts, run.archive(run.entry.archives[0])
    files = needed(path, {*facts["train"], *facts["test"]}, optional={facts["meta"]})
    names = _names(*files[facts["meta"]], facts) if facts["meta"] in files else ()
    batches = {
        split: [_batch(*files[name], facts) for name in facts[split]] for split in ("train", "test")
    }
    images, labels = (
        {split: np.concatenate([batch[i] for batch in own]) for split, own in batches.items()}
        for i in (0, 1)
    )
    run.found = {split: len(found) for split, found in labels.items()}
    return images, labels, names


def _names(pickled: bytes, name: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the classes."""
    names = _dict(pickled, name).get(facts["names"], ())
    if len(names) != facts["classes"]:
        raise SourceError(
            f"{name}: {facts['names']} are not the names of {facts['classes']} classes"
        )
    return tuple(n.decode("latin1") if isinstance(n, bytes) else n for n in names)


def _batch(pickled: bytes, name: str, facts: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, 32, 32, 3) uint8 and labels (n,) of a batch."""
    batch, key = _dict(pickled, name), facts["labels"]
    if not {"data", key} <= batch.keys():
        raise SourceError(f"{name}: lacks data or {key}: another file")
    data, labels = np.asarray(batch["data"]), np.asarray(batch[key])
    if data.dtype != np.uint8 or data.shape != (len(labels), 3072):
        raise SourceError(
            f"{name}: data is {data.dtype} {data.shape} for {len(labels)} {key}, not uint8"
            " (n, 3072)"
        )
    if labels.min() < 0 or labels.max() >= facts["classes"]:
        raise SourceError(
            f"{name}: {key} from {labels.min()} to {labels.max()}, not from 0 to"
            f" {facts['classes'] - 1}"
        )
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels


def _dict(pickled: bytes, name: str) -> dict:
    """Return a pickled dict, whose keys may be strings or byte strings."""
    return {
        k.decode("latin1") if isinstance(k, bytes) else k: v
        for k, v in parse_pickle(pickled, name).items()
    }
