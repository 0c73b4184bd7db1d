"""Arms of the bridge: settings in, histories out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedmuscle_lib.bridge.system import Settings
from fedmuscle_lib.runs import History, run_all
from fedmuscle_lib.runs.settings import parse

Run = History[Settings]
ARMS = ("local", "self", "fedmuscle")


def run_arms(common: dict[str, Any], seeds: Sequence[int]) -> list[Run]:
    """Compute or fetch a run of each of ``ARMS`` for each seed.

    Args:
        common: settings of all runs.

    Raises:
        ValueError: settings that no run can have.
        NotStored, and what else ``run_all`` raises.
    """
    return run_all(
        [
            parse(Settings, {**common, "algorithm": name, "seed": seed})
            for seed in seeds
            for name in ARMS
        ]
    )
