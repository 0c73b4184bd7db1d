"""Kinds of clients by name.

One module each; a new module in this folder registers itself, and nothing else changes.
"""

from __future__ import annotations

from typing import Any

from fedmuscle_lib.core.registry import import_modules
from fedmuscle_lib.creamfl.captions import sets
from fedmuscle_lib.creamfl.kinds.kind import Kind

import_modules(__name__)
names, get = Kind.names, Kind.get


def folders(settings: Any) -> list[str]:
    """What a run reads below ``data_dir``, sorted: the captioned sets, and what each kind of its
    clients has.
    """
    captioned = {getattr(settings, f"{name}_folder") for name in sets(settings)}
    return sorted(
        captioned.union(*(get(name).folders(settings) for name in settings.kinds_of_clients))
    )
