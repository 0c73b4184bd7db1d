"""The algorithms by name. One module each; a new module in this folder registers itself, and nothing else changes."""

from __future__ import annotations

import importlib
import pkgutil

from fedmuscle_lib.algorithms.base import PHASES, Algorithm, Federation, Group, IgnoredSetting, Phase, Reading


def _import_all() -> None:
    importlib.invalidate_caches()
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


_import_all()


def names() -> list[str]:
    """Every algorithm's name, alphabetically."""
    return sorted(Algorithm.registry)


def get(name: str) -> type[Algorithm]:
    """Return the algorithm called ``name``. An unknown name makes the package look for new modules in its folder first.

    Raises:
        ValueError: there is none; the message lists those that are.
    """
    if name not in Algorithm.registry:
        _import_all()
    if name not in Algorithm.registry:
        raise ValueError(f"unknown algorithm {name!r}; known: {', '.join(names())}")
    return Algorithm.registry[name]


__all__ = ["PHASES", "Algorithm", "Federation", "Group", "IgnoredSetting", "Phase", "Reading", "get", "names"]
