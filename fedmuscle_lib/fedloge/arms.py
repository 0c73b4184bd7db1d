"""Arms of FedLoGe's tables: settings in, histories out, and the fixed classifier of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmuscle_lib.core.notebooks import page_seeds
from fedmuscle_lib.fedloge.methods import Problem
from fedmuscle_lib.fedloge.methods.fedloge import FedLoGe
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs import History, run_named
from fedmuscle_lib.runs.settings import parse

Run = History[Settings]


def run_methods(
    common: dict[str, Any],
    arms: Iterable[str],
    seeds: Sequence[int],
    folder: Path | None = None,
) -> list[Run]:
    """Compute or fetch a run of each arm for each seed; seed after seed, so that a whole table of
    the first one comes first.

    Where nothing may be computed, runs of all arms but the first that are not stored are left out,
    with a warning.

    Args:
        common: settings of all runs.
        arms: "<algorithm>", or "<algorithm>, <option> <value>" with an option of its own at another
            value, such as "fedloge, norm 1". One that asks for the same as an earlier one is left
            out: the profile has this value.
        seeds: none are those of ``page_seeds``.
        folder: of the results.

    Raises:
        ValueError: settings that no run can have.
        NotStored, and what else ``run_all`` raises.
    """
    seeds, compute = page_seeds(seeds, folder)
    chosen: dict[str, str] = {}
    for arm in arms:
        own = _settings(common, arm, seeds[0])
        options = own.method.Options(**own.own_options).model_dump_json()
        chosen.setdefault(own.algorithm + options, arm)
    wanted = [(arm, _settings(common, arm, seed)) for seed in seeds for arm in chosen.values()]
    return run_named(wanted, compute)


def _settings(common: dict[str, Any], arm: str, seed: int) -> Settings:
    algorithm, _, setting = arm.partition(", ")
    option, _, value = setting.partition(" ")
    options = common.get("options", {}) | (
        {f"{algorithm}.{option}": float(value)} if setting else {}
    )
    own = {"algorithm": algorithm, "seed": seed, "options": options}
    return parse(Settings, common | own)


def sse_c(settings: Settings, classes: int, **options: Any) -> Tensor:
    """Fit SSE-C again, with options of FedLoGe in place of the run's: its weight, (c, d)."""
    own = settings.own_options | options
    return FedLoGe(Problem(settings.network, classes, settings.seed), own).sse_c.weight
