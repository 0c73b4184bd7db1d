"""The federated methods by name. One module each; a new module in this folder registers itself, and nothing else changes."""

from __future__ import annotations

import importlib
import pkgutil

from fedmuscle_lib.fedloge.methods.base import Head, Method, Problem, Realignment, Recipe, Visit


def _import_all() -> None:
    importlib.invalidate_caches()
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


_import_all()


def names() -> list[str]:
    """Every method's name, alphabetically."""
    return sorted(Method.registry)


def get(name: str) -> type[Method]:
    """Return the method called ``name``. An unknown name makes the package look for new modules in its folder first.

    Raises:
        ValueError: there is none; the message lists those that are.
    """
    if name not in Method.registry:
        _import_all()
    if name not in Method.registry:
        raise ValueError(f"unknown method {name!r}; known: {', '.join(names())}")
    return Method.registry[name]


__all__ = ["Head", "Method", "Problem", "Realignment", "Recipe", "Visit", "get", "names"]
