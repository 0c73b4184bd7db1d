"""The short runs of FedLoGe's system (see ``fedmuscle_lib.runs.short_runs``): every method.

``python -m fedmuscle_lib.fedloge.fingerprints`` records what they give in
``fedmuscle_lib/fedloge/fingerprints.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmuscle_lib.fedloge import methods
from fedmuscle_lib.fedloge.settings import Settings
from fedmuscle_lib.runs import short_runs

FILE = Path(__file__).with_name("fingerprints.json")
# Part of the clients in each of two rounds; the methods' own options, whatever a profile has, but
# for what is long.
_EVERY_METHOD: dict[str, Any] = {
    "clients": 5,
    "participation": 0.4,
    "rounds": 2,
    "local_epochs": 1,
    "batch_size": 32,
    "flip": 1,
}
_EVERY_METHOD |= {"evaluate_every": 2, "network": "small_cnn"}
_QUICK = {"fedloge.etf_steps": 200, "fedloge.etf_lr": 1e-3, "fedrep.head_epochs": 1}


def runs(**where: Any) -> dict[str, Settings]:
    """The short runs by name; ``where`` are settings that say where data are."""
    shipped = short_runs.shipped(methods)
    own = short_runs.own_options(shipped)
    return {
        name: Settings(algorithm=name, options=own | _QUICK, **_EVERY_METHOD | where)
        for name in shipped
    }


def modules() -> list[str]:
    """Modules whose classes the short runs go through."""
    return short_runs.modules_of(short_runs.shipped(methods).values())


if __name__ == "__main__":
    short_runs.record(FILE, runs(), short_runs.fingerprint, modules())
