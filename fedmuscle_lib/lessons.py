"""Exercises of the lessons: :func:`check` tells a student whether an answer is right; every answer is in ``EXERCISES``.

>>> check("angle of 3 classes", ...)
angle of 3 classes: your turn. Put your answer in place of the dots, and run the cell again.
>>> check("angle of 3 classes", 90)
angle of 3 classes: not yet. Three arrows share a full turn.
>>> check("angle of 3 classes", 120)
angle of 3 classes: right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

Number = int | float


@dataclass(frozen=True)
class Exercise:
    """What is asked for.

    Attributes:
        answer: one number, several in a tuple, or one word of ``words``.
        hint: helps whoever is wrong, and doesn't contain the answer.
        tolerance: how far each number may be from the answer; rounding belongs here.
        slips: wrong answers that have a known reason -> a hint of their own.
        words: what can be chosen; empty where a number is asked for.
    """

    answer: Number | tuple[Number, ...] | str
    hint: str
    tolerance: float = 0.0
    slips: Mapping[Any, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()


_ROUNDED = 0.0501  # degrees: one decimal is enough
_COSINES = "The unit vectors of c classes sum to zero. Multiply that sum with itself: c ones, and c (c - 1) equal cosines, give 0."

EXERCISES: dict[str, Exercise] = {
    # neural_collapse
    "middle band": Exercise(
        "triangle",
        "The head compares scalar products. Ask where the middle class wins if the three means are in a line.",
        words=("point", "line", "triangle"),
    ),
    "angle of 3 classes": Exercise(
        120,
        "Three arrows share a full turn.",
        _ROUNDED,
        {60: "60 degrees is a corner of the triangle. The angle between two arrows from its centre is larger."},
    ),
    "angle of 4 classes": Exercise(
        109.4712,
        _COSINES,
        _ROUNDED,
        {
            90: "That is a cross in the plane, where opposite arrows are further apart than neighbours. Use the third dimension.",
            60: "60 degrees is a corner of a face. The angle between two arrows from the centre is larger.",
        },
    ),
    "angle of 10 classes": Exercise(
        96.3794, _COSINES, _ROUNDED, {36: "Ten arrows in a plane have near neighbours. There are more dimensions."}
    ),
    "angle of 100 classes": Exercise(
        90.5787, _COSINES, _ROUNDED, {90: "Close, but then all cosines would be zero, and they have to be a little below it."}
    ),
    "dimensions for 10 classes": Exercise(
        9,
        "Three classes fit in a plane, four in space. Which of the vectors follows from the others, since they sum to zero?",
        slips={10: "The construction above takes that many, but one direction stays empty: the vectors sum to zero."},
    ),
    "two rare classes": Exercise(
        "closes",
        "Whom does the frequent class push away, and how often do the two rare ones push each other?",
        words=("closes", "stays", "opens"),
    ),
    "zeros in the matrix": Exercise(
        384,
        "Count all entries of the matrix first. The share of zeros is of the whole matrix, and the whole part of the product counts.",
        slips={256: "That is how many entries survive."},
    ),
    "row of norm 1.7": Exercise(
        (1.02, 1.36),
        "Divide the row by its length, then multiply it by the new length. The direction stays.",
        0.00501,
        {(5.1, 6.8): "The row was multiplied by the new length, but not divided by its old one."},
    ),
    "norm of all rows": Exercise(
        "none",
        "Multiply every logit by the same positive number. Which class has the largest one?",
        words=("none", "some", "all"),
    ),
    "bytes of a trained head": Exercise(
        204_800,
        "One number for each class and feature, and each has 32 bits.",
        slips={
            51_200: "That is how many numbers they are. Each takes more than one byte.",
            1_638_400: "Those are bits.",
            409_600: "Up and down are two messages; one is asked for.",
        },
    ),
}


def check(name: str, value: Any) -> None:
    """Print whether ``value`` answers the exercise: right, not yet with a hint, or your turn where it is still ``...``.

    Args:
        name: of the exercise, a key of ``EXERCISES``.
        value: a number, numbers (list, array or tensor) or a word.

    Raises:
        ValueError: no exercise has this name.
    """
    if name not in EXERCISES:
        near = get_close_matches(name, EXERCISES, n=1)
        raise ValueError(f"no exercise is called {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    print(f"{name}: {_verdict(EXERCISES[name], value)}")


def _verdict(exercise: Exercise, value: Any) -> str:
    if value is None or value is ...:
        return "your turn. Put your answer in place of the dots, and run the cell again."
    given, wanted = (_numbers(one, exercise.words) for one in (value, exercise.answer))
    assert wanted is not None
    if given is None or given.shape != wanted.shape:
        return f"not yet. Answer with {_form(exercise)}."
    if _near(given, wanted, exercise.tolerance):
        return "right."
    slips = (hint for slip, hint in exercise.slips.items() if _near(given, np.asarray(slip), exercise.tolerance))
    return f"not yet. {next(slips, exercise.hint)}"


def _numbers(value: Any, words: tuple[str, ...]) -> np.ndarray | None:
    """What was answered, as numbers; a word is its place among ``words``. None if it is neither."""
    if words:
        word = str(value).strip().lower()
        return np.asarray(words.index(word)) if word in words else None
    try:
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, dtype=float).squeeze()
    except (TypeError, ValueError):
        return None


def _near(given: np.ndarray, wanted: np.ndarray, tolerance: float) -> bool:
    return bool((np.abs(given - wanted) <= tolerance).all())


def _form(exercise: Exercise) -> str:
    if exercise.words:
        return "one word: " + ", ".join(exercise.words)
    return f"{len(exercise.answer)} numbers" if isinstance(exercise.answer, tuple) else "a number"
