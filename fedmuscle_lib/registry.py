"""Classes by name, each in a module of its own in one package: a new module registers its class, and nothing else changes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def import_modules(package: str) -> None:
    """Import every module of the package, also those that were put there since it was imported."""
    importlib.invalidate_caches()
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


def registered(name: str, registry: Mapping[str, T], kind: str, package: str) -> T:
    """Return what is called ``name``. An unknown name makes the package look for new modules in its folder first.

    Raises:
        ValueError: there is none; the message says of what ``kind`` it should be, and lists those that are.
    """
    if name not in registry:
        import_modules(package)
    if name not in registry:
        raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(sorted(registry))}")
    return registry[name]
