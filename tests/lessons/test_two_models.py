"""Lesson 1: it runs, what its text claims is so, and its answers follow from first principles."""

import math

import numpy as np
import pytest
from lesson import LESSONS, assert_answers, assert_shows_what_it_kept

LESSON = LESSONS / "1_two_models.ipynb"
MEASURED = """
import json
print(json.dumps({
    "within": [(z[user] @ z[user].T).tolist() for user in (1, 2)], "before": before.tolist(), "after": after.tolist(),
    "strangers": strangers, "right": right, "losses": losses.tolist(),
    "shapes": [[list(weights.shape) for weights in bodies[user].parameters()] for user in (1, 2)],
    "lots": [one.tolist() for one in (first, second, public, new)],
}))
"""


def test_the_lesson_executes_and_shows_what_it_kept(lesson):
    assert_shows_what_it_kept(LESSON, lesson)


def test_alignment_makes_the_diagonal_and_reaches_new_pictures(measured):
    after, losses = np.array(measured["after"]), np.array(measured["losses"])
    assert after.diagonal().min() > 0.8 > 0.7 > after[~np.eye(3, dtype=bool)].max()
    assert losses[-20:].mean() < 1.3 < math.log(32) < losses[0].min()


# --- the answers


def loss(table, tau):
    """InfoNCE of a table of similarities, as the definition has it."""
    return -np.mean(
        [
            math.log(math.exp(row[i] / tau) / sum(math.exp(one / tau) for one in row))
            for i, row in enumerate(table)
        ]
    )


def pull_and_push(shares, h=1e-6):
    """Factors of the other user's vectors in minus the gradient, by finite differences in
    coordinates along these vectors.
    """
    logits = np.log(shares)
    value = lambda moved: -moved[0] + math.log(np.exp(moved).sum())  # noqa: E731
    return [
        (value(logits - h * axis) - value(logits + h * axis)) / (2 * h)
        for axis in np.eye(len(shares))
    ]


def what_a_rotation_changes():
    draws = np.random.default_rng(0)
    one, two = draws.normal(size=(2, 3, 16))
    turned = two @ np.linalg.qr(draws.normal(size=(16, 16)))[0]
    within, between = (
        np.abs(turned @ turned.T - two @ two.T).max(),
        np.abs(one @ turned.T - one @ two.T).max(),
    )
    return {(False, True): "between", (True, False): "within", (True, True): "both"}[
        bool(within > 1e-9), bool(between > 1e-9)
    ]


def test_the_answers_follow_from_first_principles(measured, capsys):
    agreeing, blind = np.eye(3), np.tile(np.random.default_rng(0).normal(size=(3, 1)), 3)
    known = {
        "diagonal of strangers": "no different" if measured["strangers"] <= 5 else "larger",
        "rotation of one user": what_a_rotation_changes(),
        "bytes of one matrix Z": len(np.zeros((32, 256), dtype=np.float32).tobytes()),
        "InfoNCE of three orthogonal pictures, tau = 1": loss(agreeing, 1),
        "InfoNCE of three orthogonal pictures, tau = 0.2": loss(agreeing, 0.2),
        "InfoNCE beside a blind user": loss(blind, 0.2),
        "pull and push": np.array(pull_and_push([0.5, 0.3, 0.2])[:2]),
        "head of user 1 on user 2": "most" if measured["right"]["after"][1] > 65 else "half",
    }
    assert_answers(LESSON, known, capsys, near=1e-6)
    assert known["InfoNCE of three orthogonal pictures, tau = 1"] == pytest.approx(
        math.log(math.e + 2) - 1
    )
    assert known["InfoNCE beside a blind user"] == pytest.approx(loss(blind, 7)), (
        "at any temperature"
    )
