"""Who listens to whom, from what a run measured."""

from dataclasses import replace

import pandas as pd
import pytest
from histories import history
from scipy.stats import ttest_1samp

from fedmuscle_lib import report

LEVELS = {"local": 40.0, "directed": 40.1}


def directed(seed=0):
    """A run in which user 1 predicts everybody and everybody listens to it."""
    run = history("directed", [50.0] * 6, seed=seed)
    of = {}
    for n in range(1, 7):
        of[n, "keeps a copy"] = float(n == 1)
        for m in {*range(1, 7)} - {n}:
            of[n, f"R2 from {m}"] = 0.9 if m == 1 else 0.1 * m
            of[n, f"listens to {m}"] = float(m == 1)
    rows = [
        {"round": 1, "user": n, "measure": measure, "value": value}
        for (n, measure), value in of.items()
    ]
    return replace(run, measures=pd.DataFrame(rows))


def test_a_user_decides_in_every_run_of_its_own():
    runs = [directed(), directed(1), *report.as_arm([directed()], "never a copy")]
    rows = report.decisions(runs).set_index(["algorithm", "seed", "user"])
    assert len(rows) == 18
    assert rows.loc[("directed", 0, 1)].keeps_a_copy
    assert not rows.loc[("directed, never a copy", 0, 2)].keeps_a_copy
    assert rows.loc[("directed", 0, 1)].listens_to == ""
    assert rows.loc[("directed", 1, 3)].listens_to == "1"


def test_a_runs_decisions_are_told_in_words():
    told = report.decisions_in_words(report.decisions([directed()])).splitlines()
    assert told[:2] == [
        "user 1 listens to nobody and keeps a copy of itself",
        "user 2 listens to 1 and keeps no copy of itself",
    ]
    assert len(told) == 6
    nobody = report.decisions([history("local", [40.0] * 6)])
    assert nobody.empty and report.decisions_in_words(nobody) == ""


def test_users_are_told_apart_as_often_as_chance_allows_for_all_of_them_together():
    alone = [history("local", [40.0, 40.0], seed=seed, users=(1, 2), others=1) for seed in range(4)]
    gains = [[5.0 + jitter, 0.0] for jitter in (-0.1, 0.1, -0.1, 0.1)]
    ours = [
        history("directed", [40.0 + gain for gain in own], seed=seed, users=(1, 2), others=1)
        for seed, own in enumerate(gains)
    ]
    rows = report.user_by_user([*alone, *ours], [("directed", "local"), ("self", "local")])
    alike = ttest_1samp([own[0] for own in gains], 0).pvalue
    assert rows.p.tolist() == pytest.approx([2 * alike, 1.0]), "the smaller of two is doubled"
    (cells,) = report.users_beside(rows).to_numpy()
    assert cells[0].endswith(" *") and cells[1] == "+0.0 [+0.0, +0.0]"


def test_differences_that_do_not_vary_have_no_test():
    runs = [
        history(name, [value, 40.0], seed=seed, users=(1, 2), others=1)
        for name, value in LEVELS.items()
        for seed in range(3)
    ]
    rows = report.user_by_user(runs, [("directed", "local")])
    assert (
        rows.difference.tolist() == pytest.approx([0.1, 0.0])
        and rows.p.isna().tolist() == [True, False]
        and rows.p[1] == 1
    )


def test_delta_of_pairs_is_tested_as_users_are():
    runs = [history("local", [40.0] * 6, seed=seed) for seed in range(3)]
    runs += [history("directed", [44.0 + seed] * 6, seed=seed) for seed in range(3)]
    runs += [history("self", [42.0] * 6, seed=seed) for seed in range(3)]
    rows = report.delta_by_pair(runs, [("directed", "self"), ("directed", "anchored")])
    assert rows.difference.tolist() == pytest.approx([100 * 3 / 40]) and (rows.a[0], rows.b[0]) == (
        "directed",
        "self",
    )
    assert rows.p.tolist() == pytest.approx([ttest_1samp([2.0, 3.0, 4.0], 0).pvalue])


def test_a_pair_of_which_one_is_missing_is_not_compared():
    assert report.delta_by_pair([history("local", [40.0] * 6)], [("directed", "self")]).empty
