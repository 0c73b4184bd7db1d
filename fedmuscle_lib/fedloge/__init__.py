"""FedLoGe (ICLR 2024) and its baselines: one model for clients whose data have a long tail, as a system of its own.

    from fedmuscle_lib import run
    from fedmuscle_lib.fedloge import Settings

    history = run(Settings(algorithm="fedloge", seed=0))

A method is a file of ``methods``. Long tails and partitions are in ``fedmuscle_lib.data``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmuscle_lib.fedloge.settings import Settings

__all__ = ["Settings"]


def __getattr__(name: str) -> Any:  # a server on its own loads no method
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.settings").Settings
