"""Lesson 4: it runs, what its text claims is so, and its answers follow from first principles."""

from __future__ import annotations

from collections import Counter
from itertools import count, product
from math import exp, sqrt

import numpy as np
import pytest
from lesson import LESSONS, assert_answers, assert_shows_what_it_kept

LESSON = LESSONS / "4_bound.ipynb"
ALIKE = 0.5 * np.eye(3) + 0.5
MEASURED = """
import json
print(json.dumps({
    "curves": {f"{name}: {kind}": found for (name, kind), found in curves.items()},
}))
"""


def test_the_lesson_executes_and_shows_what_it_kept(lesson):
    assert_shows_what_it_kept(LESSON, lesson)


def test_the_bound_holds_for_independent_others_and_depends_on_the_critic_for_others_alike(
    measured,
):
    information, total = information_and_total(ALIKE)
    assert information == pytest.approx(1.62, abs=0.005) and total == pytest.approx(2.77, abs=0.005)
    curves = measured["curves"]
    left = curves["x and y independent: theorem"]
    assert left == pytest.approx(curves["x and y independent: full"]) and left == sorted(left)
    assert left[-1] == pytest.approx(total, abs=0.1) and left[0] < total - 1, (
        "there both are the same number"
    )
    theorem, full = (curves[f"x and y alike: {kind}"] for kind in ("theorem", "full"))
    assert theorem[-1] == pytest.approx(information, abs=0.1) and theorem[0] < 0.7 * information
    assert full[0] < information < full[1], "passes the truth at B = 8"
    assert full == sorted(full) and full[-1] == pytest.approx(total, abs=0.1)


# --- the answers


def information_and_total(covariance, d=8):
    """Of Gaussians, in nats: I(first; others) and the total correlation."""
    joint, others = (np.log(np.linalg.det(part)) for part in (covariance, covariance[1:, 1:]))
    return d / 2 * (others - joint), -d / 2 * joint


def bits(outcomes, *views):
    counts = Counter(tuple(outcome[view] for view in views) for outcome in outcomes)
    return sum(n / len(outcomes) * np.log2(len(outcomes) / n) for n in counts.values())


def shared(outcomes, *others):
    return bits(outcomes, 0) + bits(outcomes, *others) - bits(outcomes, 0, *others)


def best_through_pairs() -> float:
    """The largest limit of M log B - loss on z = x y = +-1 over a grid of critics exp(a z (x + y) -
    g x y), negative ones too.
    """
    views = [(x * y, x, y) for x, y in product([-1, 1], repeat=2)]
    best = -np.inf
    for a, g in product(np.linspace(-2, 2, 41), repeat=2):
        score = np.array(
            [[a * z * (x + y) - g * x * y for _, x, y in views] for z, *_ in views]
        )  # [z of row, tuple of column]
        best = max(best, score.diagonal().mean() - np.log(np.exp(score).mean(1)).mean())
    return best


def volume(*vectors):
    rows = np.stack(vectors)
    return sqrt(np.linalg.det(rows @ rows.T))


def test_the_answers_follow_from_first_principles(measured, capsys):
    xor = [(x ^ y, x, y) for x, y in product([0, 1], repeat=2)]
    coin = [(side,) * 3 for side in (0, 1)]
    tuples = Counter(len(set(indices)) for indices in product(range(32), repeat=3))
    precision = [-np.linalg.inv(0.5 * np.eye(n) + 0.5)[0, 1] for n in (3, 2)]
    z, x, y = np.random.default_rng(0).normal(size=(3, 8))
    full = measured["curves"]["x and y alike: full"][-1]
    known = {
        "information in xor": np.array([shared(xor, 1), shared(xor, 1, 2)]),
        "three views of one coin": np.array(
            [
                shared(coin, 1, 2),
                sum(bits(coin, view) for view in range(3)) - bits(coin, 0, 1, 2),
            ]
        ),
        "batch for 5 nats": next(b for b in count(1) if b >= exp(5)),
        "tuples for each matched one": sum(tuples.values()) / tuples[1],
        "best critic and large batch": (
            "above" if full > information_and_total(ALIKE)[0] else "below"
        ),
        "temperatures of three Gaussians": np.array(precision),
        "xor through pairs": best_through_pairs(),
        "volume of the opposite anchor": (
            "equal" if volume(-z, x, y) == pytest.approx(volume(z, x, y)) else "larger"
        ),
    }
    assert_answers(LESSON, known, capsys)
