"""Registries by name, and suggestions for a name that is unknown.

Classes can stand in modules of their own in one package: a new module registers its class, and nothing else changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")

_FEW = 30  # names that an error can list in one line


def meant(name: object, known: Iterable[str]) -> str:
    """The end of an error: the known name that is nearest to an unknown one, in whatever case; where none is near, all of them if few."""
    by_lower = {each.lower(): each for each in known}
    if near := get_close_matches(str(name).lower(), by_lower, n=1):
        return f"; did you mean {by_lower[near[0]]!r}?"
    return f"; known: {', '.join(sorted(by_lower.values()))}" if len(by_lower) <= _FEW else ""


def import_modules(package: str) -> None:
    """Import every module of the package, also those that were put there since it was imported."""
    importlib.invalidate_caches()
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


def registered(name: str, registry: Mapping[str, T], kind: str, package: str) -> T:
    """Return what is called ``name``. An unknown name makes the package look for new modules in its folder first.

    Raises:
        ValueError: there is none; the message says of what ``kind`` it should be, and what may have been meant.
    """
    if name not in registry:
        import_modules(package)
    if name not in registry:
        raise ValueError(f"unknown {kind} {name!r}{meant(name, registry)}")
    return registry[name]
