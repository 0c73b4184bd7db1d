"""Ablations: the same arms at several points, and the variants of ``directed``.

Settings in, histories out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import log
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.notebooks import page_seeds
from fedmuscle_lib.fedmuscle.arms import (
    BASELINE,
    TUNED_BASELINE,
    alignment_steps,
    obtained,
    possible_arms,
    settings_of,
)
from fedmuscle_lib.fedmuscle.profiles import PLACES
from fedmuscle_lib.fedmuscle.settings import Settings, parse
from fedmuscle_lib.runs import History, run_all
from fedmuscle_lib.runs.history import setting_of

MAP_ARMS = ("local", "fedmuscle", "self", "anchored", "frozen_peers", "head_only", TUNED_BASELINE)
ABLATION_ARMS = ("local", "fedmuscle", "self", "head_only", TUNED_BASELINE)
UNCONNECTED = tuple(
    name for name in ABLATION_ARMS if name != "fedmuscle"
)  # of them those in which no user hears of another
_AS_IT_IS = "the profile as it is"
# What the paper leaves open, each in another way than the profiles have it (`open` of a setting's
# field). Figure 5 varies batches.
OPEN_CHOICES: dict[str, dict[str, Any]] = {
    "alignment before local training": {"order": "alignment_first"},
    "evaluated after a refit": {"refit": 1},
    "one AdamW for both losses": {"optimisers": "shared"},
    "a new AdamW in each round": {"optimisers": "each_round"},
    "weight decay of 0": {"weight_decay": 0.0},
    "head on the representation": {"head_on": "representation"},
    "head on normalised features": {"head_on": "normalised"},
    "head of one layer": {"head_layers": 1},
    "head 256 wide": {"head_hidden": 256},
    "head 1024 wide": {"head_hidden": 1024},
    "projection as it was drawn": {"projection": "frozen"},
    "LoRA in attention alone": {"lora_layers": "attention"},
    "LoRA in the last blocks": {"lora_blocks": "last"},
    "LoRA's alpha of 32": {"lora_alpha": 32},
    "LoRA with a dropout of 0.1": {"lora_dropout": 0.1},
    "the CLS token as features": {"pooling": "cls"},
    "local images flipped and cropped": {"augmentation": "weak"},
    "the same local data for each seed": {"local_draw": "fixed"},
}
# Readings that the paper's text admits: what each has otherwise than the profile. LoRA's alpha, the
# optimiser's state between rounds and the head are not stated. On seed 0 of mini each alone raised
# Delta (figures/mini/open_choices).
READINGS: dict[str, dict[str, Any]] = {
    "alpha 32": {"lora_alpha": 32},
    "new AdamW each round": {"optimisers": "each_round"},
    "normalised features": {"head_on": "normalised"},
    "one-layer head": {"head_layers": 1},
}
_WHO = {"setup", "users"}  # settings that are no recipe of local training


@dataclass(frozen=True)
class Point:
    """The runs of one point of an ablation.

    Attributes:
        varied: what distinguishes it from the other points, by the name of a column, such as
            {"others": 2}.
        histories: of the arms, on every seed that was run there.
    """

    varied: dict[str, Any]
    histories: tuple[History, ...]


def readings() -> dict[str, dict[str, Any]]:
    """Every combination of ``READINGS`` by its name, the profile as it is first."""
    chosen = [names for n in range(len(READINGS) + 1) for names in combinations(READINGS, n)]
    return {
        ", ".join(names) or "as it is": {k: v for name in names for k, v in READINGS[name].items()}
        for names in chosen
    }


def in_rounds(epochs: int, rounds: int) -> dict[str, int]:
    """Settings of ``rounds`` rounds that share ``epochs`` local epochs evenly; raises ValueError if
    that takes no whole number a round.
    """
    if rounds < 1 or epochs % rounds:
        raise ValueError(f"R: {epochs} local epochs can't be shared evenly among {rounds} rounds")
    return {"rounds": rounds, "local_epochs": epochs // rounds}


def runs_of(points: Iterable[Point]) -> list[History]:
    """The runs of all points, each once."""
    return list(
        {
            history.provenance["address"]: history
            for point in points
            for history in point.histories
        }.values()
    )


def run_points(
    common: dict[str, Any],
    points: Sequence[dict[str, Any]],
    seeds: Sequence[int],
    public: str,
    arms: Iterable[str] = ABLATION_ARMS,
    names: Sequence[dict[str, Any]] = (),
    folder: Path | None = None,
) -> list[Point]:
    """Compute or fetch the runs of an ablation: every arm at every point, on every seed.

    A tuned arm has the same run at all points, since it has its own recipe; an arm that reads
    nothing of what is varied has one too. Where nothing is to be computed, points without a run of
    local training or FedMuscle are left out.

    Args:
        common: settings of all runs.
        points: settings of each point, such as {"others": 2}.
        seeds, public: as in ``Settings``; no seeds are those of ``page_seeds``.
        arms: as of :func:`run_arms`; tuned ones are left out where the profile has no tuned
            protocol.
        names: ``varied`` of each point; by default its settings.
        folder: of the results.

    Raises:
        ValueError: settings that no run can have, one of all runs that every point has otherwise,
            or an arm that does not serve everybody.
        NotStored, and what else ``run_all`` raises.
    """
    _check_free(common, points)
    possible = possible_arms(arms, common)
    seeds, compute = page_seeds(seeds, folder)
    planned = [
        (varied, name, _settings({**common, **point, "public": public}, point, name, seed))
        for varied, point in zip(names or points, points, strict=True)
        for seed in seeds
        for name in possible
    ]
    needed = {BASELINE, "fedmuscle"}.intersection(possible)
    found = _at_points(planned, compute)
    if whole := [one for one in found if needed <= {run.arm for run in one.histories}]:
        return whole
    run_all([settings for *_, settings in planned])  # which computes them, or says what is missing
    return _at_points(planned)


def run_groups(
    common: dict[str, Any],
    groups: Sequence[Sequence[int]],
    seeds: Sequence[int],
    public: str,
    folder: Path | None = None,
) -> list[Point]:
    """Compute or fetch FedMuscle's runs of several groups of users, and the arms ``UNCONNECTED`` of
    everybody.

    A user who learns alone learns the same whoever else takes part, so one run of everybody serves
    every group (:func:`only`). Its seconds and memory stay those of everybody.

    Args:
        common: settings of all runs.
        groups: numbers of the users of each point, whose ``varied`` is their number, ``n_users``.
        seeds, public, folder: as of :func:`run_points`.

    Raises:
        ValueError: settings that no run can have, or ``users`` in ``common``.
        NotStored, and what else ``run_all`` raises.
    """
    _check_free(common, [{"users": users} for users in groups])
    everybody = sorted({user for users in groups for user in users})
    seeds, compute = page_seeds(seeds, folder)
    runs = [
        ({}, everybody, possible_arms(UNCONNECTED, common)),
        *(({"n_users": len(users)}, users, ["fedmuscle"]) for users in groups),
    ]
    planned = [
        (varied, name, _settings({**common, "users": users, "public": public}, {}, name, seed))
        for varied, users, arms in runs
        for seed in seeds
        for name in arms
    ]
    alone, *points = _at_points(planned, compute)
    return [
        Point(point.varied, (*(only(run, users) for run in alone.histories), *point.histories))
        for point, users in zip(points, groups, strict=True)
    ]


def only(history: History, users: Sequence[int]) -> History:
    """A run's rows of some users, as if no others had taken part.

    If its users learn alone, it is the run of only these.
    """
    tables = {name: getattr(history, name) for name in ("metrics", "costs", "losses", "measures")}
    return replace(
        history,
        settings=history.settings.model_copy(update={"users": tuple(users)}),
        **{name: rows[rows.user.isin(users)] for name, rows in tables.items()},
    )


def run_map(
    common: dict[str, Any],
    places: dict[str, dict[str, Any]],
    steps: Sequence[int],
    seeds: Sequence[int],
    public: str,
    folder: Path | None = None,
) -> list[Point]:
    """Compute or fetch the runs of the map.

    The first seed is run everywhere; all seeds are run at the first place, and in the opposite
    corner, at the last place with the most steps. The tuned baseline does not have a place's recipe
    of local training, since it has its own.

    Args:
        common: settings of all runs.
        places: by name, the settings of each; the profile's if there are none.
        steps: alignment steps of a user; each place's own number if there are none.
        seeds, public, folder: as of :func:`run_points`.

    Returns:
        The points, place by place; the first is the first place with the number of steps that is
        nearest to its own.

    Raises:
        ValueError: settings that no run can have, one in ``common`` that every place has otherwise,
            or a number of steps that no public set gives.
        NotStored, and what else ``run_all`` raises.
    """
    places = places or PLACES[parse(common).profile] or {_AS_IT_IS: {}}
    _check_free(common, list(places.values()))
    arms = possible_arms(MAP_ARMS, common)
    seeds, compute = page_seeds(seeds, folder)
    planned: list[tuple[dict[str, Any], str, Settings]] = []
    for k, (place, own) in enumerate(places.items()):
        here = parse({**common, **own})
        sizes = {n: _public_size(here, n) for n in dict.fromkeys(steps or [alignment_steps(here)])}
        numbers = sorted(sizes, key=lambda n: abs(log(n / alignment_steps(here))))
        for n in numbers:
            on_all = k == 0 or k == len(places) - 1 and n == max(numbers)
            given = {**common, **own, "public": public, "public_size": sizes[n]}
            where = {"place": place, "steps": n}
            planned += [
                (where, name, _settings(given, own, name, seed))
                for seed in (seeds if on_all else seeds[:1])
                for name in arms
            ]
    return _at_points(planned, compute)


def _check_free(common: dict[str, Any], points: Sequence[dict[str, Any]]) -> None:
    """Raise a ValueError that names settings of all runs without an effect: every point has its
    own, and none has this value.
    """
    varied = set.intersection(*map(set, points)) if points else set()
    if "local_epochs" in varied:
        varied.add("epochs")  # in whose place local_epochs are not read
    if taken := [
        name
        for name in common
        if name in varied and common[name] not in [point.get(name) for point in points]
    ]:
        raise ValueError(
            f"{', '.join(taken)}: each point has its own, so it can't be a setting of all runs"
        )


def _at_points(
    planned: Sequence[tuple[dict[str, Any], str, Settings]], compute: bool = True
) -> list[Point]:
    """Compute or fetch planned runs, each of a point's arm, as ``arms.obtained`` does; return the
    points in the order of their first runs.
    """
    keyed = [((*varied.items(), arm), arm, settings) for varied, arm, settings in planned]
    points: dict[Any, list[History]] = {}
    for (*varied, _), history in obtained(keyed, compute, whole=False):
        points.setdefault(tuple(varied), []).append(history)
    return [Point(dict(varied), tuple(histories)) for varied, histories in points.items()]


def _settings(given: dict[str, Any], point: dict[str, Any], arm: str, seed: int) -> Settings:
    """The settings of an arm's run; a tuned arm has its own recipe in place of the point's."""
    left_out = point.keys() - _WHO if setting_of(arm) else set()
    settings = settings_of(
        {name: value for name, value in given.items() if name not in left_out} | {"seed": seed}, arm
    )
    if settings is None or len(settings.members) < len(parse(given).members):
        raise ValueError(
            f"{arm} does not serve every user of {parse(given).setup}, and Delta is over all of"
            " them"
        )
    return settings


def _public_size(settings: Settings, steps: int) -> int:
    """The size of the public set that makes so many alignment steps a user."""
    passes = settings.rounds * settings.cl_epochs
    if alignment_steps(settings) == steps:
        return settings.public_size
    if steps < 1 or steps % passes:
        raise ValueError(
            f"steps: {steps} alignment steps can't be shared among {settings.rounds} rounds of"
            f" {settings.cl_epochs} passes"
        )
    return steps // passes * settings.public_batch
