"""The short runs of FedMuscle's system (see ``fedmuscle_lib.runs.short_runs``): every algorithm,
task and model family.

``python -m fedmuscle_lib.fedmuscle.fingerprints`` records what they give in
``fedmuscle_lib/fedmuscle/fingerprints.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.dependencies import checkpoint_of
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.models import architecture_of
from fedmuscle_lib.runs import short_runs
from fedmuscle_lib.tasks import TASKS

FILE = Path(__file__).with_name("fingerprints.json")
# Two users of one label space, one alone in its own, and one with MLC; three rounds, in which every
# algorithm but one does all that it does; the algorithms' own options, whatever a profile tuned,
# but some that let labels pass after so little training. An epoch is two batches of unequal size.
_EVERY_ALGORITHM = {
    "users": (2, 4, 5, 6),
    "others": 2,
    "rounds": 3,
    "local_epochs": 1,
    "public_size": 64,
    "evaluate_every": 3,
}
_EVERY_ALGORITHM |= {"train_samples": {"MLC": 40, "IC100": 40, "IC10": 40}}
_LONGER = {"pseudo_labeling": {"rounds": 6}}  # a round for each of its phases
_EAGER = {"cofed.margin": 0.05, "sage.threshold": 0.3, "sage.balanced": True, "fedhenn.samples": 16}
# A user of every kind of task and model, and the states before the last blocks, which are kept.
_EVERY_TASK = {
    "setup": "setup2_generation",
    "users": (6, 7, 9, 10, 11),
    "others": 2,
    "rounds": 1,
    "local_epochs": 1,
    "public_size": 32,
}
_EVERY_TASK |= {
    "public": "flickr30k",
    "train_samples": {"IC10": 40, "SS": 30, "TC": 40, "TG": 40},
    "lora_blocks": "last",
}


def runs(**where: Any) -> dict[str, Settings]:
    """The short runs by name; ``where`` are settings that say where data and checkpoints are."""
    shipped = short_runs.shipped(algorithms)
    every = _EVERY_ALGORITHM | {"options": short_runs.own_options(shipped) | _EAGER} | where
    found = {name: Settings(algorithm=name, **every | _LONGER.get(name, {})) for name in shipped}
    return found | {"tasks": Settings(algorithm="fedmuscle", **_EVERY_TASK, **where)}


def fingerprint(settings: Settings) -> dict[str, Any]:
    """Versions, processor, rounding, losses, metrics and bytes of a short run."""
    return short_runs.fingerprint(settings, _families(settings))


def _families(settings: Settings) -> set[type]:
    return {architecture_of(checkpoint_of(settings, user)) for user in settings.members}


def modules(**where: Any) -> list[str]:
    """Modules whose classes the short runs go through; a model family that no such run uses is not
    among them.
    """
    settings = runs(**where).values()
    classes = {algorithms.get(s.algorithm) for s in settings} | {
        type(task) for task in TASKS.values()
    }
    return short_runs.modules_of(classes.union(*map(_families, settings)))


if __name__ == "__main__":
    short_runs.record(FILE, runs(), fingerprint, modules())
