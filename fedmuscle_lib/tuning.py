"""Search for hyper-parameters by ``tune``: recipes of local training by task, and the options of
other algorithms.

In local training every user trains alone, so one run tries a configuration for the users of all
tasks at once, and another run can confirm a different one for each task. Other algorithms are tried
with the fixed recipe, by Delta over local training.

A run that diverges is recorded as such, and the search goes on. It counts as diverged for all of
its users.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib import report
from fedmuscle_lib.core import files
from fedmuscle_lib.core.errors import Diverged
from fedmuscle_lib.core.ownership import headed
from fedmuscle_lib.core.registry import own_options
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.fedmuscle.algorithms import PHASES
from fedmuscle_lib.fedmuscle.profiles import PROFILES, tuned_file, tuned_tasks
from fedmuscle_lib.fedmuscle.settings import BY_TASK, Settings
from fedmuscle_lib.fedmuscle.setups import User
from fedmuscle_lib.runs import History, run_all
from fedmuscle_lib.runs.address import address_of
from fedmuscle_lib.tasks import TASKS, direction

Recipe = dict[str, Any]  # a value of each setting of BY_TASK
Options = dict[str, Any]  # an algorithm's options by their own names

_BASE: Recipe = {
    "head_layers": 2,
    "head_hidden": 64,
    "lora_layers": "linear",
    "lora_blocks": "last",
    "lr": 1e-3,
    "epochs": 40,
}
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
_DIVERGED = "diverged"
_RECIPES, _OPTIONS = "tuning.csv", "tuning_options.csv"
_log = logging.getLogger("fedmuscle")


def tune(
    settings: Settings, seeds: Sequence[int], configurations: Mapping[str, Recipe]
) -> pd.DataFrame:
    """Choose a recipe of local training for each task of the users, by the validation split.

    The first seed tries all configurations and the fixed recipe, the other seeds the best two of
    each task. A task gets the one with the best mean over seeds and users; the earlier one if two
    are equal. A configuration's score is the plain mean of the metric.

    Args:
        settings: the fixed recipe, and everything that is not tuned. Algorithm, split and times of
            evaluation are set here.
        seeds: development seeds.
        configurations: what is tried beside the fixed recipe, by name.

    Returns:
        One row a configuration, task and seed: task, configuration, the settings of BY_TASK, seed,
            metric, value (mean over the task's
        users), role ("candidate", or "comparison" for the fixed recipe at other lengths; "diverged"
        without a value), chosen.

    Raises:
        ValueError: every configuration diverged.
        DataError, OSError, ValueError, NotStored: as :func:`run_all`.
    """
    base = settings.model_copy(
        update={"algorithm": "local", "evaluate_on": SPLIT, "evaluate_every": settings.rounds}
    )
    fixed = {user.task: _recipe_of(base, user) for user in base.members}
    listed = {
        name: {task: _trainable(task, recipe, fixed[task]) for task in fixed}
        for name, recipe in configurations.items()
    }

    def read(recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
        return {task: _effective(task, recipe) for task, recipe in recipes.items()}

    candidates = {FIXED: fixed} | {
        name: recipes for name, recipes in listed.items() if read(recipes) != read(fixed)
    }
    lengths = {
        f"{FIXED}, {n} epochs": {task: recipe | {"epochs": n} for task, recipe in fixed.items()}
        for n in _LENGTHS
    }
    first, *others = seeds
    trials = [(dict.fromkeys(fixed, name), first) for name in candidates | lengths]
    tried = _measured(base, candidates | lengths, trials)
    tried["role"] = tried.role.mask(tried.configuration.isin(lengths), "comparison").where(
        tried.value.notna(), _DIVERGED
    )
    if not (tried.role == "candidate").any():
        raise ValueError(
            f"every configuration diverged on seed {first}; is lr or an option too large?"
        )
    finalists = {
        str(task): _best(str(task), rows, candidates)
        for task, rows in tried[tried.role == "candidate"].groupby("task")
    }
    finals = [
        (dict(zip(finalists, names, strict=True)), seed)
        for seed in others
        for names in zip(*finalists.values(), strict=True)
    ]
    table = pd.concat([tried, _measured(base, candidates, finals)], ignore_index=True)
    winner = {
        task: _ranked(table[(table.task == task) & table.configuration.isin(names)])[0]
        for task, names in finalists.items()
    }
    return table.assign(chosen=table.configuration == table.task.map(winner))


def _best(task: str, rows: pd.DataFrame, recipes: Mapping[str, Mapping[str, Recipe]]) -> list[str]:
    """The finalists of a task: the best configurations, those last that are the same training for
    this task as a better one.
    """
    ranked = _ranked(rows)
    read = [_effective(task, recipes[name][task]) for name in ranked]
    repeats = {
        name: recipe in read[:place]
        for place, (name, recipe) in enumerate(zip(ranked, read, strict=True))
    }
    return sorted(ranked, key=repeats.__getitem__)[:_FINALISTS]


def _effective(task: str, recipe: Recipe) -> Recipe:
    """Return what of a recipe a task's users look at: a head of another kind has neither width nor
    depth, and one layer has no width.
    """
    if TASKS[task].head == "two layers" and recipe["head_layers"] > 1:
        return recipe
    unread = {"head_hidden"} if TASKS[task].head == "two layers" else {"head_layers", "head_hidden"}
    return {name: value for name, value in recipe.items() if name not in unread}


def _trainable(task: str, recipe: Recipe, fixed: Recipe) -> Recipe:
    """``recipe``, or the fixed one where it leaves nothing to train: a language model has no head
    of its own.
    """
    return (
        fixed
        if TASKS[task].head == "language model" and recipe["lora_blocks"] == "none"
        else recipe
    )


def _recipe_of(settings: Settings, user: User) -> Recipe:
    epochs = settings.epochs_after(settings.rounds, user)
    return {name: settings.of(user, name) for name in BY_TASK} | {"epochs": epochs}


def _measured(
    base: Settings,
    recipes: Mapping[str, Mapping[str, Recipe]],
    trials: Sequence[tuple[Mapping[str, str], int]],
) -> pd.DataFrame:
    """A row a task of each trial, which is a configuration for each task, and a seed. ``recipes``
    are by configuration and task.

    The role is "candidate", or "diverged" where there is no value.
    """
    chosen = [{task: recipes[name][task] for task, name in names.items()} for names, _ in trials]
    runs = [
        base.model_copy(update=_by_task(own) | {"seed": seed})
        for own, (_, seed) in zip(chosen, trials, strict=True)
    ]
    rows = []
    for (names, seed), own, history in zip(trials, chosen, _finished(runs), strict=True):
        means = {} if history is None else history.final().groupby("task").value.mean().round(4)
        for task in dict.fromkeys(user.task for user in base.members):
            measured = {
                "seed": seed,
                "metric": TASKS[task].metric,
                "value": means.get(task, math.nan),
            }
            role = "candidate" if task in means else _DIVERGED
            rows.append(
                {"task": task, "configuration": names[task], **own[task], **measured, "role": role}
            )
    return pd.DataFrame(
        rows, columns=["task", "configuration", *BY_TASK, "seed", "metric", "value", "role"]
    )


def _finished(runs: Sequence[Settings]) -> list[History | None]:
    """Return what the runs measured, None for those that diverged."""
    addresses = [str(address_of(run)) for run in runs]
    diverged: set[str] = set()
    while True:
        left = [
            run for run, address in zip(runs, addresses, strict=True) if address not in diverged
        ]
        try:
            found = iter(run_all(left))
        except Diverged as error:  # the others' rounds are in the store
            _log.warning("%s: recorded as diverged", error)
            diverged.add(error.address)
            continue
        return [None if address in diverged else next(found) for address in addresses]


def _by_task(recipes: Mapping[str, Recipe]) -> dict[str, Any]:
    """The recipes of all tasks as settings; "default" is nobody's."""
    found = {name: {task: recipe[name] for task, recipe in recipes.items()} for name in BY_TASK}
    return {
        name: {"default": next(iter(values.values()))} | values for name, values in found.items()
    }


def _ranked(rows: pd.DataFrame) -> list[str]:
    """The configurations of one task's rows, the best mean first."""
    values = rows.groupby("configuration", sort=False).value
    means = direction(rows.metric.iloc[0]) * values.mean().where(
        values.count() == values.size()
    )  # no mean where a seed diverged
    return list(means.sort_values(ascending=False, kind="stable").index)


def tuned_options(profile: str, algorithm: str) -> Options:
    """Options of an algorithm in a profile's table; raises ValueError if it has none."""
    own = own_options(PROFILES[profile].get("options", {}), algorithm)
    if not own:
        raise ValueError(f"tune: {profile}.toml has no [options] of {algorithm} to confirm")
    return own


def tune_options(
    settings: Settings, seeds: Sequence[int], tried: Sequence[Options] = ()
) -> pd.DataFrame:
    """Compare options of the settings' algorithm by Delta over local training, on the validation
    split.

    The one with the largest Delta at the tables' moment is chosen; the earlier one if two are
    equal.

    Args:
        settings: the algorithm, and everything that is not tuned. Split and times of evaluation are
            set here; what the profile tuned of this algorithm is not looked at.
        seeds: development seeds.
        tried: the options to compare, as changes of the authors' values; by default those that the
            algorithm names.

    Returns:
        One row a configuration: algorithm, setup, public, seeds, options (as JSON, what differs
            from the authors' values), users (their
        metrics in the order of their numbers), delta_after_local, delta_after_alignment, chosen. A
        configuration that diverged says so in place of the metrics, and has no Delta.

    Raises:
        ValueError: the algorithm names no options to try; none has a Delta, since all diverged or
            local training has a metric of 0.
        DataError, OSError, ValueError, NotStored: as :func:`run_all`.
    """
    kind = algorithms.get(settings.algorithm)
    if not (tried := tried or kind.tried):
        raise ValueError(f"tune: {kind.name} names no options to try; {kind.__name__}.tried would")
    base = settings.model_copy(update={"evaluate_on": SPLIT, "evaluate_every": settings.rounds})
    arms = [json.dumps(options) for options in tried]
    wanted: list[dict[str, Any]] = [{"algorithm": report.BASELINE}]
    wanted += [
        {"options": settings.options | kind.named(kind.Options(**options))} for options in tried
    ]
    runs = [base.model_copy(update=one | {"seed": seed}) for one in wanted for seed in seeds]
    found = _finished(runs)
    by_arm = [found[i : i + len(seeds)] for i in range(0, len(found), len(seeds))]
    whole = [[history for history in histories if history is not None] for histories in by_arm]
    if len(whole[0]) < len(seeds):
        raise ValueError("tune: local training diverged; is lr or an option too large?")
    told = [
        report.as_arm(histories, arm)
        for arm, histories in zip(arms, whole[1:], strict=True)
        if len(histories) == len(seeds)
    ]
    compared = [*whole[0], *(history for histories in told for history in histories)]
    deltas = {phase: report.delta(compared, phase).set_index("algorithm").delta for phase in PHASES}
    cells = (
        report.table(compared)
        .sort_values("user")
        .groupby("algorithm")["mean"]
        .apply(lambda means: " ".join(f"{m:.1f}" for m in means))
    )
    names = [f"{kind.name}, {options}" for options in arms]
    about = {
        "algorithm": kind.name,
        "setup": settings.setup,
        "public": settings.public,
        "seeds": " ".join(map(str, seeds)),
    }
    columns: dict[str, Any] = about | {
        "options": arms,
        "users": [cells.get(name, _DIVERGED) for name in names],
    }
    columns |= {
        f"delta_{phase}": [round(deltas[phase].get(name, math.nan), 2) for name in names]
        for phase in PHASES
    }
    table = pd.DataFrame(columns)
    reached = table[f"delta_{report.HEADLINE}"]
    if reached.isna().all():
        raise ValueError(
            f"tune: no configuration of {kind.name} has a Delta: all diverged, or a metric of local"
            " training is 0"
        )
    return table.assign(chosen=table.index == reached.idxmax())


def claim(folder: Path) -> None:
    """Check that :func:`write` and :func:`write_options` wrote the tables in ``folder``; raises
    NotOurs, naming one that they did not.
    """
    for name, start in ((_RECIPES, "task,configuration,"), (_OPTIONS, "algorithm,setup,public,")):
        headed(folder / name, start.encode())


def write_options(table: pd.DataFrame, settings: Settings, figures: Path) -> Path:
    """Write the comparison below ``figures`` and return its path; those of other algorithms, setups
    and public sets stay.
    """
    return _written(table, figures / settings.profile / _OPTIONS, ["algorithm", "setup", "public"])


def write(table: pd.DataFrame, settings: Settings, figures: Path) -> tuple[Path, Path]:
    """Write what was chosen where the protocol "tuned" reads it, and the table below ``figures``;
    return both paths.

    Tasks that the table does not have keep what an earlier call wrote.
    """
    recipes = tuned_file(settings.profile)
    chosen = {
        str(task): _choice(own, settings)
        for task, own in table[table.chosen].groupby("task", sort=False)
    }
    files.write(recipes, json.dumps(tuned_tasks(settings.profile) | chosen, indent=1) + "\n")
    return recipes, _written(table, figures / settings.profile / _RECIPES, ["task"])


def _written(table: pd.DataFrame, path: Path, key: list[str]) -> Path:
    """Write the table below the rows that an earlier call wrote of other keys; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        earlier = pd.read_csv(path, dtype={"seeds": str})
        table = pd.concat(
            [earlier[~earlier[key].agg(tuple, axis=1).isin(table[key].agg(tuple, axis=1))], table]
        )
    files.write(path, table.to_csv(index=False))
    return path


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
