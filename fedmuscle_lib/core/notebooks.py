"""Notebooks as files: their parameters, and the names of their folders of results.

A notebook's own parameters are the committed ones: JupyterLab saves a parameters cell that somebody
tries out, which must neither change what the grid computes nor make the results look like the
notebook's usual ones. Outside a clone they are those of the file.
"""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedmuscle_lib.core.errors import DataError, shown, unreadable
from fedmuscle_lib.core.files import ROOT, Json, parse_json, read_bytes, read_json, user_path

NOTEBOOKS = ROOT / "notebooks"
FIGURES = ROOT / "figures"  # the reference
RESULTS = ROOT / "results"  # which git ignores
PROVENANCE = "provenance.json"  # in a folder of results
OUTCOME = "result.json"  # likewise: how its execution went
# The contract puts a notebook's results for any seeds in one folder; the others say where and on
# what it runs.
UNNAMED = {"profile", "output", "seeds", "device", "threads", "data_dir", "models_path"}
Value = TypeVar("Value")


class Parameter(NamedTuple):
    """A parameter of a notebook.

    Attributes:
        type: the annotated type's name or, without annotation, the value's.
        value: None where it is no literal.
    """

    type: str
    value: Any


def declared(path: Path) -> dict[str, Parameter]:
    """Return the parameters that the file's parameters cell declares; raises DataError if it is no
    notebook, or they are not Python.
    """
    return _parameters(read_bytes(path), str(path))


def committed(path: Path) -> dict[str, Any]:
    """Return the values of the :func:`declared` parameters: those of the last commit, where it has
    them.
    """
    own, theirs = declared(path), dict[str, Parameter]()
    # a relative name: git knows where in the clone the folder lies
    with suppress(OSError, subprocess.CalledProcessError):  # no git, or no such commit
        said = subprocess.run(
            ["git", "-C", path.parent, "show", f"HEAD:./{path.name}"],
            capture_output=True,
            check=True,
        )
        theirs = _parameters(said.stdout, f"HEAD:{path.name}")
    return {name: theirs.get(name, parameter).value for name, parameter in own.items()}


def _parameters(content: bytes, name: str) -> dict[str, Parameter]:
    notebook = parse_json(content, name)
    with unreadable(f"{name}: not a notebook"):
        sources = [
            "".join(cell["source"])
            for cell in notebook.get("cells", [])
            if "parameters" in cell["metadata"].get("tags", [])
        ]
    try:
        statements = ast.parse("".join(sources[:1])).body
    except SyntaxError as error:
        raise DataError(f"{name}: its parameters cell is not Python: line {error.lineno}") from None
    found = {}
    for statement in statements:
        if isinstance(statement, ast.AnnAssign):
            kind = ast.unparse(statement.annotation).split("[")[0]
            found[ast.unparse(statement.target)] = Parameter(kind, _value(statement.value))
        elif isinstance(statement, ast.Assign):
            value = _value(statement.value)
            found[ast.unparse(statement.targets[0])] = Parameter(type(value).__name__, value)
    return found


def _value(node: Any) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def literal(name: str, value: Any, kind: type[Value]) -> Value:
    """Return the parameter ``name`` as a ``kind``: ``papermill -p`` hands lists and dicts over as
    text.

    >>> literal("seeds", "[0, 1]", list)
    [0, 1]

    Raises:
        ValueError: ``value`` is not a ``kind`` and is no text of one; the message names the
            parameter.
    """
    with suppress(ValueError, SyntaxError):
        value = ast.literal_eval(value) if isinstance(value, str) else value
    if not isinstance(value, kind):
        raise ValueError(f"parameter {name}: expected a {kind.__name__}, got {shown(value)}")
    return value


def fits(value: Any, type_name: str) -> bool:
    """Return whether a parameter that is annotated with ``type_name`` can take ``value``; a whole
    number is a float too.
    """
    kind = getattr(builtins, type_name, object)
    return isinstance(value, kind) or kind is float and isinstance(value, int)


# --- folders of results


def results_folder(notebook: str, profile: str, output: str = "", **parameters: Any) -> Path:
    """Make ``<output>/<profile>/<folder_name>`` and return it; without ``output`` it is below the
    repository's ``results``.

    Args:
        notebook: its name.
        parameters: the notebook's other parameters, so that changed ones do not overwrite its usual
            results.
    """
    paths = [place.absolute() / f"{notebook}.ipynb" for place in (Path(), NOTEBOOKS)]
    path = next(filter(Path.is_file, paths), None)  # else it can't be told what was changed
    name = folder_name(path, profile, parameters) if path else notebook
    folder = user_path(output or RESULTS) / profile / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def written(folder: Path) -> str:
    """Return a sentence that says where results lie, from the clone's root if they are inside."""
    path = folder.resolve()
    return f"Written to {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}"


def folder_name(path: Path, profile: str, parameters: Mapping[str, Any]) -> str:
    """Return the name of a folder of results: the notebook's, and the parameters that are neither
    its own nor its reference's.

    Such as ``table7_rounds=5`` or, since a setup and a protocol need no more than their names,
    ``controls_setup1_unequal``.

    Args:
        path: of the notebook.
    """
    reference = reference_parameters(FIGURES / profile / path.stem)
    known = [*flat(committed(path)).items(), *flat(reference).items()]
    parts = [path.stem]
    for name, value in flat(parameters).items():
        if name not in UNNAMED and (name, value) not in known:
            text = _text(value)
            parts.append(text if name in ("setup", "protocol") else f"{name}={text}")
    return "_".join(parts)


def notebook_of(folder: str) -> str:
    """Return the notebook whose folder of results has this name: the longest that the name begins
    with.
    """
    names = [path.stem for place in (Path(), NOTEBOOKS) for path in place.glob("*.ipynb")]
    return max(
        (name for name in names if f"{folder}_".startswith(f"{name}_")), key=len, default=folder
    )


def reference_parameters(folder: Path, file: str = PROVENANCE) -> Json:
    """Return the parameters of which the results in ``folder`` came, as a ``file`` there names
    them; none where there is none.
    """
    path = folder / file
    return read_json(path).get("parameters", {}) if path.exists() else {}


def page_seeds(seeds: Sequence[int], folder: Path | None) -> tuple[list[int], bool]:
    """The seeds of a notebook, and whether runs that are not stored are computed.

    Without seeds they are those of the committed page of the folder of results, of which only
    stored runs are shown; where there is no such page, seed 0.
    """
    page = {}
    if not seeds and folder:
        page = reference_parameters(FIGURES / folder.parent.name / folder.name)
    return list(seeds) or page.get("seeds", [0]), "seeds" not in page


def flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a notebook's parameters with each of its ``overrides`` beside the others, in place of
    what they override.
    """
    own = {name: value for name, value in parameters.items() if name != "overrides"}
    return own | (parameters.get("overrides") or {})


def runs_of(folder: Path) -> list[Json]:
    """The runs that the provenance in a notebook's folder names, each with all its facts; none
    where there is no provenance.

    Returns:
        For each run its arm, address, system, settings (as JSON values, without places), origin
        ("shipped" or "computed"), versions, seconds, finished (ISO format, UTC) and
        peak_memory_bytes.
    """
    path = folder / PROVENANCE
    provenance = read_json(path) if path.exists() else {"runs": []}
    return [
        _merged(_merged(provenance["shared"], provenance["arms"][run["arm"]]), run)
        for run in provenance["runs"]
    ]


def _merged(known: Json, facts: Json) -> Json:
    """``known`` with ``facts`` in place of its own, also within dicts that both have."""
    merged = known | facts
    for name, fact in facts.items():
        if isinstance(fact, dict) and isinstance(known.get(name), dict):
            merged[name] = _merged(known[name], fact)
    return merged


def _text(value: Any) -> str:
    """A value as a part of a file's name: in words where they are short and plain, else a hash."""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if re.fullmatch(r"[\w.,+-]{1,40}", text):
        return text
    return sha256(repr(value).encode()).hexdigest()[:8]
