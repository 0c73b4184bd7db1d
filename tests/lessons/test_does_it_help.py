"""The lesson on Delta, seeds and controls: its sentences are the shipped reference's, and its
answers follow from first principles.
"""

import ast

import numpy as np
import pandas as pd
import pytest
from lesson import LESSONS, ROOT, assert_answers, assert_shows_what_it_kept, printed
from scipy.stats import t as student

LESSON = LESSONS / "6_does_it_help.ipynb"
MEASURED = "print(worlds)"
CNNS = ROOT / "figures/small/controls"


# --- sentences


def test_the_lesson_executes_and_shows_what_it_kept_of_the_shipped_reference(lesson):
    assert_shows_what_it_kept(LESSON, lesson)


# --- the answers


def quantile(n):
    return student.ppf(0.975, n - 1)


def delta(*users):
    """Mean improvement in per cent of users (before, after, +1 or -1 where lower is better)."""
    return np.mean([100 * sign * (after / before - 1) for before, after, sign in users])


def false_alarms(users, samples=400_000):
    """Share in per cent of worlds without any effect in which one of the users' 95 % intervals
    misses 0, by simulation.
    """
    draws = np.random.default_rng(0).normal(size=(samples, users, 3))
    misses = abs(draws.mean(-1)) > quantile(3) * draws.std(-1, ddof=1) / np.sqrt(3)
    return 100 * misses.any(axis=1).mean()


def test_the_answers_follow_from_first_principles(lesson, capsys):
    cells = pd.read_csv(CNNS / "table.csv").set_index(["user", "algorithm"]).paper_mean
    papers = delta(*((cells[user, "local"], cells[user, "fedmuscle"], 1) for user in range(1, 7)))
    half = quantile(5) / np.sqrt(5)
    worlds = ast.literal_eval(printed(lesson.cells[-1]))  # FedMuscle, self, frozen peers, shuffled
    known = {
        "delta of three unlike users": delta((20, 24, 1), (50, 45, 1), (40, 30, -1)),
        "delta of the paper's cells": papers,
        "improvement over the tuned baseline": delta((50, 48, 1)),
        "a false alarm among six users": 100 * (1 - 0.95**6),
        "standard deviation behind an interval": 1.96 / half,
        "seeds for half the width": min(
            n for n in range(2, 100) if quantile(n) / np.sqrt(n) <= half / 2
        ),
        "control that refutes learning from others": "self",
        "federation that needs live peers": (
            max(worlds, key=lambda name: worlds[name][0] - max(worlds[name][1:])).lower()
        ),
    }
    assert_answers(LESSON, known, capsys, near=0.003)
    assert known["a false alarm among six users"] == pytest.approx(false_alarms(6), abs=0.2)
    assert papers == pytest.approx(
        pd.read_csv(CNNS / "delta.csv").set_index("algorithm").paper_delta["fedmuscle"], abs=0.005
    )
