"""Registries by name, and suggestions for a name that is unknown.

Classes can stand in modules of their own in one package: a new module registers its class, and
nothing else changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

_FEW = 30  # names that an error can list in one line


def meant(name: object, known: Iterable[str]) -> str:
    """The end of an error: the known name that is nearest to an unknown one, in whatever case;
    where none is near, all of them if few.
    """
    by_lower = {each.lower(): each for each in known}
    if near := get_close_matches(str(name).lower(), by_lower, n=1):
        return f"; did you mean {by_lower[near[0]]!r}?"
    return f"; known: {', '.join(sorted(by_lower.values()))}" if 0 < len(by_lower) <= _FEW else ""


def check_known(what: str, name: object, known: Collection[str]) -> None:
    """Check a name against those that are known.

    Raises:
        ValueError: it is none of them: what it is, such as "unknown profile", the name, and what
            may have been meant.
    """
    if name not in known:
        raise ValueError(f"{what} {name!r}{meant(name, known)}")


def own_options(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The options of the member called ``name``, by their own names, of those that settings give:
    the inverse of ``Registered.named``.
    """
    return {
        option.removeprefix(f"{name}."): value
        for option, value in options.items()
        if option.startswith(f"{name}.")
    }


def import_modules(package: str) -> None:
    """Import every module of the package, also those that were put there since it was imported."""
    importlib.invalidate_caches()
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


class Registered:
    """Base of a family of classes that are found by name.

    The family's root says with ``family=`` what its members are called in errors. A subclass of the
    root that sets ``name`` registers itself; one without a name is a base of others.

    Attributes:
        name: for settings and files.
        Options: its own hyper-parameters, which settings name ``<name>.<option>``.
    """

    family: ClassVar[str]
    registry: ClassVar[dict[str, type[Any]]]  # each root has its own
    name: ClassVar[str]

    class Options(BaseModel):
        """Frozen and strict. Every field says where its value comes from."""

        model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init_subclass__(cls, family: str = "", **options: object) -> None:
        super().__init_subclass__(**options)
        if family:
            cls.family, cls.registry = family, {}
        elif "name" in vars(cls):
            cls.registry[cls.name] = cls

    @classmethod
    def names(cls) -> list[str]:
        """Every member's name, alphabetically."""
        return sorted(cls.registry)

    @classmethod
    def named(cls, options: BaseModel) -> dict[str, Any]:
        """Hyper-parameters of this class by the names that settings give them."""
        return {f"{cls.name}.{option}": value for option, value in options.model_dump().items()}

    @classmethod
    def get(cls, name: str) -> type[Self]:
        """Return the member called ``name``. An unknown name makes the root's package look for new
        modules in its folder first.

        Raises:
            ValueError: there is none; the message says what may have been meant.
        """
        if name not in cls.registry:
            import_modules(cls.__module__.rpartition(".")[0])
        check_known(f"unknown {cls.family}", name, cls.registry)
        return cls.registry[name]
