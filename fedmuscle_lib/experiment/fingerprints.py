"""Fingerprints: what short runs of every algorithm, task and model family give, by which a changed arithmetic is noticed.

``python -m fedmuscle_lib.experiment.fingerprints`` records them in ``fedmuscle_lib/fingerprints.json``, after a version was raised or an
algorithm was added. ``tests/experiment/test_fingerprints.py`` compares. docs/results.md says what could still slip through.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fedmuscle_lib import algorithms
from fedmuscle_lib.experiment.asked import arithmetic, checkpoint_of
from fedmuscle_lib.models import architecture, model_type
from fedmuscle_lib.runs.progress import Tick
from fedmuscle_lib.runs.store import Record
from fedmuscle_lib.runs.train import train
from fedmuscle_lib.settings import Settings
from fedmuscle_lib.tasks import TASKS
from fedmuscle_lib.versions import FINGERPRINTS, PACKAGE, Versioned, versions

# Two users of one label space, one alone in its own, and one with MLC; three rounds, in which every algorithm but one does all that it
# does; the algorithms' own options, whatever a profile tuned, but some that let labels pass after so little training.
_EVERY_ALGORITHM = {"users": (2, 4, 5, 6), "others": 2, "rounds": 3, "local_epochs": 1, "public_size": 64, "evaluate_every": 3}
_LONGER = {"pseudo_labeling": {"rounds": 6}}  # a round for each of its phases
_EAGER = {"cofed.margin": 0.05, "sage.threshold": 0.3, "sage.balanced": True, "fedhenn.samples": 16}
# A user of every kind of task and model.
_EVERY_TASK = {"setup": "setup2_generation", "users": (6, 7, 9, 10, 11), "others": 2, "rounds": 1, "local_epochs": 1, "public_size": 32}
_EVERY_TASK |= {"public": "flickr30k", "train_samples": {"SS": 30}}


def runs(**where: Any) -> dict[str, Settings]:
    """The short runs by name; ``where`` are settings that say where data and checkpoints are."""
    every = {name: _EVERY_ALGORITHM | _LONGER.get(name, {}) | where for name in _shipped()}
    options = {name: algorithms.get(name).named(algorithms.get(name).Options()) | _EAGER for name in every}
    found = {name: Settings(algorithm=name, options=options[name], **given) for name, given in every.items()}
    return found | {"tasks": Settings(algorithm="fedmuscle", **_EVERY_TASK, **where)}


def _shipped() -> list[str]:
    """Algorithms of the library's own folder; what a test or a user has put elsewhere is not among them."""
    files = {name: sys.modules[algorithms.get(name).__module__].__file__ or "" for name in algorithms.names()}
    return [name for name, file in files.items() if Path(file).parent == PACKAGE / "algorithms"]


def fingerprint(settings: Settings) -> dict[str, Any]:
    """Versions, losses and metrics of a short run."""
    record = train(settings, _Nobody())
    losses = record.tables["losses"]
    return {
        "versions": _versions(settings),
        "processor": record.provenance["processor"],
        "losses": losses[["local", "alignment"]].astype(object).where(losses[["local", "alignment"]].notna(), None).to_numpy().tolist(),
        "metrics": _metrics(record),
        "bytes": int(record.tables["costs"][["uplink_bytes", "downlink_bytes"]].to_numpy().sum()),
    }


def _metrics(record: Record) -> list[float]:
    return record.tables["metrics"].value.tolist()


def _versions(settings: Settings) -> dict[str, str]:
    found = arithmetic(settings)
    for family in _families(settings):
        found |= versions(family)
    return dict(sorted((name, version.partition(" ")[0]) for name, version in found.items()))


def _families(settings: Settings) -> set[type]:
    return {architecture(model_type(checkpoint_of(settings, user))) for user in settings.members}


def modules(**where: Any) -> list[str]:
    """Modules whose classes the short runs go through; a model family that no such run uses is not among them."""
    settings = runs(**where).values()
    classes = {algorithms.get(s.algorithm) for s in settings} | {type(task) for task in TASKS.values()}
    classes |= set().union(*map(_families, settings))
    names = {base.__module__ for each in classes for base in each.__mro__ if base.__module__.startswith("fedmuscle_lib.")}
    return sorted(names - {Versioned.__module__})


class _Nobody:
    """To whom a short run speaks."""

    def tick(self, tick: Tick) -> None: ...

    def keep(self, checkpoint: bytes) -> None: ...

    def last(self) -> bytes | None:
        return None

    def discard(self, why: str) -> None: ...


def record(path: Path = FINGERPRINTS) -> None:
    """Compute every fingerprint and write the file."""
    found = {}
    for name, settings in runs().items():
        print(f"{name} ...", flush=True)
        found[name] = fingerprint(settings)
    path.write_text(json.dumps({"modules": modules(), "fingerprints": found}, indent=1) + "\n", encoding="utf8")


if __name__ == "__main__":
    record()
