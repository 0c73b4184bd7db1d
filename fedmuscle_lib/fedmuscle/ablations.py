"""Ablations: the same arms at several points. Settings in, histories out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.notebooks import page_seeds
from fedmuscle_lib.fedmuscle.arms import (
    BASELINE,
    TUNED_BASELINE,
    obtained,
    settings_of,
)
from fedmuscle_lib.fedmuscle.settings import Settings, parse
from fedmuscle_lib.runs import History, run_all
from fedmuscle_lib.runs.history import setting_of

ABLATION_ARMS = ("local", "fedmuscle", "self", "head_only", TUNED_BASELINE)
UNCONNECTED = ("local", "self", "head_only", TUNED_BASELINE)  # no user hears of another
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
    arms: Sequence[str] = ABLATION_ARMS,
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
    seeds, compute = page_seeds(seeds, folder)
    planned = [
        (varied, name, settings)
        for varied, point in zip(names or points, points, strict=True)
        for seed in seeds
        for name in arms
        if (settings := _settings({**common, **point, "public": public}, point, name, seed))
    ]
    needed = {BASELINE, "fedmuscle"}.intersection(arms)
    found = _at_points(planned, compute)
    if whole := [one for one in found if needed <= {run.arm for run in one.histories}]:
        return whole
    run_all([settings for *_, settings in planned])  # which computes them, or says what is missing
    return _at_points(planned)


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


def _settings(given: dict[str, Any], point: dict[str, Any], arm: str, seed: int) -> Settings | None:
    """The settings of an arm's run, as ``arms.settings_of`` has them; a tuned arm has its own
    recipe in place of the point's.
    """
    left_out = point.keys() - _WHO if setting_of(arm) else set()
    settings = settings_of(
        {name: value for name, value in given.items() if name not in left_out} | {"seed": seed}, arm
    )
    if settings and len(settings.members) < len(parse(given).members):
        raise ValueError(
            f"{arm} does not serve every user of {settings.setup}, and Delta is over all of them"
        )
    return settings
