"""The shape of the house: which module may know which, and what no module does."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from fedmuscle_lib.settings import Settings

ROOT = Path(__file__).parents[1]
LIBRARY, DATA_PREP = "fedmuscle_lib", "data_prep"

# An import only ever goes up this list: a module knows those before it. `__init__` re-exports and may know all.
LAYERS = (
    "pickles", "randomness", "versions", "muscle", "objectives", "views", "data", "tasks", "models", "setups", "messages", "server",
    "client", "algorithms", "profiles", "settings", "runs", "report", "plots", "bench", "reproduce", "cli", "__main__", "__init__",
)  # fmt: skip

MODULES = {path: ast.parse(path.read_text()) for package in (LIBRARY, DATA_PREP) for path in sorted((ROOT / package).rglob("*.py"))}
every_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imported(path: Path, node: ast.AST | None = None) -> Iterator[str]:
    """Dotted names that the module imports when the program runs; ``from a import b`` is "a.b"."""
    node = node or MODULES[path]
    for child in node.orelse if _is_type_checking(node) else ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = path.relative_to(ROOT).parts[: -child.level] if child.level else ()
            yield from (".".join([*above, *filter(None, [child.module]), alias.name]) for alias in child.names)
        else:
            yield from _imported(path, child)


def _layer(parts: tuple[str, ...]) -> str:
    """The entry of LAYERS that a dotted name below the library belongs to; what is no module is taken from ``__init__``."""
    return parts[0] if parts and parts[0] in LAYERS else "__init__"


@every_module
def test_imports_only_go_down(path: Path) -> None:
    package, *inside = path.relative_to(ROOT).with_suffix("").parts
    imported = [tuple(name.split(".")) for name in _imported(path)]
    if package == DATA_PREP:
        # data sets are written without the library; reading pickles safely is done in one place
        assert not [".".join(name) for name in imported if name[0] == LIBRARY and name[1:2] != ("pickles",)]
        return
    assert inside[0] in LAYERS, f"say where {inside[0]} stands in LAYERS"
    assert not [name for name in imported if name[0] == DATA_PREP]
    known = LAYERS[: LAYERS.index(inside[0]) + 1] if len(inside) > 1 else LAYERS[: LAYERS.index(inside[0])]
    assert not [".".join(name) for name in imported if name[0] == LIBRARY and _layer(name[1:]) not in known]


def test_the_unpickler_stands_alone() -> None:
    """Data sets are prepared through it, so it knows nothing that they should not."""
    assert {name.split(".")[0] for name in _imported(ROOT / LIBRARY / "pickles.py")} <= sys.stdlib_module_names


def test_muscle_stands_alone() -> None:
    """The paper's contribution can be lifted out: it knows itself and torch."""
    imported = {name for path in MODULES if "muscle" in path.relative_to(ROOT).parts for name in _imported(path)}
    assert imported
    assert not [name for name in imported if name.startswith(LIBRARY) and not name.startswith(f"{LIBRARY}.muscle")]


def test_every_import_is_declared() -> None:
    """What the code imports is a dependency of pyproject.toml by its own name, not by the grace of another package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    declared = {requirement.split("==")[0] for requirement in requirements}
    tops = {name.split(".")[0] for path in MODULES for name in _imported(path)}
    distributions = packages_distributions()
    foreign = tops - sys.stdlib_module_names - {LIBRARY, DATA_PREP}
    assert not {name for name in foreign if not declared & set(distributions.get(name, ()))}


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@every_module
def test_nothing_executes_a_file(path: Path) -> None:
    """Unpickling runs code. It is done by the restricted unpickler of ``fedmuscle_lib.pickles`` and nowhere else."""
    forbidden = {"pickle.load", "pickle.loads", "pickle.Unpickler", "pd.read_pickle", "pandas.read_pickle", "joblib.load"}
    if path == ROOT / LIBRARY / "pickles.py":
        forbidden.remove("pickle.Unpickler")  # the class that the restricted one refines
    nodes = list(ast.walk(MODULES[path]))
    assert not [f"line {node.lineno}: {_dotted(node)}" for node in nodes if isinstance(node, ast.Attribute) and _dotted(node) in forbidden]
    assert not forbidden & set(_imported(path))
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert _dotted(call.func) != "torch.load" or options.get("weights_only") == "True", f"line {call.lineno}: torch.load"
        assert "allow_pickle" not in options, f"line {call.lineno}: allow_pickle"


@every_module
def test_no_module_asks_which_profile_it_is(path: Path) -> None:
    """A profile is numbers, names and paths; one code path serves them all."""
    for node in ast.walk(MODULES[path]):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            asks = any(_dotted(side).split(".")[-1] == "profile" for side in sides)
            assert not (asks and any(isinstance(side, ast.Constant) for side in sides)), f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Match):
            assert _dotted(node.subject).split(".")[-1] != "profile", f"line {node.lineno}"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_what_the_paper_says(name: str) -> None:
    assert Settings.model_fields[name].description
