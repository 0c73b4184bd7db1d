"""What is true of every lesson: it was executed whole, its exercises wait for the student, and its
solutions are right.
"""

import re

import nbformat
import pytest
from lesson import (
    LESSONS,
    SOLUTIONS,
    assert_shows_what_it_kept,
    executed,
    verdicts,
)
from staged import NOTEBOOKS, as_committed, place

from fedmuscle_lib.lessons import EXERCISES
from fedmuscle_lib.reproduce import select

NAMES = sorted(path.stem for path in LESSONS.glob("*.ipynb"))
every_lesson = pytest.mark.parametrize("name", NAMES)


@as_committed
@pytest.mark.parametrize(
    "path",
    [folder / f"{name}.ipynb" for name in NAMES for folder in (LESSONS, SOLUTIONS)],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_outputs_are_kept_whole_and_know_no_machine(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 700_000
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), "it was executed once, from top to bottom"
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags", "jupyter"} and re.fullmatch(
            r"[a-z]+[0-9]?(-[a-z]+)*", cell.id
        )
        outputs = cell.get("outputs", [])
        assert all(
            output.output_type != "error" and output.get("name") != "stderr" for output in outputs
        ), cell.id
        texts = [
            output.get("text", "") + output.get("data", {}).get("text/plain", "")
            for output in outputs
        ]
        assert not re.search(
            r"""["'\s(](/(home|root|tmp|work|usr|Users|mnt)/|~/|[A-Z]:\\)""",
            "\n".join([cell.source, *texts]),
        ), cell.id
        for link in re.findall(
            r"\]\(([^)#]+)\)", cell.source if cell.cell_type == "markdown" else ""
        ):
            assert (place(path).parent / link).exists(), link


@every_lesson
def test_a_lesson_is_no_table_to_reproduce(name):
    assert name not in {path.stem for path in select([], NOTEBOOKS)}


@as_committed
@every_lesson
def test_every_exercise_waits_for_the_student_and_has_a_solution(name):
    asked, solved = (
        verdicts(nbformat.read(folder / f"{name}.ipynb", as_version=4))
        for folder in (LESSONS, SOLUTIONS)
    )
    assert asked and [name for name, _ in asked] == [name for name, _ in solved]
    assert len(asked) == len(set(asked))
    assert all(verdict.startswith("your turn") for _, verdict in asked) and {
        verdict for _, verdict in solved
    } == {"right."}


def test_every_exercise_is_asked_in_one_lesson():
    asked = [
        exercise
        for name in NAMES
        for exercise, _ in verdicts(nbformat.read(LESSONS / f"{name}.ipynb", as_version=4))
    ]
    assert sorted(asked) == sorted(EXERCISES)


@pytest.mark.slow
@every_lesson
def test_the_solutions_execute_and_every_one_is_right(name, tmp_path):
    fresh = executed(SOLUTIONS / f"{name}.ipynb", tmp_path)
    assert {verdict for _, verdict in verdicts(fresh)} == {"right."}
    assert_shows_what_it_kept(SOLUTIONS / f"{name}.ipynb", fresh)
