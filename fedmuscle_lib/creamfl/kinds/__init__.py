"""Kinds of clients by name. One module each; a new module in this folder registers itself, and nothing else changes."""

from __future__ import annotations

from fedmuscle_lib.core.registry import import_modules, registered
from fedmuscle_lib.creamfl.kinds.kind import Kind

import_modules(__name__)


def names() -> list[str]:
    """Every kind's name, alphabetically."""
    return sorted(Kind.registry)


def get(name: str) -> type[Kind]:
    """Return the kind called ``name``. An unknown name makes the package look for new modules in its folder first.

    Raises:
        ValueError: there is none; the message says what may have been meant.
    """
    return registered(name, Kind.registry, "kind of client", __name__)
