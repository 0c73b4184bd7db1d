"""Read and execute the notebook of a lesson, and what its tests share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.utils.capture import capture_output
from matplotlib import rc_context
from staged import NOTEBOOKS
from traitlets.config import Config

from fedmuscle_lib.lessons import EXERCISES, check

ROOT = Path(__file__).parents[2]
LESSONS = NOTEBOOKS / "lessons"
SOLUTIONS = LESSONS / "solutions"


def executed(path: Path, folder: Path, *further: str) -> nbformat.NotebookNode:
    """The notebook as a fresh shell of this process executes it in ``folder``, with further cells
    at its end.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in further]
    with pytest.MonkeyPatch.context() as patch, rc_context():
        patch.chdir(folder)
        patch.setenv("IPYTHONDIR", str(folder))
        shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
        shell.display_trap.hook = lambda value: (
            value is None or display(value)
        )  # where it is captured
        try:
            for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
                with capture_output() as told:
                    shell.run_cell(cell.source).raise_error()
                cell.outputs = [
                    nbformat.v4.new_output("display_data", output._repr_mimebundle_()[0])
                    for output in told.outputs
                ]
                cell.outputs += (
                    [nbformat.v4.new_output("stream", text=told.stdout)] if told.stdout else []
                )
        finally:
            InteractiveShell.clear_instance()
    return notebook


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(
        output.text
        for output in cell.get("outputs", [])
        if output.output_type == "stream" and output.name == "stdout"
    )


def by_name(notebook: nbformat.NotebookNode) -> dict[str, nbformat.NotebookNode]:
    return {cell.id: cell for cell in notebook.cells}


def verdicts(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """Exercise and verdict of every check."""
    lines = "".join(
        printed(cell)
        for cell in notebook.cells
        if re.search(r"^ *check\(", cell.source, re.MULTILINE)
    ).splitlines()
    return [tuple(line.split(": ", 1)) for line in lines]


_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?")


def shown(cell: nbformat.NotebookNode) -> str:
    """What a cell printed, and the sentences that it made."""
    return printed(cell) + "".join(
        output.data.get("text/markdown", "")
        for output in cell.get("outputs", [])
        if "data" in output
    )


def alike(kept: str, fresh: str) -> bool:
    """Whether two texts have the same words, and numbers a fifth, or ten units of the last digit,
    apart at most.

    That is room for a training on another processor, where float32 rounds otherwise.
    """
    texts = [text.replace(",", "") for text in (kept, fresh)]
    if len({tuple(_NUMBER.sub("0", text).split()) for text in texts}) > 1:
        return False
    numbers = zip(*(map(Decimal, _NUMBER.findall(text)) for text in texts), strict=True)
    return all(
        abs(new - old) <= max(abs(old) / 5, 10 * Decimal((0, (1,), old.as_tuple().exponent)))
        for old, new in numbers
    )


def not_as_kept(kept: nbformat.NotebookNode, fresh: nbformat.NotebookNode) -> list[str]:
    """Names of the cells that show something else than they kept.

    A cell shows the very same text. With the tag ``trained`` it is :func:`alike`. With
    ``nbval-ignore-output`` it is not compared: it shows what a clock said, or a training so long
    that another processor ends elsewhere. What the text claims of the latter has tests of its own.
    """
    now, found = by_name(fresh), []
    for name, cell in by_name(kept).items():
        tags = cell.metadata.get("tags", [])
        same = alike if "trained" in tags else str.__eq__
        if "nbval-ignore-output" not in tags and not same(shown(cell), shown(now[name])):
            found.append(name)
    return found


def assert_shows_what_it_kept(path: Path, fresh: nbformat.NotebookNode) -> None:
    """An executed lesson shows the verdicts, words and numbers that its notebook keeps."""
    assert not_as_kept(nbformat.read(path, as_version=4), fresh) == [], (
        "execute it anew (make lessons), and read its text again"
    )


def assert_answers(
    path: Path, known: Mapping[str, Any], capsys: pytest.CaptureFixture[str], near: float = 1e-4
) -> None:
    """The lesson asks for what is ``known``.

    That is right and within ``near`` of the answer; 2 % beside it, or another word, is wrong.
    """
    assert {name for name, _ in verdicts(nbformat.read(path, as_version=4))} == set(known)
    for name, value in known.items():
        exercise = EXERCISES[name]
        if exercise.words:
            assert exercise.answer == value
            wrong = next(word for word in exercise.words if word != value)
        else:
            assert np.asarray(exercise.answer) == pytest.approx(np.asarray(value), abs=near)
            wrong = 1.05 * np.asarray(value) + 0.05
        check(name, value)
        check(name, wrong)
        right, beside = capsys.readouterr().out.splitlines()
        assert right == f"{name}: right." and beside.startswith(f"{name}: not yet. ")
