"""Read and execute the notebook of a lesson."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import papermill
import pytest

ROOT = Path(__file__).parents[2]
LESSONS = ROOT / "notebooks/lessons"
SOLUTIONS = LESSONS / "solutions"


def executed(path: Path, folder: Path, *further: str) -> nbformat.NotebookNode:
    """The notebook as a kernel of its own executes it, with further cells at its end."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in further]
    nbformat.write(notebook, folder / path.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("MPLBACKEND", raising=False)  # figures are drawn into the notebook
        return papermill.execute_notebook(folder / path.name, None, cwd=folder, progress_bar=False)


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(output.text for output in cell.get("outputs", []) if output.output_type == "stream" and output.name == "stdout")


def by_name(notebook: nbformat.NotebookNode) -> dict[str, nbformat.NotebookNode]:
    return {cell.id: cell for cell in notebook.cells}


def verdicts(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """Exercise and verdict of every check."""
    lines = "".join(printed(cell) for cell in notebook.cells if re.search(r"^ *check\(", cell.source, re.MULTILINE)).splitlines()
    return [tuple(line.split(": ", 1)) for line in lines]
