"""The algorithms by name. One module each; a new module in this folder registers itself, and nothing else changes."""

from __future__ import annotations

import importlib
import pkgutil

from fedmuscle_lib.algorithms.base import Algorithm, Federation

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def names() -> list[str]:
    """Every algorithm's name, alphabetically."""
    return sorted(Algorithm.registry)


def get(name: str) -> type[Algorithm]:
    """The algorithm called ``name``.

    Raises:
        ValueError: there is none; the message lists those that are.
    """
    if name not in Algorithm.registry:
        raise ValueError(f"unknown algorithm {name!r}; known: {', '.join(names())}")
    return Algorithm.registry[name]


__all__ = ["Algorithm", "Federation", "get", "names"]
