"""Exercises of the lessons: :func:`check` tells a student whether an answer is right; each lesson's
answers are a TOML file here.

>>> check("angle of 3 classes", ...)
angle of 3 classes: your turn. Put your answer in place of the dots, and run the cell again.
>>> check("angle of 3 classes", 90)
angle of 3 classes: not yet. Three arrows share a full turn.
>>> check("angle of 3 classes", 120)
angle of 3 classes: right.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fedmuscle_lib.core.registry import check_known
from fedmuscle_lib.lessons.exercise import Exercise, verdict

EXERCISES: dict[str, Exercise] = {
    name: Exercise(**about)
    for path in sorted(Path(__file__).parent.glob("*.toml"))
    for name, about in tomllib.loads(path.read_text(encoding="utf8")).items()
}


def check(name: str, value: Any) -> None:
    """Print whether ``value`` answers the exercise: right, not yet with a hint, or your turn where
    it is still ``...``.

    Args:
        name: of the exercise, unique among all lessons.
        value: a number, numbers (list, array or tensor) or a word.

    Raises:
        ValueError: no exercise has this name.
    """
    check_known("no exercise is called", name, EXERCISES)
    print(f"{name}: {verdict(EXERCISES[name], value)}")
