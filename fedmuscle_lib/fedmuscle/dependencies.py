"""Dependencies of a run of FedMuscle's system: what was asked for, and what it reads."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.versions import CORE, versions
from fedmuscle_lib.data.public import PUBLIC_SETS
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.fedmuscle.setups import User, task_of
from fedmuscle_lib.models import checkpoint_digest, checkpoint_folder
from fedmuscle_lib.runs.address import files_digest
from fedmuscle_lib.tasks import TASKS

SPLITS = {"test": "test", "validation": "val"}  # settings.evaluate_on -> the files' folder
# Names, which a run does not see: it sees the numbers, the users and the files.
_NAMES = {"profile", "protocol", "setup", "users", "train_samples", "backbones", "options", "own"}


def key(settings: Settings) -> dict[str, Any]:
    """Return a run's question: the settings that its algorithm reads, its options, who the users
    are, and versions of the arithmetic.
    """
    algorithm = algorithms.get(settings.algorithm)
    by_task = settings.effective()
    unread = {name for name, value in by_task.items() if value is None}
    effective = settings.model_copy(update=by_task)
    return {
        "settings": effective.relevant(
            _NAMES | settings.places() | unread | set(algorithm.ignores)
        ),
        "options": algorithm.options_of(settings).model_dump(mode="json"),
        "users": [
            _user(user) | {"checkpoint": settings.backbones[user.model]}
            for user in settings.members
        ],
        "versions": (
            {"core": str(CORE)}
            | versions(algorithm, *(type(TASKS[user.task]) for user in settings.members))
        ),
    }


def _user(user: User) -> dict[str, Any]:
    """Return what a run sees of a user; of its own folder the content, which is among the
    inputs.
    """
    return {
        name: value
        for name, value in asdict(user).items()
        if name != "folder" and value is not None
    }


def checkpoint_of(settings: Settings, user: User) -> Path:
    """Path of the user's checkpoint."""
    return checkpoint_folder(settings.models_path, settings.backbones[user.model])


def inputs(settings: Settings) -> dict[str, str]:
    """A hash of each thing that the run reads: checkpoints, the users' files and images, and the
    public set if it is looked at.

    Of a checkpoint it is :func:`checkpoint_digest`; its card is not read.
    """
    found = {}
    for user in settings.members:
        found[f"checkpoint {settings.backbones[user.model]}"] = checkpoint_digest(
            checkpoint_of(settings, user)
        )
        folder = settings.data_dir / task_of(user).folder
        name = task_of(user).folder if user.folder is None else f"user {user.number}'s own"
        for split in ("train", SPLITS[settings.evaluate_on]):
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
