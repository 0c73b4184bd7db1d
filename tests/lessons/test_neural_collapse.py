"""The lesson on neural collapse: it runs, what its text claims is so, and its answers follow from
first principles.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lesson import LESSONS, assert_answers, assert_shows_what_it_kept

from fedmuscle_lib.fedloge.etf import sparse_etf

LESSON = LESSONS / "neural_collapse.ipynb"
MEASURED = """
import json
angle_of = lambda results: [torch.stack([angles(one)[2] for one in rows]).mean().item() for rows, _ in results]
norm_of = lambda results: [rows[:, 2].norm(dim=1).mean().item() for rows, _ in results]
print(json.dumps({
    "means": of_means[-1].tolist(), "rows": of_rows[-1].tolist(), "spread": spread[[3, -1]].tolist(), "middle": of_means[3].tolist(),
    "angle": {case: angle_of(results) for case, results in learned.items()},
    "norm": {case: norm_of(results) for case, results in learned.items()},
    "fixed": [angle for results in fixed.values() for angle in angle_of(results)],
}))
"""


# --- executed


def test_the_lesson_executes_and_shows_what_it_kept(lesson):
    assert_shows_what_it_kept(LESSON, lesson)


def test_three_balanced_classes_collapse_from_a_line_to_a_triangle(measured):
    assert measured["middle"][1] > 170, "A and C are opposite at step 30"
    assert measured["means"] == pytest.approx([120] * 3, abs=3) and measured[
        "rows"
    ] == pytest.approx([120] * 3, abs=3)
    early, late = measured["spread"]
    assert late < 0.03 and early > 5 * late


def test_rows_of_rare_classes_shrink_and_close_up_and_fixed_ones_do_not(measured):
    for case in ("C is rare", "B and C are rare"):
        balanced, _, extreme = measured["norm"][case]
        assert extreme < 0.85 * balanced
        assert measured["angle"][case] == sorted(measured["angle"][case], reverse=True)
        assert measured["angle"][case][0] == pytest.approx(120, abs=3)
    assert measured["angle"]["B and C are rare"][-1] < 70 < 100 < measured["angle"]["C is rare"][-1]
    assert measured["fixed"] == pytest.approx([120] * 6, abs=1e-3)


# --- the answers


def angle_from_the_centre(corners: int) -> float:
    """Degrees between two corners of a regular simplex, seen from its centre: unit vectors of a
    room are all equally far apart.
    """
    simplex = np.eye(corners)
    first, second, *_ = simplex - simplex.mean(0)
    return float(
        np.degrees(np.arccos(first @ second / (np.linalg.norm(first) * np.linalg.norm(second))))
    )


def test_the_answers_follow_from_first_principles(measured, capsys):
    logits = np.random.default_rng(0).normal(size=(100, 10))
    simplex = np.eye(10)
    known = {
        "middle band": "triangle" if max(measured["means"]) < 150 else "line",
        **{
            f"angle of {corners} classes": angle_from_the_centre(corners)
            for corners in (3, 4, 10, 100)
        },
        "dimensions for 10 classes": np.linalg.matrix_rank(simplex - simplex.mean(0)),
        "two rare classes": (
            "closes" if measured["angle"]["B and C are rare"][-1] < 110 else "stays"
        ),
        "zeros in the matrix": sum(
            value == 0
            for row in sparse_etf(64, 10, torch.Generator().manual_seed(1), steps=0).tolist()
            for value in row
        ),
        "row of norm 1.7": 1.7 * np.array([3, 4]) / np.hypot(3, 4),
        "norm of all rows": (
            "none" if (logits.argmax(1) == (logits / 1.7).argmax(1)).all() else "some"
        ),
        "bytes of a trained head": len(np.zeros((100, 512), dtype=np.float32).tobytes()),
    }
    assert_answers(LESSON, known, capsys)
    assert [round(known[f"angle of {corners} classes"], 2) for corners in (3, 4, 10, 100)] == [
        120,
        109.47,
        96.38,
        90.58,
    ]
    assert (known["zeros in the matrix"], known["bytes of a trained head"]) == (384, 204_800)
