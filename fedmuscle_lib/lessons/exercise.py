"""An exercise: what is asked for, and what a student is told of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_ROUNDED = 0.02  # of the answer


@dataclass(frozen=True)
class Exercise:
    """A question to the student.

    Attributes:
        answer: one number, several in a list, or one word of ``words``.
        hint: helps whoever is wrong, and doesn't contain the answer.
        tolerance: how far each number may be from the answer. Within 2 % it is right but rounded,
            unless the answer is a count (0).
        percent: whether the answer is in per cent, so that a fraction is nearly right.
        slips: wrong answers that have a known reason, each with a hint of its own.
        words: what can be chosen; empty where a number is asked for.
    """

    answer: float | list[float] | str
    hint: str
    tolerance: float = 0.0
    percent: bool = False
    slips: Sequence[tuple[Any, str]] = ()
    words: Sequence[str] = ()


def verdict(exercise: Exercise, value: Any) -> str:
    """ "right.", also rounded or as a fraction, "not yet." with a hint, or "your turn." where the
    answer is still ``...``.
    """
    if value is None or value is ...:
        return "your turn. Put your answer in place of the dots, and run the cell again."
    given, wanted = (_numbers(one, exercise.words) for one in (value, exercise.answer))
    assert wanted is not None
    if given is None or given.shape != wanted.shape:
        return f"not yet. Answer with {_form(exercise)}."
    if _near(given, wanted, exercise.tolerance):
        return "right."
    slips = (
        hint for slip, hint in exercise.slips if _near(given, np.asarray(slip), exercise.tolerance)
    )
    if hint := next(slips, ""):
        return f"not yet. {hint}"
    if exercise.tolerance and _near(given, wanted, _ROUNDED * np.abs(wanted)):
        return "right, but rounded."
    if exercise.percent and _near(100 * given, wanted, _ROUNDED * np.abs(wanted)):
        return "right as a fraction. Per cent were asked for."
    return f"not yet. {exercise.hint}"


def _numbers(value: Any, words: Sequence[str]) -> np.ndarray | None:
    """Return what was answered, as numbers; a word is its place among ``words``.

    None if it is neither.
    """
    if words:
        word = str(value).strip().lower()
        return np.asarray(words.index(word)) if word in words else None
    try:
        return np.asarray(
            value.detach().cpu() if hasattr(value, "detach") else value, dtype=float
        ).squeeze()
    except (TypeError, ValueError):
        return None


def _near(given: np.ndarray, wanted: np.ndarray, tolerance: float | np.ndarray) -> bool:
    return bool((np.abs(given - wanted) <= tolerance).all())


def _form(exercise: Exercise) -> str:
    if exercise.words:
        return "one word: " + ", ".join(exercise.words)
    return f"{len(exercise.answer)} numbers" if isinstance(exercise.answer, list) else "a number"
