"""Where runs depart from the paper: the settings that differ from its values, or that it does not state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fedmuscle_lib.report.arms import History, arm
from fedmuscle_lib.settings import Settings
from fedmuscle_lib.setups import SETUPS

# What the paper leaves open; the settings' descriptions say why ours is what it is.
_NOT_STATED = {
    "head_hidden",
    "head_on",
    "pooled_stages",
    "lora_alpha",
    "lora_layers",
    "lora_blocks",
    "weight_decay",
    "options",
    "backbones",
    "precision",
}
# Settings that say what is compared, where things lie and how they travel, rather than how the paper's numbers came about.
NO_DEPARTURE = {"algorithm", "public", "profile", "seed", "data_dir", "models_path", "device", "threads", "reply", "evaluate_every"}
NO_DEPARTURE |= {"root_train_image_folder", "root_val_image_folder"}


def departures(histories: Sequence[History]) -> pd.DataFrame:
    """What differs from the paper's values, or is not stated there and not our default: setting, ours, paper.

    Where only some arms differ, they are named behind the value.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for history in histories:
        settings = history.settings
        for name, field in Settings.model_fields.items():
            ours, paper = getattr(settings, name), field.get_default(call_default_factory=True)
            if name == "train_samples":
                ours = settings.own_train_samples
                paper = {user.task: user.train_samples for user in SETUPS[settings.setup] if user.task in ours}
            if name not in {"setup", *NO_DEPARTURE} and ours != paper:  # a table's note names the setup
                row = name, _listed(ours), "not stated" if name in _NOT_STATED else _listed(paper)
                found.setdefault(row, []).append(arm(history))
    rows = []
    for (name, ours, paper), arms in found.items():
        which = "" if len(arms) == len(histories) else f" ({'; '.join(dict.fromkeys(arms))})"
        rows.append({"setting": name, "ours": ours + which, "paper": paper})
    return pd.DataFrame(rows, columns=["setting", "ours", "paper"])


def _listed(value: Any) -> str:
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
