"""FedMuscle's system: from settings to a federation, and its rounds.

In the order of their imports: ``dependencies`` (what a run depends on), ``build`` (the federation),
``rounds``, ``export`` (trained users as folders), ``arms`` (runs of a table)
and ``ablations``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.fedmuscle import dependencies
from fedmuscle_lib.fedmuscle.build import evaluation_sizes
from fedmuscle_lib.fedmuscle.export import claim, save
from fedmuscle_lib.fedmuscle.rounds import Rounds
from fedmuscle_lib.fedmuscle.settings import Settings
from fedmuscle_lib.runs.system import Experiment, System, Tables
from fedmuscle_lib.tasks import direction

# Columns of a run's tables.
#
# metrics: a row a user after each phase of an evaluated round; value is in per cent, or a
# perplexity. Phase "after_local" is after the round's local updates, "after_alignment" after its
# alignment. The last round's second phase is the literal end: the latter in Algorithm 1, the former
# where a round aligns first (setting ``order``). costs: flops of the user's training, every call
# through the whole backbone; flops_done: what ran (what training never changes ran once). losses:
# local is the mean over the last local epoch, alignment over the round's steps on public data; NaN
# where there was no such step.
TABLES: Tables = {
    "metrics": {
        "round": int,
        "phase": str,
        "user": int,
        "model": str,
        "task": str,
        "metric": str,
        "value": float,
    },
    "costs": {
        "round": int,
        "user": int,
        "uplink_bytes": int,
        "downlink_bytes": int,
        "flops": int,
        "flops_done": int,
    },
    "losses": {"round": int, "user": int, "local": float, "alignment": float},
    "measures": {"round": int, "user": int, "measure": str, "value": float},
}


class _FedMuscle(System[Settings]):
    name, settings, tables, keeps_models = "fedmuscle", Settings, TABLES, True

    def key(self, settings: Settings) -> dict[str, Any]:
        return dependencies.key(settings)

    def inputs(self, settings: Settings) -> dict[str, str]:
        return dependencies.inputs(settings)

    def begin(self, settings: Settings) -> Experiment:
        return Rounds(settings)

    def per_sample(self, settings: Settings, metrics: pd.DataFrame) -> pd.Series:
        whole = metrics.value.where(
            metrics.metric.map(direction) < 0, 100
        )  # a perplexity moves by a share of itself
        return whole / metrics.user.map(evaluation_sizes(settings))

    def claim(self, settings: Settings, folder: Path) -> None:
        claim(settings, folder)

    def save(self, experiment: Experiment, folder: Path) -> None:
        assert isinstance(experiment, Rounds)
        save(experiment, folder)


SYSTEM = _FedMuscle()
