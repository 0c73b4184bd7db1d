"""CreamFL (ICLR 2023) and CreamFL with the Muscle loss, Table 3: a server and clients of three kinds align on public image-caption pairs.

    from fedmuscle_lib import run
    from fedmuscle_lib.creamfl import Settings

    history = run(Settings(algorithm="creamfl_muscle", seed=0))

Server and clients are parties. A kind of client is a file of ``kinds``, an algorithm one of ``algorithms``. Partitions and captioned
folders are in ``fedmuscle_lib.data``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmuscle_lib.creamfl.settings import Settings

__all__ = ["Settings"]


def __getattr__(name: str) -> Any:  # a loss on its own loads no settings
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.settings").Settings
