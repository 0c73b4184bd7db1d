"""The site: it has every document, lesson and notebook, its pages show what is kept, and it builds without a warning."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import site_pages
from nbformat.v4 import new_code_cell, new_output
from site_pages import Reference, filled, lay, references

from fedmuscle_lib.report.provenance import runs_of

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def laid(tmp_path_factory):
    """The folder of the site's sources."""
    target = tmp_path_factory.mktemp("site") / "sources"
    lay(target)
    return target


def test_every_document_lesson_and_notebook_is_a_page(laid):
    places = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("notebooks/**/*.ipynb"), *ROOT.glob("figures/*/*.md")]
    pages = {"index.md" if path == ROOT / "README.md" else path.relative_to(ROOT).as_posix() for path in places}
    contents = (laid / "index.md").read_text()
    for page in pages:
        assert (laid / page).is_file()
        assert page == "index.md" or re.search(rf"(^|<){re.escape(page)}>?$", contents, re.MULTILINE), f"{page} is in no table of contents"


def test_every_reference_is_on_a_page_with_its_figures(laid):
    folders = {path.parent for path in ROOT.glob("figures/*/*/provenance.json")}
    assert folders == {reference.folder for reference in references()}
    for reference in references():
        cells = nbformat.read(laid / reference.page.relative_to(ROOT), as_version=4).cells
        kinds = [kind for cell in cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
        shown = len([kind for kind in kinds if kind.startswith("image/")])
        assert shown >= len(list(reference.folder.glob("*.svg"))), reference.folder  # an executed notebook may show more than it saves


def test_links_to_folders_of_results_lead_to_their_pages(laid):
    results = (laid / "RESULTS.md").read_text()
    assert "](notebooks/controls.ipynb" in results and "](notebooks/controls_setup1_vit_small.ipynb" in results
    assert "](figures/" not in results


@pytest.fixture
def reference(tmp_path):
    """A copy of a reference, to which an execution can be added."""
    folder = tmp_path / "mini/table7"
    shutil.copytree(ROOT / "figures/mini/table7", folder, ignore=shutil.ignore_patterns("executed*"))
    return Reference(ROOT / "notebooks/table7.ipynb", folder)


def execute(reference, ended):
    """Write an execution of the reference's notebook that printed "seen" below each cell of code."""
    notebook = nbformat.read(reference.notebook, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [new_output("stream", name="stdout", text="seen")]
    notebook.cells.insert(2, new_code_cell("profile = 'mini'"))
    notebook.metadata.papermill = {"end_time": ended}
    nbformat.write(notebook, reference.folder / "executed.ipynb")


def test_what_cells_say_of_a_reference_is_shown_without_its_execution(reference):
    cell = next(cell.id for cell in nbformat.read(reference.notebook, as_version=4).cells if "report.note" in cell.source)
    (reference.folder / "sentences.json").write_text(json.dumps({cell: "**Nobody gains.**"}))
    shown = next(each.outputs for each in filled(reference, []).cells if each.get("id") == cell)
    assert [output.data.get("text/markdown") for output in shown][-1] == "**Nobody gains.**" and "text/html" in shown[0].data


def test_a_table_stands_below_the_cell_that_shows_it_alone():
    folder = ROOT / "figures/mini/fedloge_realign"
    cells = filled(Reference(ROOT / "notebooks/fedloge_realign.ipynb", folder), []).cells
    tables = [cell.source for cell in cells for output in cell.get("outputs", []) if "text/html" in output.get("data", {})]
    assert sum("run_methods" in source for source in tables) == 0 and sum("display(overview)" in source for source in tables) == 1


def test_every_cell_of_a_reference_shows_something_in_a_clone(monkeypatch):
    monkeypatch.setattr(site_pages, "_executed", lambda folder: {})  # git does not have it
    for reference in references():
        code = [cell for cell in filled(reference, []).cells if cell.cell_type == "code"]
        silent = [cell.source for cell in code[2:] if not cell.outputs]  # after the parameters and the runs
        assert not silent, reference.folder


def printed(reference):
    return [output.get("text") for cell in filled(reference, []).cells for output in cell.get("outputs", [])]


def test_an_execution_beside_the_reference_is_shown_unless_a_run_is_newer(reference):
    runs = runs_of(reference.folder)
    last = max(run["finished"] for run in runs)
    execute(reference, ended="2999-01-01T00:00:00+00:00")
    assert set(printed(reference)) == {"seen"}
    execute(reference, ended=min(run["finished"] for run in runs))
    assert last > min(run["finished"] for run in runs) and "seen" not in printed(reference)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(laid, tmp_path):
    pytest.importorskip("myst_nb", reason="the site's packages are not installed: make site installs them")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "-c",
        ROOT / "docs/site",
        laid,
        tmp_path / "site",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/index.html").is_file()
