"""The algorithms of Table 3 and its controls by name. One module each; a new module in this folder registers itself, and nothing else
changes."""

from __future__ import annotations

from fedmuscle_lib.core.registry import import_modules, registered
from fedmuscle_lib.creamfl.algorithms.algorithm import Algorithm

import_modules(__name__)


def names() -> list[str]:
    """Every algorithm's name, alphabetically."""
    return sorted(Algorithm.registry)


def get(name: str) -> type[Algorithm]:
    """Return the algorithm called ``name``. An unknown name makes the package look for new modules in its folder first.

    Raises:
        ValueError: there is none; the message says what may have been meant.
    """
    return registered(name, Algorithm.registry, "algorithm", __name__)
