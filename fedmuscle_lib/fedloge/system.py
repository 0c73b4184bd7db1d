"""FedLoGe's system: what runs ask of it (see ``fedmuscle_lib.runs.system``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from fedmuscle_lib.fedloge.export import claim, save
from fedmuscle_lib.fedloge.rounds import Rounds, inputs
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs.system import Experiment, System, key_of

# version of what every run of this system computes by: data, draws, networks, client, server,
# evaluation
CORE = 1


class _FedLoGe(System[Settings]):
    name, settings = "fedloge", Settings
    # metrics: see Federation.evaluate. costs and losses: a row for each who took part in a round;
    # local is the mean loss of its last epoch.
    tables = {
        "metrics": {
            "round": int,
            "scope": str,
            "head": str,
            "masked": bool,
            "group": str,
            "value": float,
            "clients": int,
        },
        "costs": {"round": int, "client": int, "uplink_bytes": int, "downlink_bytes": int},
        "losses": {"round": int, "client": int, "local": float},
        "measures": {"round": int, "client": int, "measure": str, "value": float},
    }

    def key(self, settings: Settings) -> dict[str, Any]:
        return key_of(settings, CORE, settings.method)

    def inputs(self, settings: Settings) -> dict[str, str]:
        return inputs(settings)

    def begin(self, settings: Settings) -> Experiment:
        return Rounds(settings)

    def per_sample(self, settings: Settings, metrics: pd.DataFrame) -> pd.Series:
        tested = Rounds(settings).federation.tested()
        return 100 / metrics.apply(lambda row: tested[row.scope, row.group], axis="columns")

    def claim(self, settings: Settings, folder: Path) -> None:
        claim(folder)

    def save(self, experiment: Any, folder: Path) -> None:
        save(experiment, folder)


SYSTEM = _FedLoGe()
