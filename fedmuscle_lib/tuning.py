"""Recipes of local training by task: what ``tune`` tries, how it chooses, and what it writes.

In local training every user trains alone, so one run tries a configuration for the users of all tasks at once, and another run can
confirm a different one for each task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.profiles import tuned_file, tuned_tasks
from fedmuscle_lib.runs import History, Progress, Store, run_all
from fedmuscle_lib.settings import BY_TASK, Settings, parse
from fedmuscle_lib.tasks import direction

Recipe = dict[str, Any]  # a value of each setting of BY_TASK
Tried = Mapping[str, Mapping[str, Recipe]]  # by configuration and task

_BASE: Recipe = {"head_layers": 2, "head_hidden": 64, "lora_layers": "linear", "lora_blocks": "last", "lr": 1e-3, "epochs": 40}
# What is tried beside the profile's fixed recipe: a base, changes of one thing, and two of several.
CONFIGURATIONS: dict[str, Recipe] = {
    "base": _BASE,
    "wide head": _BASE | {"head_hidden": 1024},
    "linear head": _BASE | {"head_layers": 1},
    "no LoRA": _BASE | {"lora_blocks": "none"},
    "LoRA in all blocks": _BASE | {"lora_blocks": "all"},
    "lr 3e-4": _BASE | {"lr": 3e-4},
    "lr 3e-3": _BASE | {"lr": 3e-3},
    "20 epochs": _BASE | {"epochs": 20},
    "100 epochs": _BASE | {"epochs": 100},
    "linear probe": _BASE | {"head_layers": 1, "lora_blocks": "none", "lr": 3e-3, "epochs": 100},
    "lr 3e-4, 100 epochs": _BASE | {"lr": 3e-4, "epochs": 100},
}
FIXED = "fixed"
_LENGTHS = (20, 40, 150)  # epochs of the fixed recipe, for comparison
SEEDS = (100, 101, 102)  # development seeds
SPLIT = "validation"
_FINALISTS = 2


def tune(
    settings: Settings,
    seeds: Sequence[int] = SEEDS,
    configurations: Mapping[str, Recipe] = CONFIGURATIONS,
    progress: Progress | None = None,
    store: Store | None = None,
) -> pd.DataFrame:
    """Choose a recipe of local training for each task of the users, by the validation split.

    The first seed tries all configurations and the fixed recipe, the other seeds the best two of each task. A task gets the one with the
    best mean over seeds and users; the earlier one if two are equal. A configuration's score is the plain mean of the metric.

    Args:
        settings: the fixed recipe, and everything that is not tuned; algorithm, split and evaluation are set here.
        seeds: development seeds.
        configurations: what is tried beside the fixed recipe, by name.
        progress, store: as :func:`run_all` takes them.

    Returns:
        One row a configuration, task and seed: task, configuration, the settings of BY_TASK, seed, metric, value (mean over the task's
        users), role ("candidate", or "comparison" for the fixed recipe at other lengths), chosen.

    Raises:
        DataError, OSError, ValueError, NotStored: as :func:`run_all`.
    """
    base = settings.model_copy(update={"algorithm": "local", "evaluate_on": SPLIT, "evaluate_every": settings.rounds})
    fixed = {user.task: _fixed(base, user.number) for user in base.members}
    candidates = {name: recipes for name, recipe in configurations.items() if (recipes := dict.fromkeys(fixed, recipe)) != fixed}
    candidates = {FIXED: fixed} | candidates
    lengths = {f"{FIXED}, {n} epochs": {task: recipe | {"epochs": n} for task, recipe in fixed.items()} for n in _LENGTHS}
    first, *others = seeds
    trials = [(dict.fromkeys(fixed, name), first) for name in candidates | lengths]
    rows = _measured(base, candidates | lengths, trials, progress, store)
    rows["role"] = rows.configuration.map(lambda name: "comparison" if name in lengths else "candidate")

    best = {task: _ranked(rows[(rows.task == task) & (rows.role == "candidate")])[:_FINALISTS] for task in fixed}
    finals = [({task: names[place] for task, names in best.items()}, seed) for seed in others for place in range(len(best[min(best)]))]
    confirmed = _measured(base, candidates, finals, progress, store).assign(role="candidate")
    rows = pd.concat([rows, confirmed], ignore_index=True)
    for task, names in best.items():
        final = rows[(rows.task == task) & rows.configuration.isin(names)]
        rows.loc[(rows.task == task) & (rows.configuration == _ranked(final)[0]), "chosen"] = True
    return rows.assign(chosen=rows.chosen.fillna(False).astype(bool))


def _fixed(settings: Settings, number: int) -> Recipe:
    (user,) = (user for user in settings.members if user.number == number)
    return {name: settings.of(user, name) for name in BY_TASK} | {"epochs": settings.epochs_after(settings.rounds, user)}
