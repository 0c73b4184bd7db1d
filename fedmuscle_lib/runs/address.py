"""A run's address: everything that it depends on, and nothing else.

An address has two parts. The first is what was asked for: the settings that the algorithm reads, its options, who the users are, and
the versions of the arithmetic (``fedmuscle_lib.versions``). The second is what was there: the content of data and checkpoints, and torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from fedmuscle_lib import algorithms
from fedmuscle_lib.data import PUBLIC_SETS
from fedmuscle_lib.models import architecture, checkpoint_folder, model_type
from fedmuscle_lib.settings import Settings
from fedmuscle_lib.setups import User
from fedmuscle_lib.tasks import TASKS
from fedmuscle_lib.versions import CORE, versions

SPLITS = {"test": "test", "validation": "val"}  # settings.evaluate_on -> the files' folder
# Names and places, which a run does not see: it sees the numbers, the users and the files.
_NOT_SEEN = {"profile", "protocol", "setup", "users", "train_samples", "backbones", "options"}
_NOT_SEEN |= {"data_dir", "models_path", "root_train_image_folder", "root_val_image_folder"}


@dataclass(frozen=True)
class Address:
    """Where a run is stored.

    Attributes:
        asked: hash of what was asked for.
        inputs: by name, a hash of each thing that the run reads from disk; empty for what is not there.
        torch: its version.
    """

    asked: str
    inputs: tuple[tuple[str, str], ...]
    torch: str

    def __str__(self) -> str:
        return f"{self.asked}-{_hash([self.inputs, self.torch])[:8]}"


def address_of(settings: Settings) -> Address:
    """The run's address here and now.

    Raises:
        ValueError: the algorithm is defined in no file.
    """
    return Address(_hash(asked(settings))[:16], tuple(sorted(inputs(settings).items())), torch.__version__)


def asked(settings: Settings) -> dict[str, Any]:
    """What a run is asked for, as JSON values: equal for settings that differ in nothing that the run looks at.

    A setting that was added when runs were stored already names the value at which it changes nothing, as
    ``json_schema_extra={"neutral": value}``. At this value it is left out, and the stored runs keep their addresses.
    """
    algorithm = algorithms.get(settings.algorithm)
    by_task = settings.as_seen()
    seen, unread = settings.model_copy(update=by_task), {name for name, value in by_task.items() if value is None}
    extras = {name: extra for name, field in Settings.model_fields.items() if isinstance(extra := field.json_schema_extra, dict)}
    neutral = {name for name, extra in extras.items() if "neutral" in extra and getattr(seen, name) == extra["neutral"]}
    return {
        "settings": seen.model_dump(mode="json", exclude=_NOT_SEEN | unread | neutral | set(algorithm.ignores)),
        "options": algorithm.options_of(settings).model_dump(mode="json"),
        "users": [asdict(user) | {"checkpoint": settings.backbones[user.model]} for user in settings.members],
        "versions": arithmetic(settings),
    }


def arithmetic(settings: Settings) -> dict[str, str]:
    """Versions of the core, of the run's algorithm and of its users' tasks, by name."""
    found = {"core": str(CORE)}
    for kind in (algorithms.get(settings.algorithm), *(type(TASKS[user.task]) for user in settings.members)):
        found |= versions(kind)
    return found


def checkpoint_of(settings: Settings, user: User) -> Path:
    """Where the user's checkpoint lies."""
    return checkpoint_folder(settings.models_path, settings.backbones[user.model])


def sees_public(settings: Settings) -> bool:
    """Whether the run's algorithm looks at public data."""
    return "public" not in algorithms.get(settings.algorithm).ignores


def inputs(settings: Settings) -> dict[str, str]:
    """A hash of each thing that the run reads: checkpoints, the users' files and images, and the public set if it is looked at.

    A checkpoint's is of weights, config and tokenizer, and stands with the version of its model family; its card is not read.
    """
    found = {}
    for user in settings.members:
        found[f"checkpoint {settings.backbones[user.model]}"] = _checkpoint_digest(checkpoint_of(settings, user))
        folder = TASKS[user.task].folder
        for split in ("train", SPLITS[settings.evaluate_on]):
            found[f"{folder}/{split}/client_{user.client}"] = files_digest(
                settings.data_dir / folder / split, f"client_{user.client}.*", False
            )
        found[f"{folder}/images"] = files_digest(settings.data_dir / folder / "images")
    for name in ("root_train_image_folder", "root_val_image_folder"):
        if (images := getattr(settings, name)) is not None:
            found[name] = files_digest(images)
    if sees_public(settings):
        folder = PUBLIC_SETS[settings.public]
        found[folder] = files_digest(settings.data_dir / folder)
    return found


def _checkpoint_digest(folder: Path) -> str:
    if not (folder / "config.json").exists():
        return ""
    parts = [files_digest(folder, pattern, deep=False) for pattern in ("*.json", "*.safetensors", "*.txt")]
    return _hash([parts, versions(architecture(model_type(folder)))])


def files_digest(folder: Path, pattern: str = "*", deep: bool = True) -> str:
    """A hash of names and content of the files of ``folder`` whose name fits the pattern; empty if there is none.

    Links are followed. A file is read again only when its size or time has changed. Manifests of data sets are left out: they say how
    the files were made, and the files say what they are.

    Args:
        deep: whether files of folders below count too.
    """
    found = _files(str(folder), deep)
    kept = sorted(file for file in found if fnmatch(name := os.path.basename(file[0]), pattern) and name != "manifest.json")
    return _content_digest(str(folder), tuple(kept)) if kept else ""


def _files(folder: str, deep: bool) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of each file."""
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if not deep or real in seen:  # the second is a link back to where it came from
            folders.clear()
        if real in seen:
            continue
        seen.add(real)
        for name in names:
            path = f"{place}/{name}"
            if stat.S_ISREG((status := os.stat(path)).st_mode):
                yield path, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=64)
def _content_digest(folder: str, files: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, size, _ in files:
        digest.update(f"{path.removeprefix(folder)} {size}\n".encode())
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
