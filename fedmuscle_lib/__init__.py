"""FedMuscle (ICLR 2026): federated multi-task learning by aligning representations with the Muscle
loss.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmuscle_lib.fedmuscle.export import load_user
    from fedmuscle_lib.fedmuscle.settings import Settings
    from fedmuscle_lib.muscle import compute_alpha, muscle_loss
    from fedmuscle_lib.runs import History, Store, run, run_all

# Imported when they are asked for: the loss alone costs torch's import and nothing more.
_HOMES = {
    "muscle_loss": "muscle",
    "compute_alpha": "muscle",
    "History": "runs",
    "Store": "runs",
    "run": "runs",
    "run_all": "runs",
    "Settings": "fedmuscle.settings",
    "load_user": "fedmuscle.export",
}

__all__ = [
    "History",
    "Settings",
    "Store",
    "compute_alpha",
    "load_user",
    "muscle_loss",
    "run",
    "run_all",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
