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
from fedmuscle_lib.runs import Progress, Store, run_all
from fedmuscle_lib.settings import BY_TASK, Settings
from fedmuscle_lib.setups import User
from fedmuscle_lib.tasks import TASKS, direction

Recipe = dict[str, Any]  # a value of each setting of BY_TASK

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
    seeds: Sequence[int],
    configurations: Mapping[str, Recipe],
    progress: Progress | None = None,
    store: Store | None = None,
) -> pd.DataFrame:
    """Choose a recipe of local training for each task of the users, by the validation split.

    The first seed tries all configurations and the fixed recipe, the other seeds the best two of each task. A task gets the one with the
    best mean over seeds and users; the earlier one if two are equal. A configuration's score is the plain mean of the metric.

    Args:
        settings: the fixed recipe, and everything that is not tuned. Algorithm, split and times of evaluation are set here.
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
    fixed = {user.task: _recipe_of(base, user) for user in base.members}
    listed = {name: {task: _trainable(task, recipe, fixed[task]) for task in fixed} for name, recipe in configurations.items()}
    candidates = {FIXED: fixed} | {name: recipes for name, recipes in listed.items() if recipes != fixed}
    lengths = {f"{FIXED}, {n} epochs": {task: recipe | {"epochs": n} for task, recipe in fixed.items()} for n in _LENGTHS}
    first, *others = seeds
    trials = [(dict.fromkeys(fixed, name), first) for name in candidates | lengths]
    tried = _measured(base, candidates | lengths, trials, progress, store)
    tried["role"] = tried.configuration.map(lambda name: "comparison" if name in lengths else "candidate")
    finalists = {str(task): _best(str(task), rows, candidates) for task, rows in tried[tried.role == "candidate"].groupby("task")}
    finals = [(dict(zip(finalists, names, strict=True)), seed) for seed in others for names in zip(*finalists.values(), strict=True)]
    table = pd.concat([tried, _measured(base, candidates, finals, progress, store).assign(role="candidate")], ignore_index=True)
    winner = {task: _ranked(table[(table.task == task) & table.configuration.isin(names)])[0] for task, names in finalists.items()}
    return table.assign(chosen=table.configuration == table.task.map(winner))


def _best(task: str, rows: pd.DataFrame, recipes: Mapping[str, Mapping[str, Recipe]]) -> list[str]:
    """The finalists of a task: the best configurations, those last that are the same training for this task as a better one."""
    seen: list[Recipe] = []
    same = []
    ranked = _ranked(rows)
    for name in ranked:
        recipe = _effective(task, recipes[name][task])
        same.append(recipe in seen)
        seen.append(recipe)
    return [name for _, name in sorted(zip(same, ranked, strict=True), key=lambda pair: pair[0])][:_FINALISTS]


def _effective(task: str, recipe: Recipe) -> Recipe:
    """What of a recipe a task's users look at: a head of another kind has neither width nor depth, and one layer has no width."""
    unread = (
        {"head_layers", "head_hidden"} if TASKS[task].head != "two layers" else {"head_hidden"} if recipe["head_layers"] == 1 else set()
    )
    return {name: value for name, value in recipe.items() if name not in unread}


def _trainable(task: str, recipe: Recipe, fixed: Recipe) -> Recipe:
    """``recipe``, or the fixed one where it leaves nothing to train: a language model has no head of its own."""
    return fixed if TASKS[task].head == "language model" and recipe["lora_blocks"] == "none" else recipe


def _recipe_of(settings: Settings, user: User) -> Recipe:
    epochs = settings.epochs_after(settings.rounds, user)
    return {name: settings.of(user, name) for name in BY_TASK} | {"epochs": epochs}


def _measured(
    base: Settings,
    recipes: Mapping[str, Mapping[str, Recipe]],
    trials: Sequence[tuple[Mapping[str, str], int]],
    progress: Progress | None,
    store: Store | None,
) -> pd.DataFrame:
    """A row a task of each trial, which is a configuration for each task, and a seed. ``recipes`` are by configuration and task."""
    chosen = [{task: recipes[name][task] for task, name in names.items()} for names, _ in trials]
    runs = [base.model_copy(update=_by_task(own) | {"seed": seed}) for own, (_, seed) in zip(chosen, trials, strict=True)]
    rows = []
    for (names, seed), own, history in zip(trials, chosen, run_all(runs, progress, store), strict=True):
        for task, users in history.final().groupby("task", sort=False):
            measured = {"seed": seed, "metric": users.metric.iloc[0], "value": round(users.value.mean(), 4)}
            rows.append({"task": task, "configuration": names[task], **own[task], **measured})
    return pd.DataFrame(rows, columns=["task", "configuration", *BY_TASK, "seed", "metric", "value"])


def _by_task(recipes: Mapping[str, Recipe]) -> dict[str, Any]:
    """The recipes of all tasks as settings; "default" is nobody's."""
    found = {name: {task: recipe[name] for task, recipe in recipes.items()} for name in BY_TASK}
    return {name: {"default": next(iter(values.values()))} | values for name, values in found.items()}


def _ranked(rows: pd.DataFrame) -> list[str]:
    """The configurations of one task's rows, the best mean first."""
    means = direction(rows.metric.iloc[0]) * rows.groupby("configuration", sort=False).value.mean()
    return list(means.sort_values(ascending=False, kind="stable").index)


def write(table: pd.DataFrame, settings: Settings, figures: Path) -> tuple[Path, Path]:
    """Write what was chosen where the protocol "tuned" reads it, and the table below ``figures``; return both paths.

    Tasks that the table does not have keep what an earlier call wrote.
    """
    recipes, rows = tuned_file(settings.profile), figures / settings.profile / "tuning.csv"
    chosen = {str(task): _choice(own, settings) for task, own in table[table.chosen].groupby("task", sort=False)}
    recipes.write_text(json.dumps(tuned_tasks(settings.profile) | chosen, indent=1) + "\n", encoding="utf8")
    rows.parent.mkdir(parents=True, exist_ok=True)
    if rows.exists():
        earlier = pd.read_csv(rows)
        table = pd.concat([earlier[~earlier.task.isin(chosen)], table])
    table.to_csv(rows, index=False)
    return recipes, rows


def _choice(rows: pd.DataFrame, settings: Settings) -> dict[str, Any]:
    """A task's recipe and where it comes from."""
    first, *_ = rows.to_dict("records")
    return {
        "recipe": {name: first[name] for name in BY_TASK},
        "configuration": first["configuration"],
        "metric": first["metric"],
        "mean": round(float(rows.value.mean()), 4),
        "split": SPLIT,
        "seeds": sorted(int(seed) for seed in rows.seed),
        "setup": settings.setup,
        "date": datetime.now(UTC).date().isoformat(),
    }
