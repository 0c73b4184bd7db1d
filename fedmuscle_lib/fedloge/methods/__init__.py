"""The federated methods by name. One module each; a new module in this folder registers itself, and nothing else changes."""

from __future__ import annotations

from fedmuscle_lib.core.registry import import_modules, registered
from fedmuscle_lib.fedloge.methods.method import Head, Method, Problem, Recipe, Visit

import_modules(__name__)


def names() -> list[str]:
    """Every method's name, alphabetically."""
    return sorted(Method.registry)


def get(name: str) -> type[Method]:
    """Return the method called ``name``. An unknown name makes the package look for new modules in its folder first.

    Raises:
        ValueError: there is none; the message says what may have been meant.
    """
    return registered(name, Method.registry, "method", __name__)
