"""Plan of a grid: the chosen notebooks, and the parameters that each of them is given."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmuscle_lib.core.files import read_json, user_path
from fedmuscle_lib.core.notebooks import (
    NOTEBOOKS,
    Parameter,
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
_log = logging.getLogger("fedmuscle")


def select(names: Sequence[str] | None, folder: Path = NOTEBOOKS) -> list[Path]:
    """Return the notebooks called ``names``, each the name of one in ``folder`` or a file; "all" is
    every one of the folder that has results, and so is no name where there is no core.

    Raises:
        ValueError: there is no such notebook; the message names the nearest.
    """
    known = {path.stem: path for path in sorted(folder.glob("*.ipynb"))}
    files = {name: user_path(name).absolute() for name in names or () if name.endswith(".ipynb")}
    files = {name: path for name, path in files.items() if path.is_file()}
    if not known | files:
        raise ValueError(f"no notebooks in {folder}; a file such as study/depth.ipynb can be named")
    about = {name: _metadata(path) for name, path in known.items()}
    core = [name for name, said in about.items() if said.get("core")]
    known |= {path.stem: path for path in files.values()}
    wanted = [
        files[name].stem if name in files else name.removesuffix(".ipynb")
        for name in names or core or [ALL]
    ]
    if ALL in wanted:
        results = [name for name, said in about.items() if said.get("results", True)]
        wanted = [*results, *(name for name in wanted if name != ALL)]
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError("; ".join(f"no notebook {name!r}{meant(name, known)}" for name in unknown))
    return [known[name] for name in dict.fromkeys(wanted)]


def plan(
    paths: Sequence[Path],
    common: dict[str, Any],
    wanted: dict[str, Any],
    first_public: bool = False,
) -> dict[Path, dict[str, Any]]:
    """Return what each notebook is given: of ``common`` and ``wanted`` what it declares, and of
    ``wanted`` settings as its parameter ``overrides``.

    A notebook has its committed parameters where none are given. papermill itself would only warn
    of an unknown parameter and run with the default.

    Args:
        first_public: give a notebook of several public sets its first one alone.

    Raises:
        ValueError: listing everything that is wrong with ``wanted``.
    """
    from fedmuscle_lib.runs.settings import parse

    problems = [f"{name} has an option of its own" for name in wanted if name in common]
    overrides = wanted.get("overrides", {})
    if isinstance(overrides, dict):
        wanted = {name: v for name, v in wanted.items() if name != "overrides"} | overrides
    planned: dict[Path, dict[str, Any]] = {}
    known: set[str] = set()
    taken: set[str] = set()
    for path in paths:
        own, kind = declared(path), settings_of(path)
        known |= own.keys() | kind.model_fields.keys()
        settings = {name: value for name, value in wanted.items() if name in kind.model_fields}
        for name in kind.places() & settings.keys():  # a notebook runs in its own folder
            settings[name] = str(place := user_path(str(settings[name]), name).absolute())
            problems += [] if place.exists() else [f"{name}: {place}: no such folder"]
        rest = {name: v for name, v in settings.items() if name not in own and "overrides" in own}
        every = common | wanted | settings | ({"overrides": rest} if rest else {})
        if first_public and "publics" in own:
            every = {"publics": own["publics"].value[:1]} | every
        # in the notebook's order, in which it names its folder too
        given = {name: every[name] for name in own if name in every}
        taken |= given.keys() | rest.keys()
        problems += _faults(path.stem, own, given)
        problems += [
            f"{name} is the notebook's choice, not an override"
            for name in _NOTEBOOK_DECIDES & rest.keys()
        ]
        try:
            parse(kind, {"profile": common["profile"]} | settings)
        except ValueError as error:
            problems.append(str(error))
        planned[path] = _committed(path, own, given)
    problems += [
        f"no parameter or setting {name!r}{meant(name, known)}"
        for name in wanted
        if name not in taken
    ]
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return planned


def _faults(notebook: str, own: dict[str, Parameter], given: dict[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if not fits(value, own[name].type):
            yield f"{notebook}: {name} is a {own[name].type}, not {value!r}"
        if value in ([], "", {}) and own[name].value:
            yield f"{notebook}: {name} is empty"


def _committed(path: Path, own: dict[str, Parameter], given: dict[str, Any]) -> dict[str, Any]:
    """``given``, and committed values of parameters that the saved file has otherwise."""
    usual = {name: v for name, v in committed(path).items() if v != own[name].value}
    if told := ", ".join(f"{name} = {own[name].value!r}" for name in usual.keys() - given.keys()):
        _log.warning(
            f"{path.stem}: the saved notebook's {told} is not used, but the committed value;"
            f" -p NAME=VALUE uses it, `git restore {os.path.relpath(path)}` drops what was saved"
        )
    return usual | given


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


def folder_of(path: Path, given: dict[str, Any]) -> str:
    """Return the name of the folder of results that the notebook writes to when it is given
    ``given``.
    """
    return folder_name(path, given.get("profile", ""), given)


def in_reference(path: Path, reference: Path, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the notebook is given to draw its committed results in the folder ``reference``:
    a dict for each folder to draw.

    With seeds or any other parameter among ``given`` that is the one folder that these lead to,
    with the parameters of the results there or, where there are none, of the usual ones. Without,
    it is each of the notebook's folders, with its own.
    """

    def as_made(folder: Path) -> dict[str, Any]:
        theirs = reference_parameters(folder)
        return {name: theirs[name] for name in declared(path) if name in theirs} | given

    there = reference / folder_of(path, given)
    found = [as_made(there if there.is_dir() else reference / path.stem)]
    if not given.keys() - {"profile", "output"}:
        for folder in sorted(reference.glob(f"{path.stem}_*")):
            if folder_of(path, parameters := as_made(folder)) == folder.name:
                found.append(parameters)
    return found
