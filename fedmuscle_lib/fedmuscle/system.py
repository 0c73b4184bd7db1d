"""FedMuscle's system: from settings to a federation, and its rounds.

In the order of their imports: ``build`` (the federation), ``rounds``, ``export`` (trained users as
folders), ``arms`` (runs of a table) and ``ablations``.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.core.versions import CORE, versions
from fedmuscle_lib.data.public import PUBLIC_SETS
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.build import build, checkpoint_of
from fedmuscle_lib.fedmuscle.export import claim, save
from fedmuscle_lib.fedmuscle.rounds import Rounds
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import task_of
from fedmuscle_lib.models import checkpoint_digest
from fedmuscle_lib.runs.address import files_digest
from fedmuscle_lib.runs.system import Experiment, System, Tables
from fedmuscle_lib.tasks import TASKS, direction

# Columns of a run's tables.
#
# metrics: a row a user after each phase of an evaluated round; value is in per cent, or a
# perplexity. Phase "after_local" is after the round's local updates, "after_alignment" after its
# alignment. The last round's second phase is the literal end: the latter in Algorithm 1, the former
# where a round aligns first (setting ``order``). costs: flops of the user's training, every call
# through the whole backbone; flops_done: what ran (what training never changes ran once). losses:
# local is the mean over the last local epoch, alignment over the round's steps on public data; NaN
# where there was no such step.
TABLES: Tables = {
    "metrics": {
        "round": int,
        "phase": str,
        "user": int,
        "model": str,
        "task": str,
        "metric": str,
        "value": float,
    },
    "costs": {
        "round": int,
        "user": int,
        "uplink_bytes": int,
        "downlink_bytes": int,
        "flops": int,
        "flops_done": int,
    },
    "losses": {"round": int, "user": int, "local": float, "alignment": float},
    "measures": {"round": int, "user": int, "measure": str, "value": float},
}


# Names, which a run does not see: it sees the numbers, the users and the files.
_NAMES = {"profile", "protocol", "setup", "users", "train_samples", "backbones", "options", "own"}
# a setting that is gone, at the value of all stored runs, whose addresses hold it
_GONE = {"pooled_stages": "last"}


class _FedMuscle(System[Settings]):
    name, settings, tables = "fedmuscle", Settings, TABLES

    def key(self, settings: Settings) -> dict[str, Any]:
        """The settings that the algorithm reads, its options, who the users are, and versions."""
        algorithm, by_task = algorithms.get(settings.algorithm), settings.effective()
        unread = {name for name, value in by_task.items() if value is None}
        unread |= _NAMES | settings.places() | set(algorithm.ignores)
        # of a user's own folder a run sees the content, which is among the inputs
        users = [
            {name: value for name, value in asdict(user).items() if value is not None}
            | {"checkpoint": settings.backbones[user.model]}
            for user in settings.members
        ]
        for user in users:
            user.pop("folder", None)
        tasks = (type(TASKS[user.task]) for user in settings.members)
        return {
            "settings": settings.model_copy(update=by_task).relevant(unread) | _GONE,
            "options": algorithm.options_of(settings).model_dump(mode="json"),
            "users": users,
            "versions": {"core": str(CORE)} | versions(algorithm, *tasks),
        }

    def inputs(self, settings: Settings) -> dict[str, str]:
        """Of a checkpoint it is :func:`checkpoint_digest`; its card is not read."""
        found = {}
        for user in settings.members:
            found[f"checkpoint {settings.backbones[user.model]}"] = checkpoint_digest(
                checkpoint_of(settings, user)
            )
            task = task_of(user)
            folder = settings.data_dir / task.folder
            name = f"user {user.number}'s own" if task.own else task.folder
            for split in ("train", settings.split):
                found[f"{name}/{split}/client_{user.client}"] = files_digest(
                    folder / split, f"client_{user.client}.*", False
                )
            found[f"{name}/images"] = files_digest(folder / "images")
        for name in ("root_train_image_folder", "root_val_image_folder"):
            if (images := getattr(settings, name)) is not None:
                found[name] = files_digest(images)
        if settings.sees_public:
            public = PUBLIC_SETS[settings.public]
            found[public] = files_digest(settings.data_dir / public)
        return found

    def begin(self, settings: Settings) -> Experiment:
        return Rounds(settings)

    def per_sample(self, settings: Settings, metrics: pd.DataFrame) -> pd.Series:
        whole = metrics.value.where(
            metrics.metric.map(direction) < 0, 100
        )  # a perplexity moves by a share of itself
        samples = {c.user.number: len(c.evaluation) for c in build(settings).clients}
        return whole / metrics.user.map(samples)

    def claim(self, settings: Settings, folder: Path) -> None:
        claim(settings, folder)

    def save(self, experiment: Experiment, folder: Path) -> None:
        assert isinstance(experiment, Rounds)
        save(experiment, folder)


SYSTEM = _FedMuscle()
