"""Where runs depart from the paper: the settings that differ from its values or that it does not state, and the checkpoints.

Two users with different models in the paper may have one checkpoint here, and are then less unlike each other than the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from fedmuscle_lib.fedmuscle.arms import arm
from fedmuscle_lib.fedmuscle.settings import BY_TASK, Settings
from fedmuscle_lib.fedmuscle.setups import SETUPS, User
from fedmuscle_lib.runs.history import History

# What the paper leaves open; the settings' descriptions say why ours is what it is.
_NOT_STATED = {
    "head_hidden",
    "head_on",
    "pooled_stages",
    "lora_alpha",
    "lora_layers",
    "lora_blocks",
    "image_size",
    "mask_size",
    "text_length",
    "weight_decay",
    "options",
    "precision",
}
# Open questions on which the paper's own tables give a hint: what is known, and our default. Every departures.csv lists them.
_OPEN = {
    "order": "open: Algorithm 1 aligns last, as does our default; Table 8's Δ at R = 1, +5.7 to +12.8, speaks against it",
    "refit": "open: when in a round a model is evaluated; our default: after each phase, as it is",
    "optimisers": 'open: "the AdamW optimizer" is one or two; our default: one for local steps, one for the alignment',
    "pooling": "open; our default: the mean over patches, positions or tokens",
    "public_batch_size": "open: whether local batches have B samples too; our default: both have. Table 5's costs come out with 20",
    "local_draw": "open: the original README expects fixed files; our default: each seed draws from the user's, evenly over classes",
    "backbones": "open: which ViT-Base; `paper` uses the one with 32 px patches, whose cost matches Table 1's 29 TFLOP (16 px: 37)",
}
_EPOCHS = Settings.model_fields["rounds"].default * Settings.model_fields["local_epochs"].default  # of each user in the whole run
_DELTA = {
    "setting": "Δ",
    "ours": "the mean of each seed's Δ (column delta)",
    "paper": "Δ of the cells' means (column delta_of_means), which gives the printed values but for Table 1's two of FedHeNN and Table 2's",
}
# Settings that say what is compared, where things lie and how they travel, rather than how the paper's numbers came about.
NO_DEPARTURE = {"algorithm", "public", "profile", "protocol", "seed", "data_dir", "models_path", "device", "threads", "reply"}
NO_DEPARTURE |= {"evaluate_every", "root_train_image_folder", "root_val_image_folder"}
# What the cards of checkpoints say of texts that are also users' or public here.
_HAS_READ = dict.fromkeys(("minilm-l3", "minilm-l6"), "captions of COCO and Flickr30k, and texts of Yahoo! Answers without their classes")


def departures(histories: Sequence[History]) -> pd.DataFrame:
    """What differs from the paper's values, or is not stated there and not our default, and what the paper leaves open and its tables
    bear on, whether or not it is our default: setting, ours, paper.

    Where only some arms have a value, they are named behind it.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for history in histories:
        settings = history.settings
        for name, field in Settings.model_fields.items():
            ours, paper = getattr(settings, name), field.get_default(call_default_factory=True)
            if name in BY_TASK:
                by_task = {user.task: settings.of(user, name) for user in settings.members}
                ours = by_task if len(set(by_task.values())) > 1 else next(iter(by_task.values()))
            if name == "backbones":
                ours = {user.model: ours[user.model] for user in settings.members}
            if name == "options":
                ours = {option: value for option, value in ours.items() if option.startswith(f"{settings.algorithm}.")}
            if name == "train_samples":
                ours = settings.own_train_samples
                paper = {user.task: user.train_samples for user in SETUPS[settings.setup] if user.task in ours}
            if name == "own":
                ours = {f"user {number}": data.folder for number, data in ours.items()}
            if name == "public_batch_size":
                ours = settings.public_batch
            if name == "epochs" and ours is not None:
                paper = _EPOCHS
            if name in _OPEN or (name not in {"setup", *NO_DEPARTURE} and ours != paper):  # a table's note names the setup
                row = name, _listed(ours), _OPEN.get(name, "not stated" if name in _NOT_STATED else _listed(paper))
                found.setdefault(row, []).append(arm(history))
        for row in _of_checkpoints(settings):
            found.setdefault(row, []).append(arm(history))
    rows = []
    for (name, ours, paper), arms in found.items():
        which = "" if len(arms) == len(histories) else f" ({'; '.join(dict.fromkeys(arms))})"
        rows.append({"setting": name, "ours": ours + which, "paper": paper})
    return pd.DataFrame([*rows, _DELTA], columns=["setting", "ours", "paper"])


def sharing(settings: Settings) -> dict[str, list[User]]:
    """The users whose checkpoint a user with another model has too, by checkpoint."""
    users: dict[str, list[User]] = {}
    for user in settings.members:
        users.setdefault(settings.backbones[user.model], []).append(user)
    return {checkpoint: those for checkpoint, those in users.items() if len({user.model for user in those}) > 1}


def _of_checkpoints(settings: Settings) -> Iterator[tuple[str, str, str]]:
    for checkpoint, users in sharing(settings).items():
        yield f"checkpoint of users {', '.join(str(user.number) for user in users)}", checkpoint, ", ".join(user.model for user in users)
    for checkpoint in dict.fromkeys(settings.backbones[user.model] for user in settings.members):
        if checkpoint in _HAS_READ:
            yield f"pretraining of {checkpoint}", f"has read {_HAS_READ[checkpoint]}", "no such texts"


def _listed(value: Any) -> str:
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
