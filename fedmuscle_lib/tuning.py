"""Hyper-parameters, compared on the validation split; the notebook ``tuning`` shows the table.

In local training every user trains alone, so one run tries a configuration for the users of all
tasks at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.fedmuscle.settings import BY_TASK, Settings, parse
from fedmuscle_lib.runs import run_all
from fedmuscle_lib.tasks import TASKS, direction

_BASE: dict[str, Any] = {
    "head_layers": 2,
    "head_hidden": 64,
    "lora_layers": "linear",
    "lora_blocks": "last",
    "lr": 1e-3,
    "epochs": 40,
}
_NO_LORA = {"lora_blocks": {"default": "none", "TG": "last"}}  # nothing else of TG's is trained
# Recipes of local training: a base, changes of one thing, and two of several.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "base": _BASE,
    "wide head": _BASE | {"head_hidden": 1024},
    "linear head": _BASE | {"head_layers": 1},
    "no LoRA": _BASE | _NO_LORA,
    "LoRA in all blocks": _BASE | {"lora_blocks": "all"},
    "lr 3e-4": _BASE | {"lr": 3e-4},
    "lr 3e-3": _BASE | {"lr": 3e-3},
    "20 epochs": _BASE | {"epochs": 20},
    "100 epochs": _BASE | {"epochs": 100},
    "linear probe": _BASE | _NO_LORA | {"head_layers": 1, "lr": 3e-3, "epochs": 100},
    "lr 3e-4, 100 epochs": _BASE | {"lr": 3e-4, "epochs": 100},
}
# The grid of each objective's temperature. Muscle's tau' is 3/4 tau, as the paper's 0.15 and 0.2.
GRID = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
TEMPERATURES: dict[str, list[dict[str, Any]]] = {
    "fedmuscle": [{"tau": tau, "tau_prime": 0.75 * tau} for tau in GRID],
    "pairwise": [{"tau": tau, "tau_prime": 0.75 * tau} for tau in GRID],  # which reads tau alone
    "gramian": [
        {"options": {"gramian.tau": tau}}
        for tau in (0.0025, 0.005, 0.01, 0.02, 0.04, 0.07, 0.15, 0.3)
    ],
}
_log = logging.getLogger("fedmuscle")


def tune(
    common: Mapping[str, Any],
    seeds: Sequence[int],
    configurations: Mapping[str, Mapping[str, Any]] = CONFIGURATIONS,
) -> pd.DataFrame:
    """Compare configurations by each task's metric on the validation split.

    Args:
        common: settings of all runs, such as the profile and the algorithm.
        seeds: development seeds, which no table uses. All configurations are run on all of them.
        configurations: by name, the settings that differ from ``common``.

    Returns:
        One row a configuration and task: configuration, task, the settings of ``BY_TASK``, metric,
            value (the mean over seeds and the task's users; NaN if a run diverged) and chosen (the
            task's best, the earlier of equal ones).

    Raises:
        ValueError: settings that no run can have.
        NotStored, and what else ``run_all`` raises.
    """
    split = {"evaluate_on": "validation", "evaluate_every": parse(dict(common)).rounds}
    rows: list[dict[str, Any]] = []
    for name, own in configurations.items():
        runs = [parse({**common, **own, **split, "seed": seed}) for seed in seeds]
        means = _means(runs)
        for task, user in {user.task: user for user in runs[0].members}.items():
            recipe = {setting: runs[0].of(user, setting) for setting in BY_TASK}
            recipe["epochs"] = runs[0].epochs_after(runs[0].rounds, user)
            score = {"metric": TASKS[task].metric, "value": means.get(task, math.nan)}
            rows.append({"configuration": name, "task": task} | recipe | score)
    table = pd.DataFrame(rows)
    scores = (table.value * table.metric.map(direction)).fillna(-math.inf)
    best = scores.groupby(table.task).idxmax()
    return table.assign(chosen=table.index.isin(best) & table.value.notna())


def _means(runs: Sequence[Settings]) -> dict[str, float]:
    """The mean metric of each task's users over the runs; empty if one diverged."""
    try:
        found = pd.concat([history.final() for history in run_all(runs)])
    except Diverged as error:
        _log.warning("%s: recorded as diverged", error)
        return {}
    return found.groupby("task").value.mean().to_dict()
