"""The shape of the house: which module may know which, and what no module does."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from fedmuscle_lib.fedmuscle.settings import Settings

ROOT = Path(__file__).parents[1]
LIBRARY, DATA_PREP = "fedmuscle_lib", "data_prep"

# An import only ever goes up this list: a module knows those before it. `__init__` re-exports and
# may know all. Imports for types alone count too: algorithms, for one, know nothing of the
# settings.
LAYERS = (
    "core", "muscle", "runs", "data", "tasks", "models", "fedmuscle", "report", "tuning", "plots", "explore", "lessons", "fedloge",
    "creamfl", "network", "bench", "reproduce", "cli", "__main__", "__init__",
)  # fmt: skip
# Within a system's own room likewise.
FEDMUSCLE = (
    "objectives", "augmentation", "setups", "messages", "server", "client", "algorithms", "profiles", "settings",
    "build", "synthetic", "rounds", "export", "arms", "ablations", "system",
    "__init__",
)  # fmt: skip
FEDLOGE = (
    "etf", "realign", "networks", "preprocessing", "server", "methods", "evaluation", "client", "settings", "build", "rounds",
    "export", "system", "arms", "authors", "report", "plots", "__init__",
)  # fmt: skip
CREAMFL = (
    "losses", "retrieval", "networks", "party", "kinds", "client", "server", "algorithms", "settings", "build", "rounds",
    "system", "arms", "report", "__init__",
)  # fmt: skip
NETWORK = (
    "certificates", "terms", "messages", "history", "rounds", "party", "server", "join", "__init__",
)  # fmt: skip
ORDERS = {
    "fedmuscle": FEDMUSCLE,
    "fedloge": FEDLOGE,
    "creamfl": CREAMFL,
    "network": NETWORK,
}

MODULES = {
    path: ast.parse(path.read_text())
    for package in (LIBRARY, DATA_PREP)
    for path in sorted((ROOT / package).rglob("*.py"))
}


def _imported(path: Path, nodes: Iterable[ast.AST] = ()) -> Iterator[str]:
    """Dotted names that the module imports, anywhere in it or in ``nodes``; ``from a import b`` is
    "a.b".
    """
    for node in nodes or ast.walk(MODULES[path]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            yield from (
                ".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names
            )


def _faults(find: Callable[[Path], Iterator[str]]) -> dict[str, list[str]]:
    """What ``find`` yields of each module, by the module's path."""
    found = {path.relative_to(ROOT).as_posix(): list(find(path)) for path in MODULES}
    return {path: faults for path, faults in found.items() if faults}


def _layer(parts: tuple[str, ...]) -> str:
    """The entry of LAYERS that a dotted name below the library belongs to; what is no module is
    taken from ``__init__``.
    """
    return parts[0] if parts and parts[0] in LAYERS else "__init__"


def _up(path: Path) -> Iterator[str]:
    """What a module imports from beside or below itself."""
    package, *inside = path.relative_to(ROOT).with_suffix("").parts
    imported = [tuple(name.split(".")) for name in _imported(path)]
    if package == DATA_PREP:
        # of the library data sets need what reads files safely and ends commands
        rooms = {"core", "data"}
        yield from (
            ".".join(name) for name in imported if name[0] == LIBRARY and name[1] not in rooms
        )
        return
    assert inside[0] in LAYERS, f"say where {inside[0]} stands in LAYERS"
    known = LAYERS[: LAYERS.index(inside[0]) + (len(inside) > 1)]
    yield from (
        ".".join(name)
        for name in imported
        if name[0] == DATA_PREP or name[0] == LIBRARY and _layer(name[1:]) not in known
    )
    if len(inside) > 1 and (order := ORDERS.get(inside[0])):
        own = [name[2] for name in imported if name[:2] == (LIBRARY, inside[0]) and len(name) > 2]
        yield from (
            name for name in own if order.index(name) > order.index(inside[1]) - (len(inside) == 2)
        )


def test_imports_only_go_down():
    assert _faults(_up) == {}


def test_only_the_commands_know_the_network():
    """It needs an extra, which may not be there, but for certificates. The commands know it only
    when they run.
    """
    for path in MODULES:
        if "network" not in path.relative_to(ROOT).parts:
            nodes = MODULES[path].body if path.parent.name == "cli" else ()
            assert not [
                name
                for name in _imported(path, nodes)
                if name.startswith((f"{LIBRARY}.network", "grpc"))
                and not name.startswith(f"{LIBRARY}.network.certificates")
            ], path


def test_the_readers_of_foreign_files_stand_alone():
    """Data sets are prepared through them, so they know nothing that these should not."""
    for name in ("pickles", "images"):
        imported = set(_imported(ROOT / LIBRARY / f"data/{name}.py"))
        own = {tuple(each.split(".")[1:3]) for each in imported if each.split(".")[0] == LIBRARY}
        assert own <= {
            ("core", "errors"),
            ("core", "files"),
            ("data", "pickles"),
            ("data", "images"),
        }
        assert {each.split(".")[0] for each in imported} - {LIBRARY} <= sys.stdlib_module_names | {
            "numpy",
            "PIL",
            "pycocotools",
        }


def test_muscle_stands_alone():
    """The paper's contribution can be lifted out: it knows itself and torch."""
    imported = {
        name
        for path in MODULES
        if "muscle" in path.relative_to(ROOT).parts
        for name in _imported(path)
    }
    others = {name.split(".")[0] for name in imported if not name.startswith(f"{LIBRARY}.muscle.")}
    assert "torch" in others and others <= sys.stdlib_module_names | {"torch"}


# What only FedMuscle is made of. FedLoGe is another system: neither knows the other, nor do the
# runs, which serve both.
FEDMUSCLES = {
    "muscle",
    "tasks",
    "models",
    "fedmuscle",
    "report",
    "tuning",
    "plots",
    "explore",
    "bench",
}
# But for these modules in FedMuscle's rooms: tables over seeds, and provenance. They know no
# federation.
COMMON = {"report.frame", "report.statistics", "report.provenance"}


def _common(name: str) -> bool:
    """Whether a dotted name below the library is one of COMMON, or in it."""
    return ".".join(name.split(".")[1:3]) in COMMON


def test_systems_know_nothing_of_each_other():
    rooms = {
        path: path.relative_to(ROOT / LIBRARY).with_suffix("").parts[0]
        for path in MODULES
        if ROOT / LIBRARY in path.parents
    }
    assert FEDMUSCLES | {"fedloge", "runs"} <= set(rooms.values())
    for path, room in rooms.items():
        names = {
            name for name in _imported(path) if name.split(".")[0] == LIBRARY and not _common(name)
        }
        imported = {_layer(tuple(name.split(".")[1:])) for name in names}
        if room == "fedloge" or _common(".".join(path.relative_to(ROOT).with_suffix("").parts)):
            assert not imported & (FEDMUSCLES - {"tasks"} | {"__init__"}), path
        if room in FEDMUSCLES | {"runs"}:
            assert not {"fedloge", "creamfl"} & imported, path
        if room == "creamfl":  # it takes the loss, backbones and tasks, and reads the paper's cells
            foreign = {name for name in names if not name.startswith(f"{LIBRARY}.report.paper.")}
            rooms_known = {_layer(tuple(name.split(".")[1:])) for name in foreign}
            assert not rooms_known & (
                (FEDMUSCLES - {"muscle", "tasks", "models"}) | {"fedloge", "__init__"}
            ), path


def test_a_fresh_process_loads_no_more_than_it_asked_for():
    """The loss alone, then each server, then what lessons draw with."""
    apart = {"transformers", "peft"}
    steps = {
        "from fedmuscle_lib import muscle_loss": (
            apart | {"pandas", "matplotlib", "pydantic", f"{LIBRARY}.fedmuscle.settings"}
        ),
        f"import {LIBRARY}.fedmuscle.server": (
            apart
            | {
                "pandas",
                "pydantic",
                "kornia",
                *(f"{LIBRARY}.{room}" for room in ("models", "tasks", "fedmuscle.client")),
            }
        ),
        f"import {LIBRARY}.fedloge.server": (
            apart
            | {
                "pydantic",
                *(f"{LIBRARY}.fedloge.{room}" for room in ("networks", "methods", "client")),
            }
        ),
        f"import {LIBRARY}.lessons, {LIBRARY}.core.style": apart | {f"{LIBRARY}.report"},
    }
    program = "import sys\n" + "".join(f"{step}\nprint(*sys.modules)\n" for step in steps)
    printed = subprocess.check_output(
        [sys.executable, "-c", program], text=True, cwd=ROOT
    ).splitlines()
    for (step, spared), loaded in zip(
        steps.items(), (set(line.split()) for line in printed), strict=True
    ):
        assert "torch" in loaded and not spared & loaded, step


def test_every_import_is_declared():
    """What the code imports is a dependency of pyproject.toml by its own name, not by the grace of
    another package.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [
        each
        for extra in ("diffusion", "federated")
        for each in project["optional-dependencies"][extra]
    ]
    declared = {requirement.split("==")[0] for requirement in [*project["dependencies"], *optional]}
    tops = {name.split(".")[0] for path in MODULES for name in _imported(path)}
    distributions = packages_distributions()
    foreign = tops - sys.stdlib_module_names - {LIBRARY, DATA_PREP}
    assert not {
        name for name in foreign if not declared & set(distributions.get(name, (name,)))
    }  # an extra may not be there


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _executing(path: Path) -> Iterator[str]:
    forbidden = {
        "pickle.load",
        "pickle.loads",
        "pd.read_pickle",
        "pandas.read_pickle",
        "joblib.load",
    }
    yield from forbidden & set(_imported(path))
    for node in ast.walk(MODULES[path]):
        if isinstance(node, ast.Attribute) and _dotted(node) in forbidden:
            yield f"line {node.lineno}: {_dotted(node)}"
        if isinstance(node, ast.Call):
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if (
                "allow_pickle" in options
                or _dotted(node.func) == "torch.load"
                and options.get("weights_only") != "True"
            ):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_nothing_executes_a_file():
    """Unpickling runs code.

    One reader looks at pickles, ``fedmuscle_lib.data.pickles``, and looks up no function but numpy's.
    """
    assert _faults(_executing) == {}


def _asking(path: Path) -> Iterator[str]:
    for node in ast.walk(MODULES[path]):
        sides = (
            [node.left, *node.comparators]
            if isinstance(node, ast.Compare)
            else [node.subject]
            if isinstance(node, ast.Match)
            else []
        )
        compared = isinstance(node, ast.Match) or any(
            isinstance(side, ast.Constant) for side in sides
        )
        if compared and any(_dotted(side).split(".")[-1] == "profile" for side in sides):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_module_asks_which_profile_it_is():
    """A profile is numbers, names and paths; one code path serves them all."""
    assert _faults(_asking) == {}


def test_every_setting_quotes_the_paper_or_says_that_the_paper_is_silent():
    silent = []
    for name, field in Settings.model_fields.items():
        description, about = field.description or "", Settings.about(name)
        quoted = re.search(r'\b(Section|Appendix) [A-Z\d.]+(, footnote \d)?: "[^"]+"', description)
        if not (
            quoted
            or about["open"]
            or about.get("aside")
            or re.search("[Tt]he paper('s| has|;) ?|The project's own", description)
        ):
            silent.append(name)
    assert silent == []
