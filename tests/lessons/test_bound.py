"""Lesson 4: it runs, what its text claims is so, and its answers follow from first principles."""

from __future__ import annotations

import csv
from collections import Counter
from itertools import count, pairwise, product
from math import exp, log, sqrt

import numpy as np
import pytest
from lesson import LESSONS, ROOT, assert_answers, assert_shows_what_it_kept, by_name, printed

from fedmuscle_lib.muscle.gaussian import correlated, critics, limit

LESSON = LESSONS / "4_bound.ipynb"
ALIKE = 0.5 * np.eye(3) + 0.5
MEASURED = """
import json
print(json.dumps({
    "venn": [sqrt(6 / pi), apart(6, 2)], "ceilings": ceilings,
    "curves": {f"{name}: {kind}": found for (name, kind), found in curves.items()},
    "dial": [gammas, *on_dial.values()], "agreed": agreed,
    "turned": {f"{title}: {name}": losses for (title, name), losses in turned.items()},
}))
"""


def test_the_lesson_executes_and_shows_what_it_kept(lesson):
    assert_shows_what_it_kept(LESSON, lesson)


def test_circles_overlap_as_the_views_do(measured):
    r, side = measured["venn"]
    centres = [(0, side * sqrt(3) / 2), (-side / 2, 0), (side / 2, 0)]
    x, y = np.meshgrid(*[np.linspace(-4, 4, 2001)] * 2)
    z, first, second = (np.hypot(x - a, y - b) < r for a, b in centres)
    areas = [
        area.sum() * (8 / 2000) ** 2 for area in (z, z & first, first & second, z & first & second)
    ]
    assert areas == pytest.approx([6, 2, 2, 1], rel=0.015) and areas[-1] > 1.005, (
        "the middle is drawn about 1 % too large"
    )


def test_infonce_is_a_lower_bound_under_its_ceiling(measured):
    for b, found in measured["ceilings"].items():
        truths = 0.25 * np.arange(33)
        assert (np.array(found) < truths + 0.2).all() and max(found) < log(int(b))
    assert measured["ceilings"]["8"][-1] > 0.97 * log(8)


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


def test_more_models_widen_the_gap_and_the_truth_saturates(measured):
    truths = [information_and_total(0.5 * np.eye(m + 1) + 0.5)[0] for m in range(1, 5)]
    steps = [late - early for early, late in pairwise(truths)]
    assert steps == sorted(steps, reverse=True) and steps[-1] < 0.2
    theorem, full = (
        np.array(measured["curves"][f"all models alike: {kind}"]) for kind in ("theorem", "full")
    )
    assert (theorem < truths).all() and (full[1:] > truths[1:]).all()
    gaps = (full - truths).tolist()
    assert gaps == sorted(gaps)


def test_the_theorems_critic_ends_slightly_above_the_truth_in_the_limit():
    """M log B - loss tends to I - E log c(z), c being the mean of f* over mixed tuples: its log's
    mean is negative, as c's mean is 1.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights /= weights.sum()
    conditional = ALIKE[0, 1:] @ np.linalg.inv(ALIKE[1:, 1:])
    spread = sqrt(1 - conditional @ ALIKE[1:, 0])
    mean = conditional[0] * nodes[:, None] + conditional[1] * nodes  # of z, given x and y

    def c(z):
        ratio = np.exp(-(((z - mean) / spread) ** 2) / 2 + z * z / 2) / spread
        return weights @ ratio @ weights

    values = np.array([c(z) for z in nodes])
    assert weights @ values == pytest.approx(1, abs=1e-3)
    assert -8 * (weights @ np.log(values)) == pytest.approx(0.03, abs=0.005)
    alike = correlated(2, 0.5, 0.5)
    in_closed_form = limit(critics(alike)["theorem"], alike, d=8) - information_and_total(ALIKE)[0]
    assert -8 * (weights @ np.log(values)) == pytest.approx(in_closed_form, abs=1e-4)


def test_the_dial_is_honest_at_the_theorems_gamma_and_lowest_elsewhere(measured):
    gammas, alike, independent = (np.array(values) for values in measured["dial"])
    information, total = information_and_total(ALIKE)
    assert gammas[alike.argmax()] < -1 and information < alike.max() < total
    at = np.interp(8 * (2 / 3 - 1 / 2), gammas, alike)
    assert at < information < np.interp(0, gammas, alike)
    assert gammas[independent.argmax()] > 0.5


def test_models_that_agree_break_the_bound(measured):
    found = {int(m): values for m, values in measured["agreed"].items()}
    assert max(found[1]) < log(64)
    for m in (2, 3):
        assert found[m][-2] > log(64) + 1 and max(found[m]) < m * log(64)


def test_pairwise_alignment_sees_no_difference_where_the_muscle_loss_does(lesson):
    lines = printed(by_name(lesson)["blind-pairs"]).splitlines()[1:]
    apart, alike = ([float(word) for word in line.split() if word[0].isdigit()] for line in lines)
    assert abs(apart[0] - alike[0]) < 0.05 and apart[1] - alike[1] > 0.5 and apart[2] - alike[2] > 1


def test_a_volume_has_no_sign_and_copies_have_none(measured):
    turned = measured["turned"]
    for title in ("x and y differ a little", "y is a copy of x"):
        for name in ("Muscle", "pairwise"):
            losses = turned[f"{title}: {name}"]
            assert losses == sorted(losses) and losses[-1] > losses[0] + 10
    seen, blind = (
        turned[f"{title}: Gramian"] for title in ("x and y differ a little", "y is a copy of x")
    )
    assert seen[-1] == pytest.approx(seen[0], abs=1e-3) and max(seen) > seen[0] + 2
    assert blind == pytest.approx([log(16)] * len(blind), abs=1e-3)
    with open(ROOT / "fedmuscle_lib/report/paper_tables/table7_delta.csv") as file:
        deltas = {
            (row["public"], row["algorithm"]): float(row["delta_paper"])
            for row in csv.DictReader(file)
        }
    publics = {public for public, _ in deltas}
    assert all(deltas[public, "gramian"] > deltas[public, "pairwise"] for public in publics)


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
