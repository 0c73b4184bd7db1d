"""Plan of a grid: the chosen notebooks, and the parameters that each of them is given."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmuscle_lib.core.files import read_json, user_path
from fedmuscle_lib.core.notebooks import (
    NOTEBOOKS,
    committed,
    declared,
    fits,
    folder_name,
    reference_parameters,
)
from fedmuscle_lib.core.registry import meant

if TYPE_CHECKING:  # a help page waits for no torch
    from fedmuscle_lib.runs import RunSettings

ALL = "all"  # in the place of a name
_NOTEBOOK_DECIDES = {"algorithm", "public", "profile", "seed"}  # settings that are no overrides


def select(names: Sequence[str] | None, folder: Path = NOTEBOOKS) -> list[Path]:
    """Return the notebooks called ``names``, sorted; "all" is every one that has results, and so is
    no name where there is no core.

    Raises:
        ValueError: there is no such notebook; the message names the nearest.
    """
    known = {path.stem: path for path in sorted(folder.glob("*.ipynb"))}
    if not known:
        raise ValueError(f"no notebooks in {folder}")
    about = {name: _metadata(path) for name, path in known.items()}
    core = [name for name, said in about.items() if said.get("core")]
    wanted = [name.removesuffix(".ipynb") for name in names or core or [ALL]]
    if ALL in wanted:
        results = [name for name, said in about.items() if said.get("results", True)]
        wanted = [*results, *(name for name in wanted if name != ALL)]
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError("; ".join(f"no notebook {name!r}{meant(name, known)}" for name in unknown))
    return [known[name] for name in dict.fromkeys(wanted)]


def plan(
    paths: Sequence[Path], common: dict[str, Any], wanted: dict[str, Any]
) -> dict[Path, dict[str, Any]]:
    """Return what each notebook is given: of ``common`` what it declares, and ``wanted`` parameters
    and settings.

    papermill itself would only warn of an unknown parameter and run with the default.

    Raises:
        ValueError: listing everything that is wrong with ``wanted`` or with a type.
    """
    from fedmuscle_lib.runs.settings import parse

    types = {path: declared(path) for path in paths}
    kinds = {path: settings_of(path) for path in paths}
    places = set().union(*(kind.places() for kind in kinds.values()))
    wanted = _absolute(wanted, places)
    parameters = {name for own in types.values() for name in own}
    known = {name for kind in kinds.values() for name in kind.model_fields}
    decided = {
        name: value for name, value in wanted.items() if name in parameters & _NOTEBOOK_DECIDES
    }
    settings = {
        name: value for name, value in wanted.items() if name in known and name not in decided
    }
    problems = [f"{name} has an option of its own" for name in wanted if name in common]
    problems += [
        f"no parameter or setting {name!r}{meant(name, parameters | known)}"
        for name in wanted
        if name not in parameters and name not in settings
    ]
    if (others := settings.keys() - parameters) and "overrides" not in parameters:
        problems.append(f"no chosen notebook takes settings ({', '.join(sorted(others))})")
    overrides = wanted.get("overrides", {})
    if isinstance(overrides, dict):
        overrides = _absolute(overrides | settings, places)
        for kind in dict.fromkeys(kinds.values()):
            of_kind = _of_kind(overrides, kind, known)
            problems += [
                f"{name} is the notebook's choice, not an override"
                for name in of_kind
                if name in _NOTEBOOK_DECIDES
            ]
            try:
                parse(
                    kind, _of_kind({"profile": common["profile"]} | decided, kind, known) | of_kind
                )
            except ValueError as error:
                problems.append(str(error))
    given = {}
    for path, own in types.items():
        rest = overrides  # settings that the notebook does not declare go there
        if isinstance(overrides, dict):
            rest = {
                name: value
                for name, value in _of_kind(overrides, kinds[path], known).items()
                if name not in own
            }
        every = common | wanted | ({"overrides": rest} if rest else {})
        given[path] = {
            name: every[name] for name in own if name in every
        }  # in the notebook's order, in which it names its folder too
        for name, value in given[path].items():
            if not fits(value, own[name].type):
                problems.append(f"{path.stem}: {name} is a {own[name].type}, not {value!r}")
            if value in ([], "", {}) and own[name].value:
                problems.append(f"{path.stem}: {name} is empty")
    if problems:
        raise ValueError("; ".join(problems))
    return given


def settings_of(path: Path) -> type[RunSettings]:
    """The settings that the notebook's runs have: those of the system that its metadata name,
    FedMuscle's by default.
    """
    from fedmuscle_lib.runs import named

    return named(_metadata(path).get("system", "fedmuscle")).settings


def _metadata(path: Path) -> dict[str, Any]:
    """Return what a notebook says of itself: its "system", whether it has "results" to reproduce,
    and whether it is of the "core".
    """
    return read_json(path).get("metadata", {}).get("fedmuscle", {})


def _of_kind(
    overrides: dict[str, Any], kind: type[RunSettings], known: Collection[str]
) -> dict[str, Any]:
    """Of settings for notebooks of several systems, those of one; what is no system's setting
    stays, to be refused.
    """
    return {
        name: value
        for name, value in overrides.items()
        if name in kind.model_fields or name not in known
    }


def unsaved(path: Path) -> tuple[dict[str, Any], str]:
    """Return the committed values of parameters that the file has otherwise, and a sentence about
    them; both empty if there are none.
    """
    saved = {name: parameter.value for name, parameter in declared(path).items()}
    if not (
        usual := {name: value for name, value in committed(path).items() if value != saved[name]}
    ):
        return {}, ""
    changes = ", ".join(
        f"{name} = {saved[name]!r} (committed: {value!r})" for name, value in usual.items()
    )
    return (
        usual,
        (
            f"{path.stem}: the saved notebook's {changes} is not used; "
            f"-p NAME=VALUE uses it, `git restore {os.path.relpath(path)}` drops what was saved"
        ),
    )


def folder_of(path: Path, given: dict[str, Any]) -> str:
    """Return the name of the folder of results that the notebook writes to when it is given
    ``given``.
    """
    return folder_name(path.stem, given.get("profile", ""), given, among=path.parent)


def in_reference(path: Path, reference: Path, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the notebook is given to draw its committed results in the folder ``reference``:
    a dict for each folder to draw.

    With seeds or any other parameter among ``given`` that is the one folder that these lead to,
    with the parameters of the results there or, where there are none, of the usual ones. Without,
    it is each of the notebook's folders, with its own.
    """
    declares = declared(path)

    def as_made(folder: Path) -> dict[str, Any]:
        return {
            name: value for name, value in reference_parameters(folder).items() if name in declares
        } | given

    there = reference / folder_of(path, given)
    usual = as_made(there if there.is_dir() else reference / path.stem)
    if given.keys() - {"profile", "output"}:
        return [usual]
    others = [(folder.name, as_made(folder)) for folder in sorted(reference.glob(f"{path.stem}_*"))]
    return [
        usual,
        *(parameters for name, parameters in others if folder_of(path, parameters) == name),
    ]


def _absolute(overrides: dict[str, Any], places: Collection[str]) -> dict[str, Any]:
    """``overrides`` with absolute paths, since a notebook runs in its own folder."""
    paths = {
        name: value
        for name, value in overrides.items()
        if name in places and isinstance(value, str | Path) and "\0" not in str(value)
    }
    return overrides | {
        name: str(user_path(value, name).resolve()) for name, value in paths.items()
    }
