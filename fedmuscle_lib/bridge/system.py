"""Runs of FedMuscle's system at whose end FedLoGe's heads are put on the users' features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import pandas as pd
from pydantic import model_validator

from fedmuscle_lib.bridge.heads import VERSION, evaluate
from fedmuscle_lib.fedmuscle import rounds, system
from fedmuscle_lib.fedmuscle.settings import Settings as FedMuscles
from fedmuscle_lib.runs.system import Experiment, System, Tick
from fedmuscle_lib.tasks import TASKS, SingleLabelClassification

# metrics: a row a user with one label a sample, a head and a group of classes (see ``evaluate``),
# after the last round. The other tables are FedMuscle's.
_METRICS = {"round": int, "user": int, "model": str, "task": str, "head": str, "group": str}
TABLES = {
    **system.TABLES,
    "metrics": {**_METRICS, "classes": int, "samples": int, "tested": int, "value": float},
}


class Settings(FedMuscles):
    """Those of FedMuscle."""

    system = "bridge"

    @model_validator(mode="after")
    def _has_classes(self) -> Self:
        if not any(
            isinstance(TASKS[user.task], SingleLabelClassification) for user in self.members
        ):
            raise ValueError(
                "users: none of them has one label a sample, by which classes are rare or frequent"
            )
        return self


class Rounds(rounds.Rounds):
    """FedMuscle's; after the last one, the heads in place of the users' metrics."""

    def round(self, round: int) -> Tick:
        tick = super().round(round)
        if round + 1 == self.settings.rounds:
            self.rows["metrics"] = list(self._evaluated(round + 1))
        return tick

    def _evaluated(self, round: int) -> Iterator[dict[str, Any]]:
        for client in self.federation.clients:
            if isinstance(client.task, SingleLabelClassification):
                own = {
                    "round": round,
                    "user": client.user.number,
                    "model": client.user.model,
                    "task": client.user.task,
                }
                for row in evaluate(
                    client.model, client.train, client.evaluation, client.task.n_classes
                ):
                    yield own | row


class _Bridge(System[Settings]):
    name, settings, tables = "bridge", Settings, TABLES

    def key(self, settings: Settings) -> dict[str, Any]:
        found = system.SYSTEM.key(settings)
        return found | {"versions": found["versions"] | {"heads": str(VERSION)}}

    def inputs(self, settings: Settings) -> dict[str, str]:
        return system.SYSTEM.inputs(settings)

    def begin(self, settings: Settings) -> Experiment:
        return Rounds(settings)

    def per_sample(self, settings: Settings, metrics: pd.DataFrame) -> pd.Series:
        return 100 / metrics.tested


SYSTEM = _Bridge()
