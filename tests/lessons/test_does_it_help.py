"""The lesson on Delta, seeds and controls: its sentences are the shipped reference's, and its
answers follow from first principles.
"""

import ast
import re

import numpy as np
import pandas as pd
import pytest
from lesson import LESSONS, ROOT, assert_answers, assert_shows_what_it_kept, by_name, printed
from scipy.stats import t as student

from fedmuscle_lib.lessons import EXERCISES

LESSON = LESSONS / "6_does_it_help.ipynb"
MEASURED = "print(worlds)"
CNNS, VITS = FOLDERS = [
    ROOT / f"figures/small/{name}" for name in ("controls", "controls_setup1_vit")
]


@pytest.fixture(scope="module")
def text(kept):
    return {
        name: " ".join(cell.source.split())
        for name, cell in kept.items()
        if cell.cell_type == "markdown"
    }


def side(row):
    return int(row.ci_low > 0) - int(row.ci_high < 0)


def short(folder):
    """Side of 0 of each line of the picture, by question, arm and what it is compared with."""
    rows = pd.read_csv(folder / "in_short.csv")
    return {(row.question, row.arm, row.over): side(row) for row in rows.itertuples()}


# --- sentences


def test_the_lesson_executes_and_shows_what_it_kept_of_the_shipped_reference(lesson):
    assert_shows_what_it_kept(LESSON, lesson)


def test_whether_it_helps_is_said_as_the_reference_has_it(text):
    for folder in FOLDERS:
        lines = short(folder)
        assert (
            lines["gain", "fedmuscle", "local"] == lines["gain", "fedmuscle", "local, tuned"] == 0
        )
        gains = pd.read_csv(folder / "in_short.csv").query(
            "question == 'gain' and arm == 'fedmuscle'"
        )
        assert 3 < gains[gains.over == "local"].ci_high.item() < 4, "room for a gain of 3 %"
        assert (gains.ci_high < EXERCISES["delta of the paper's cells"].answer).all(), (
            "the paper's gain is outside that room"
        )
    assert (
        "difference from local training, tuned or not, is undecided with either kind of network"
        in text["answer"]
    )
    tuned = (
        pd.read_csv(CNNS / "in_short.csv")
        .query("arm == 'fedmuscle, tuned' and over == 'local, tuned'")
        .iloc[0]
    )
    assert (
        side(tuned) == -1
        and tuned.difference > -1
        and short(VITS)["gain", "fedmuscle, tuned", "local, tuned"] == 0
    )
    assert (
        "a little below tuned local training with CNNs, and with ViTs that is undecided"
        in text["answer"]
    )


def test_whether_it_is_the_peers_is_said_as_the_reference_has_it(text):
    for folder in FOLDERS:
        lines = short(folder)
        assert lines["peers", "fedmuscle", "frozen_peers"] == 1
        assert lines["peers", "fedmuscle", "self"] == (folder == CNNS)
        assert (
            lines["destroyed", "head_only", "local"] == -(folder == CNNS)
            and lines["destroyed", "probe", "local"] == 0
        )
        assert not any(
            value == 1 for (question, *_), value in lines.items() if question == "destroyed"
        )
    deltas = pd.read_csv(CNNS / "delta.csv").set_index("algorithm")
    assert side(deltas.loc["frozen_peers"]) == side(deltas.loc["self"]) == -1
    for sentence in (
        "above frozen peers with both kinds of network",
        "With CNNs FedMuscle is also above a user's own old copy; with ViTs that is open",
        (
            "with CNNs the users of frozen peers and those of their own copy are *below* local"
            " training"
        ),
        (
            "In no panel on the right is local training shown to destroy anything. With CNNs it"
            " adds something"
        ),
        "Against the *Logistic probe* this is open",
    ):
        assert sentence in text["answer"]


def test_other_numbers_of_the_text_are_the_files_and_the_papers(text, lesson):
    steps = {
        pd.read_csv(folder / "world.csv").query("measure == 'alignment steps'").value.item()
        for folder in FOLDERS
    }
    assert steps == {800} and "800 steps of alignment" in text["answer"]
    rounds, batches = 150, np.ceil(5000 / 32)  # Section 6.1
    assert (
        round(rounds * batches / 800, -1) == 30
        and "about thirty times as many steps" in text["answer"]
    )
    seeds = {folder: set(pd.read_csv(folder / "delta.csv").n_seeds) for folder in FOLDERS}
    assert seeds == {CNNS: {5}, VITS: {3}}
    assert (
        "mean over five seeds" in text["picture-reading"]
        and "with three seeds" in text["answer-intro"]
    )
    assert "five seeds say little" in text["paired-reading"]
    for n, quantile in {
        3: "4.30 for three",
        5: "2.78 for five",
        10**6: "1.96 for very many",
    }.items():
        assert (
            f"{student.ppf(0.975, n - 1):.2f}" == quantile[:4] and quantile in text["seeds-intro"]
        )
    narrower, of = map(
        int, re.search(r"for (\d) of (\d) users", printed(by_name(lesson)["paired"])).groups()
    )
    assert of / 2 < narrower < of and "Not for everybody" in text["paired-reading"]
    mini = pd.read_csv(ROOT / "figures/mini/controls/delta.csv")
    assert set(mini.n_seeds) == {5}, "what 'Try it' says of mini"


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


def test_the_control_that_refutes_is_the_one_without_messages():
    costs = pd.read_csv(CNNS / "costs.csv").set_index("algorithm").uplink_bytes
    silent = [name for name in ("shuffled", "frozen_peers", "self") if costs[name] == 0]
    assert silent == [EXERCISES["control that refutes learning from others"].answer]
