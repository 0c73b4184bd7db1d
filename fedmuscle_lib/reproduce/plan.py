"""What to run: the chosen notebooks, and the parameters that each of them is given."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmuscle_lib.core.errors import DataError
from fedmuscle_lib.core.files import ROOT, read_json
from fedmuscle_lib.core.registry import meant
from fedmuscle_lib.reproduce.parameters import declared_parameters, fits

if TYPE_CHECKING:  # a help page waits for no torch
    from fedmuscle_lib.runs import RunSettings

NOTEBOOKS = ROOT / "notebooks"
FIGURES = ROOT / "figures"  # the reference
_NOTEBOOK_DECIDES = {"algorithm", "public", "profile", "seed"}  # settings that are no overrides


def select(names: Sequence[str] | None, folder: Path = NOTEBOOKS) -> list[Path]:
    """The notebooks called ``names``, or all but those whose metadata say that they have no results, in the order of their names.

    Raises:
        ValueError: there is no such notebook; the message names the nearest.
    """
    known = {path.stem: path for path in sorted(folder.glob("*.ipynb"))}
    if not known:
        raise ValueError(f"no notebooks in {folder}")
    usual = [name for name, path in known.items() if _metadata(path).get("results", True)]
    wanted = [name.removesuffix(".ipynb") for name in names or usual]
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError("; ".join(f"no notebook {name!r}{meant(name, known)}" for name in unknown))
    return [known[name] for name in dict.fromkeys(wanted)]


def plan(paths: Sequence[Path], common: dict[str, Any], own: dict[str, Any]) -> dict[Path, dict[str, Any]]:
    """What each notebook is given: of ``common`` what it declares, and ``own`` parameters and settings.

    papermill itself would only warn of an unknown parameter and run with the default.

    Raises:
        ValueError: listing everything that is wrong with ``own`` or with a type.
    """
    declared = {path: declared_parameters(path) for path in paths}
    kinds = {path: settings_of(path) for path in paths}
    places = set().union(*(kind.places() for kind in kinds.values()))
    own = _absolute(own, places)
    parameters = {name for types in declared.values() for name in types}
    known = {name for kind in kinds.values() for name in kind.model_fields}
    settings = {name: value for name, value in own.items() if name in known and name not in parameters & _NOTEBOOK_DECIDES}
    problems = [f"{name} has an option of its own" for name in own if name in common]
    problems += [
        f"no parameter or setting {name!r}{meant(name, parameters | known)}"
        for name in own
        if name not in parameters and name not in settings
    ]
    if (others := settings.keys() - parameters) and "overrides" not in parameters:
        problems.append(f"no chosen notebook takes settings ({', '.join(sorted(others))})")
    overrides = own.get("overrides", {})
    if isinstance(overrides, dict):
        overrides = _absolute(overrides | settings, places)
        for kind in dict.fromkeys(kinds.values()):
            problems += _settings_problems(kind, common["profile"], _of_kind(overrides, kind, known))
    given = {
        path: _given(types, common | own, _of_kind(overrides, kinds[path], known) if isinstance(overrides, dict) else overrides)
        for path, types in declared.items()
    }
    problems += [
        f"{path.stem}: {name} is a {declared[path][name]}, not {value!r}"
        for path, values in given.items()
        for name, value in values.items()
        if not fits(value, declared[path][name])
    ]
    if problems:
        raise ValueError("; ".join(problems))
    return given


def _given(types: Collection[str], wanted: dict[str, Any], overrides: Any) -> dict[str, Any]:
    """Of ``wanted`` what a notebook declares; settings that it does not declare go into its ``overrides``."""
    if isinstance(overrides, dict):
        overrides = {name: value for name, value in overrides.items() if name not in types}
    return {name: value for name, value in (wanted | ({"overrides": overrides} if overrides else {})).items() if name in types}


def settings_of(path: Path) -> type[RunSettings]:
    """The settings that the notebook's runs have: those of the system that its metadata name, FedMuscle's by default."""
    from fedmuscle_lib.runs import named

    return named(_metadata(path).get("system", "fedmuscle")).settings


def _metadata(path: Path) -> dict[str, Any]:
    """What a notebook says of itself: its "system", and whether it has "results" to reproduce."""
    return read_json(path).get("metadata", {}).get("fedmuscle", {})


def _of_kind(overrides: dict[str, Any], kind: type[RunSettings], known: Collection[str]) -> dict[str, Any]:
    """Of settings for notebooks of several systems, those of one; what is no system's setting stays, to be refused."""
    return {name: value for name, value in overrides.items() if name in kind.model_fields or name not in known}


def folder_of(path: Path, given: dict[str, Any]) -> str:
    """Name of the folder of results that the notebook writes to when it is given ``given``."""
    from fedmuscle_lib.report import folder_name

    return folder_name(path.stem, *([given["setup"]] if "setup" in given else []))


def in_reference(path: Path, reference: Path, given: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of which the notebook's committed results in the folder ``reference`` came: a dict for each setup that is there.

    A setup in ``given`` is the only one. Where the results do not say what they came of, the dict is empty.
    """
    usual = _as_made(path, reference / folder_of(path, given))
    others = [] if "setup" in given else [_as_made(path, folder) for folder in sorted(reference.glob(f"{path.stem}_*"))]
    return [usual, *(parameters for parameters in others if "setup" in parameters)]


def _as_made(path: Path, results: Path) -> dict[str, Any]:
    """The parameters of the notebook ``path`` that the provenance in its folder ``results`` has, if there is one."""
    provenance = results / "provenance.json"
    if not provenance.exists():
        return {}
    parameters = read_json(provenance).get("parameters", {})
    if not isinstance(parameters, dict):
        raise DataError(f"{provenance}: not the provenance of a notebook: its parameters have no names")
    return {name: value for name, value in parameters.items() if name in declared_parameters(path)}


def _settings_problems(kind: type[RunSettings], profile: str, overrides: dict[str, Any]) -> list[str]:
    from fedmuscle_lib.runs.settings import parse

    problems = [f"{name} is the notebook's choice, not an override" for name in overrides if name in _NOTEBOOK_DECIDES]
    try:
        parse(kind, {"profile": profile} | overrides)
    except ValueError as error:
        problems.append(str(error))
    return problems


def _absolute(overrides: dict[str, Any], places: Collection[str]) -> dict[str, Any]:
    """``overrides`` with absolute paths, since a notebook runs in its own folder."""
    paths = {
        name: value for name, value in overrides.items() if name in places and isinstance(value, str | Path) and "\0" not in str(value)
    }
    return overrides | {name: str(Path(value).resolve()) for name, value in paths.items()}
