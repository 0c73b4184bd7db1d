"""Arms of Table 3: settings in, histories out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.notebooks import page_seeds
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.runs import History, run_named
from fedmuscle_lib.runs.settings import parse

BASELINE = "local"
CONTROLS = ("pairwise", "own", "frozen", "shuffled", "momentum")
Run = History[Settings]


def run_arms(
    common: dict[str, Any],
    algorithms: Iterable[str],
    seeds: Sequence[int],
    folder: Path | None = None,
) -> list[Run]:
    """Compute or fetch a run of each algorithm for each seed; seed after seed, so that a whole
    table of the first one comes first.

    Args:
        common: settings of all runs.
        algorithms: names; server alone, which Delta is over, is added where it is not among them.
        seeds: none are those of ``page_seeds``.
        folder: of the results.

    Raises:
        ValueError: settings that no run can have.
        NotStored, and what else ``run_all`` raises.
    """
    seeds, compute = page_seeds(seeds, folder)
    names = dict.fromkeys([BASELINE, *algorithms])
    return run_named(
        [
            (name, parse(Settings, {**common, "algorithm": name, "seed": seed}))
            for seed in seeds
            for name in names
        ],
        compute,
    )
