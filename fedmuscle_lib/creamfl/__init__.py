"""CreamFL (ICLR 2023) and CreamFL with the Muscle loss, Table 3: a server and clients of three kinds align on public image-caption pairs.

    from fedmuscle_lib import run
    from fedmuscle_lib.creamfl import Settings

    history = run(Settings(algorithm="creamfl_muscle", seed=0))

In the order of their imports: ``losses``, ``retrieval``, ``networks``, ``captions`` (a run's captioned sets), ``party`` (what server and
clients share), ``kinds/`` (of clients, one file each), ``client``, ``server``, ``algorithms/`` (one file each), ``settings``, ``build``,
``rounds``, ``system``; then ``arms``, ``report`` and ``plots``, which no run needs. Partitions and captioned folders are in
``fedmuscle_lib.data``.
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
