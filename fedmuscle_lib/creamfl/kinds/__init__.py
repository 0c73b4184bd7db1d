"""Kinds of clients by name.

One module each; a new module in this folder registers itself, and nothing else changes.
"""

from __future__ import annotations

from typing import Any

from fedmuscle_lib.core.registry import import_modules
from fedmuscle_lib.creamfl.kinds.kind import Kind

import_modules(__name__)
names, get = Kind.names, Kind.get


def folders(settings: Any) -> list[str]:
    """What a run reads below ``data_dir``, sorted: public pairs, test set, and what each kind of
    its clients has.
    """
    own = (get(name).folders(settings) for name in settings.kinds_of_clients)
    return sorted({settings.public_folder, settings.test_folder}.union(*own))
