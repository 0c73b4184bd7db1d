"""Notebooks as files: thin, stripped and whole."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from staged import NOTEBOOKS, as_committed, place

from fedmuscle_lib import Settings
from fedmuscle_lib.cli.notebook import SKELETON
from fedmuscle_lib.reproduce import declared, select
from fedmuscle_lib.reproduce.plan import settings_of

ROOT = Path(__file__).parents[2]
PATHS = [*sorted(NOTEBOOKS.glob("*.ipynb")), SKELETON]
TEACHING = [NOTEBOOKS / "muscle_loss.ipynb"]
OF_FEDMUSCLE = [path for path in select(["all"], NOTEBOOKS) if settings_of(path) is Settings]
TABLES = [*(path for path in OF_FEDMUSCLE if path not in TEACHING), SKELETON]
MOST_CELLS, MOST_LINES = 14, 25  # of a notebook, of a cell
CHECKED = {"nbval-check-output", "keep_output"}  # compared by nbval, kept by nbstripout


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
every_executed = pytest.mark.parametrize(
    "path", [*filter(code_cells, PATHS)], ids=lambda path: path.stem
)
every_table = pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)


def tags(cell):
    return set(cell.metadata.get("tags", []))


@as_committed
@every_notebook
def test_nothing_of_an_execution_is_left(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert set(notebook.metadata) - {"fedmuscle"} == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in code_cells(path):
        if tags(cell) & CHECKED:
            assert tags(cell) >= CHECKED
            assert cell.outputs and cell.execution_count, (
                f"{cell.id}: nbval passes a cell that was not run, whatever it prints"
            )
        else:
            assert not cell.outputs and cell.execution_count is None, cell.id
        assert set(cell.metadata) <= {"tags"}


@every_notebook
def test_cells_have_names(path):
    names = [cell.id for cell in nbformat.read(path, as_version=4).cells]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"[a-z]+[0-9]?(-[a-z]+)*", name), f"{name}: a name, not a random id"


@every_executed
def test_the_first_code_cell_is_the_only_parameters_cell(path):
    first, *others = code_cells(path)
    assert "parameters" in tags(first) and not any("parameters" in tags(cell) for cell in others)
    lines = first.source.splitlines()
    for statement in ast.parse(first.source).body:
        assert isinstance(statement, ast.AnnAssign), "name: type = literal"
        ast.literal_eval(statement.value)
        assert "  # " in lines[statement.lineno - 1], f"{statement.target.id} says what it is"
    assert {parameter.type for parameter in declared(path).values()} <= {
        "str",
        "int",
        "float",
        "bool",
        "list",
        "dict",
    }


@every_notebook
def test_no_path_of_a_machine(path):
    for cell in nbformat.read(path, as_version=4).cells:
        text = cell.source + str(cell.get("outputs", ""))
        assert not re.search(
            r"""["'\s(](/(home|root|tmp|work|usr|Users|mnt)/|~/|[A-Z]:\\)""", text
        ), cell.id


@every_executed
def test_notebooks_are_thin(path):
    assert len(nbformat.read(path, as_version=4).cells) <= MOST_CELLS
    assert max(len(cell.source.splitlines()) for cell in code_cells(path)) <= MOST_LINES


@every_table
def test_a_notebook_of_runs_has_seeds_and_overrides(path):
    names = set(declared(path))
    assert {"profile", "output"} <= names
    assert ("seeds" in names) == ("overrides" in names), (
        "a notebook of runs has both, one without runs neither"
    )


@every_executed
def test_parameters_that_papermill_hands_over_as_text_are_read(path):
    """``papermill -p`` can't say that a value is a list or a dict."""
    first, *others = code_cells(path)
    for name, parameter in declared(path).items():
        if (kind := parameter.type) in ("list", "dict"):
            assert any(
                f'literal("{name}", {name}, {kind})' in cell.source for cell in others[:2]
            ), name


@every_table
def test_every_parameter_can_name_the_folder_of_results_and_the_last_line_says_where_it_is(path):
    nodes = [node for cell in code_cells(path) for node in ast.walk(ast.parse(cell.source))]
    (folder,) = (
        node
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "results_folder"
    )
    assert [ast.unparse(argument) for argument in folder.args] == [
        repr("NAME" if path == SKELETON else path.stem),
        "profile",
        "output",
    ]
    passed = {keyword.arg for keyword in folder.keywords if keyword.arg}
    for own in (
        ast.unparse(keyword.value) for keyword in folder.keywords if not keyword.arg
    ):  # **own
        (given,) = (
            node.value
            for node in nodes
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == own
        )
        passed |= {ast.literal_eval(key) for key in given.keys}
    assert passed == set(declared(path)) - {"profile", "seeds", "output"}
    last = code_cells(path)[-1].source.splitlines()[-1]
    assert re.fullmatch(r"print\((report\.)?written\(folder\)\)", last)


@every_notebook
def test_it_begins_with_a_title_and_a_claim(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    assert len(first.source.splitlines()) > 2


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    text = "\n".join(
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
    )
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert link.startswith("https://") or (place(path).parent / link).exists(), link


def test_the_first_notebook_leads_to_all_others():
    text = json.dumps(nbformat.read(NOTEBOOKS / "00_start_here.ipynb", as_version=4))
    others = {
        path.relative_to(NOTEBOOKS).as_posix()
        for path in [*NOTEBOOKS.glob("*.ipynb"), *NOTEBOOKS.glob("lessons/*.ipynb")]
    }
    assert others - set(re.findall(r"\]\(([^)#]+)", text)) == {"00_start_here.ipynb"}


def test_notebooks_pass_the_linter_and_the_formatter():
    """`ruff format notebooks/*.ipynb` mends them."""
    for command in (["check"], ["format", "--check"]):
        own = ["--config", ROOT / "pyproject.toml", "--no-cache", *NOTEBOOKS.rglob("*.ipynb")]
        checked = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *own],
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout
