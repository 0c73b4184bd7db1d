"""Departures from the paper: the settings that differ from its values, every choice that it leaves
open, and the checkpoints.

Of a setting its field says what the paper leaves open.

Two users with different models in the paper may have one checkpoint here, and are then less unlike
each other than the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from fedmuscle_lib.fedmuscle.settings import BY_TASK, Settings
from fedmuscle_lib.fedmuscle.setups import SETUPS, User
from fedmuscle_lib.report.provenance import Sentences
from fedmuscle_lib.runs.history import History

_DELTA = {
    "setting": "Δ",
    "ours": "the mean of each seed's Δ (column delta)",
    "paper": (
        "Δ of the cells' means (column delta_of_means), which gives the printed values but for"
        " Table 1's two of FedHeNN and Table 2's"
    ),
}
# Choices that the paper leaves open and that are no settings: what, and ours.
_CHOICES = {
    "projection": "one linear layer, then normalised",
    "dropout": "none, in heads and backbones",
    "augmentation of public data": "what an algorithm's authors have",
    "schedule of the learning rate": "none",
    "AdamW's moments": "kept from round to round",
    "threshold of F1": "a probability of 0.5",
    "batch norm of backbones": "frozen, with the statistics of the pretraining",
    "samples of the data sets": "those that data_prep draws",
}
# What the cards of checkpoints say of texts that are also users' or public here.
_HAS_READ = dict.fromkeys(
    ("minilm-l3", "minilm-l6"),
    "captions of COCO and Flickr30k, and texts of Yahoo! Answers without their classes",
)


def departures(histories: Sequence[History]) -> pd.DataFrame:
    """Return what differs from the paper's values, and what the paper leaves open, whether or not
    it is our default: setting, ours, paper.

    Where only some arms have a value, they are named behind it.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for history in histories:
        for row in (*_of_settings(history.settings), *_of_checkpoints(history.settings)):
            found.setdefault(row, []).append(history.arm)
    rows = []
    for (name, ours, paper), arms in found.items():
        which = "" if len(arms) == len(histories) else f" ({'; '.join(dict.fromkeys(arms))})"
        rows.append({"setting": name, "ours": ours + which, "paper": paper})
    rows += [{"setting": name, "ours": ours, "paper": "open"} for name, ours in _CHOICES.items()]
    return Sentences([*rows, _DELTA], columns=["setting", "ours", "paper"])


def _of_settings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    for name, field in Settings.model_fields.items():
        ours, paper, about = _ours(settings, name), field.default, settings.about(name)
        if name == "train_samples":
            paper = {
                user.task: user.train_samples
                for user in SETUPS[settings.setup]
                if user.task in ours
            }
        departs = ours != paper and name not in {
            "setup",
            *settings.aside(),
        }  # a table's note names the setup
        if about["open"] or departs:
            yield name, _listed(ours), about["open"] or about.get("paper", _listed(paper))


def _ours(settings: Settings, name: str) -> Any:
    """A setting's value as the run's users and its algorithm have it."""
    value = getattr(settings, name)
    match name:
        case "backbones":
            return {user.model: value[user.model] for user in settings.members}
        case "options":
            return {
                option: one
                for option, one in value.items()
                if option.startswith(f"{settings.algorithm}.")
            }
        case "own":
            return {f"user {number}": data.folder for number, data in value.items()}
        case "train_samples":
            return settings.own_train_samples
        case "users" if len(settings.members) == len(SETUPS[settings.setup]):
            return None
        case "public_batch_size":
            return settings.public_batch
    if name in BY_TASK:
        by_task = {user.task: settings.of(user, name) for user in settings.members}
        return by_task if len(set(by_task.values())) > 1 else next(iter(by_task.values()))
    return value


def sharing(settings: Settings) -> dict[str, list[User]]:
    """The users whose checkpoint a user with another model has too, by checkpoint."""
    users: dict[str, list[User]] = {}
    for user in settings.members:
        users.setdefault(settings.backbones[user.model], []).append(user)
    return {
        checkpoint: those
        for checkpoint, those in users.items()
        if len({user.model for user in those}) > 1
    }


def _of_checkpoints(settings: Settings) -> Iterator[tuple[str, str, str]]:
    for checkpoint, users in sharing(settings).items():
        yield (
            f"checkpoint of users {', '.join(str(user.number) for user in users)}",
            checkpoint,
            ", ".join(user.model for user in users),
        )
    for checkpoint in dict.fromkeys(settings.backbones[user.model] for user in settings.members):
        if checkpoint in _HAS_READ:
            yield (
                f"pretraining of {checkpoint}",
                f"has read {_HAS_READ[checkpoint]}",
                "no such texts",
            )


def _listed(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}: {v}" for k, v in value.items())
    return str(round(value, 9) if isinstance(value, float) else value)  # 0.75 x 0.05 is 0.0375
