"""What a student reads who answers an exercise."""

import re

import numpy as np
import pytest
import torch

from fedmuscle_lib.lessons import EXERCISES, check

every_exercise = pytest.mark.parametrize("name", EXERCISES)


@pytest.fixture
def said(capsys):
    """What ``check`` prints after the exercise's name."""

    def ask(name, value):
        check(name, value)
        asked, verdict = capsys.readouterr().out.rstrip("\n").split(": ", 1)
        assert asked == name and "\n" not in verdict
        return verdict

    return ask


@every_exercise
def test_dots_are_no_answer_and_the_answer_is_right(name, said):
    assert said(name, ...).startswith("your turn") and said(name, None).startswith("your turn")
    assert said(name, EXERCISES[name].answer) == "right."


@every_exercise
def test_whoever_is_wrong_reads_a_hint_and_never_the_answer(name, said):
    exercise = EXERCISES[name]
    wrong = [word for word in exercise.words if word != exercise.answer] or [
        1.5 * np.asarray(exercise.answer) + 1,
        np.nan * np.asarray(exercise.answer),
    ]
    hints = {said(name, value) for value in wrong}
    assert hints == {f"not yet. {exercise.hint}"}
    for slip, hint in exercise.slips:
        assert said(name, slip) == f"not yet. {hint}"
        hints.add(hint)
    answers = (
        {exercise.answer}
        if exercise.words
        else {f"{number:g}" for number in np.ravel(exercise.answer)}
    )
    for answer in answers:
        assert not any(
            re.search(rf"(?<![\d.]){re.escape(answer)}(?![\d])", hint.replace(",", ""))
            for hint in hints
        )


def test_answers_are_read_as_students_give_them(said):
    for value in (
        120,
        "120",
        120.04,
        np.float32(119.96),
        torch.tensor([120.0], requires_grad=True),
    ):
        assert said("angle of 3 classes", value) == "right."
    assert said("two rare classes", " Closes ") == "right."
    for value in ((1.02, 1.36), [1.02, 1.36], torch.tensor([[1.02, 1.36]])):
        assert said("row of norm 1.7", value) == "right."
    assert said("row of norm 1.7", (1.02, 1.40)).startswith("not yet")
    assert said("zeros in the matrix", 384.4).startswith("not yet"), "a count is exact"


def test_a_rounded_answer_and_a_fraction_are_right_and_say_so(said):
    assert said("angle of 4 classes", 110) == "right, but rounded."
    assert said("angle of 4 classes", 112).startswith("not yet")
    assert said("terms and numbers between the others", [1_050_000, 3072]).startswith("not yet")
    for value in (0.267, 0.27):
        assert said("delta of the paper's cells", value).startswith("right as a fraction")
    assert said("improvement over the tuned baseline", 0).startswith("not yet")


def test_a_misspelt_exercise_is_refused_by_name():
    with pytest.raises(
        ValueError,
        match="no exercise is called 'angle of 3 clases'; did you mean 'angle of 3 classes'",
    ):
        check("angle of 3 clases", 120)
    with pytest.raises(ValueError, match="no exercise is called 'xyz'$"):
        check("xyz", 120)
