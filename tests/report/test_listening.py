"""Who listens to whom, from what a run measured."""

from dataclasses import replace

import pandas as pd
import pytest
from histories import history
from scipy.stats import ttest_1samp

from fedmuscle_lib import plots, report
from fedmuscle_lib.fedmuscle import ablations
from fedmuscle_lib.fedmuscle.ablations import Point

LEVELS = {"local": 40.0, "directed": 40.1}


def directed(seed=0, gains=(), **measured):
    """A run in which user 1 predicts everybody and everybody listens to it, but for what is
    ``measured`` otherwise.
    """
    run = history("directed", [50.0] * 6, seed=seed)
    of = {}
    for n in range(1, 7):
        of[n, "keeps a copy"] = float(n == 1)
        for m in {*range(1, 7)} - {n}:
            of[n, f"R2 from {m}"] = 0.9 if m == 1 else 0.1 * m
            of[n, f"listens to {m}"] = float(m == 1)
    of |= {(n, f"gain in rehearsal {k}"): gain for n, own in gains for k, gain in enumerate(own)}
    rows = [
        {"round": 1, "user": n, "measure": measure, "value": value}
        for (n, measure), value in of.items()
    ]
    return replace(run, measures=pd.DataFrame(rows))


def test_a_pair_has_both_directions():
    pairs = report.listening([directed(), history("local", [40.0] * 6)])
    assert len(pairs) == 30 and set(pairs.algorithm) == {"directed"}
    (pair,) = pairs[(pairs.user == 2) & (pairs.peer == 1)].itertuples()
    assert (pair.r2, pair.r2_back, pair.listens) == (0.9, 0.2, True)
    assert not pairs[pairs.peer != 1].listens.any()


def test_a_user_decides_in_every_run_of_its_own():
    runs = [
        directed(),
        directed(1, gains=[(2, [-3.0, -1.0])]),
        *report.as_arm([directed()], "never a copy"),
    ]
    rows = report.decisions(runs).set_index(["algorithm", "seed", "user"])
    assert (
        len(rows) == 18
        and rows.loc[("directed", 0, 1)].keeps_a_copy
        and not rows.loc[("directed, never a copy", 0, 2)].keeps_a_copy
    )
    assert (
        rows.loc[("directed", 0, 1)].listens_to == ""
        and rows.loc[("directed", 0, 3)].listens_to == "1"
    )
    assert rows.gain_in_rehearsal.dropna().to_dict() == {("directed", 1, 2): -2.0}
    mine = rows.loc[("directed", 1, 2)]
    assert rows.index[rows.vetoes].tolist() == [mine.name], "who loses in the mean over rehearsals"
    assert (mine.ci_low + mine.ci_high) / 2 == pytest.approx(
        -2.0
    ) and mine.ci_high - mine.ci_low == pytest.approx(2 * 12.706, abs=0.01)


def test_a_runs_decisions_are_told_in_words():
    told = report.decisions_in_words(
        report.decisions([directed(1, gains=[(2, [-3.0, -1.0])])])
    ).splitlines()
    assert told[:2] == [
        "user 1 listens to nobody and keeps a copy of itself",
        "user 2 listens to 1 and keeps no copy of itself; it vetoes its alignment",
    ]
    assert (
        len(told) == 6
        and report.decisions_in_words(report.decisions([history("local", [40.0] * 6)])) == ""
    )


def test_nobody_measured_anything():
    assert (
        report.listening([history("local", [40.0] * 6)]).empty
        and report.decisions([history("local", [40.0] * 6)]).empty
    )


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


def test_the_figure_has_an_arrow_for_each_who_listens_and_who_knows_more_stands_higher():
    runs = [directed(), directed(1)]
    (ax,) = plots.listening(report.listening(runs), report.decisions(runs)).axes
    arrows = [text for text in ax.texts if text.arrow_patch is not None]
    assert len(arrows) == 5
    heights = {int(text.get_text()): text.xy[1] for text in ax.texts if text.get_text().isdigit()}
    assert max(heights, key=heights.__getitem__) == 1 and heights[6] > heights[2]


def test_the_figure_shows_how_much_a_checkpoint_knows_where_this_is_known():
    accuracy = {1: 10.0, 2: 50.0, **dict.fromkeys(range(3, 7), 30.0)}
    (ax,) = plots.listening(
        report.listening([directed()]), report.decisions([directed()]), quality=accuracy
    ).axes
    assert {
        int(text.get_text()): text.xy[1] for text in ax.texts if text.get_text().isdigit()
    } == accuracy
    assert "one-shot" in ax.get_ylabel()


def test_the_order_at_another_point_is_compared_pair_by_pair():
    other = directed()
    other.measures.loc[other.measures.measure == "listens to 2", "value"] = 1.0
    rows = report.beside_first(
        [Point({"on": "first"}, (directed(),)), Point({"on": "other"}, (other,))]
    )
    assert rows.drop(columns="rho").to_numpy().tolist() == [
        ["first", 0, 5, 5, 0],
        ["other", 0, 10, 5, 5],
    ]
    assert rows.rho.tolist() == pytest.approx([1.0, 1.0])


def test_the_order_is_measured_by_runs_of_one_round(monkeypatch):
    seen = []
    monkeypatch.setattr(
        ablations,
        "run_all",
        lambda settings: [directed() for s in settings if seen.append(s) is None],
    )
    found = report.run_orders({"profile": "mini", "rounds": 9}, [0], "voc")
    assert [point.varied["measured_on"] for point in found] == list(ablations.ORDERS)
    assert {(s.rounds, s.algorithm, s.options["directed.own"]) for s in seen} == {
        (1, "directed", "always")
    }
    assert [s.public for s in seen][:3] == ["voc", "coco", "cifar100"] and seen[-1].proj_dim == 32


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


def test_a_user_that_keeps_its_copy_would_train_its_head_alone():
    """Only user 1 keeps its copy on the first seed.

    The second has no run with a frozen backbone.
    """
    runs = [
        history("local", [40.0] * 6),
        history("head_only", [60.0] * 6),
        directed(),
        directed(1),
        history("local", [40.0] * 6, seed=1),
    ]
    (found,) = report.without_alignment(runs)
    assert (found.arm, found.settings.seed) == ("head_only, decided", 0)
    assert found.final().set_index("user").value.to_dict() == {
        1: 60.0,
        **dict.fromkeys(range(2, 7), 40.0),
    }
    rows = report.delta_by_pair([*runs, found], [("directed", "head_only, decided")])
    assert rows.difference.tolist() == pytest.approx([100 * (50 - (60 + 5 * 40) / 6) / 40])


def test_a_pair_of_which_one_is_missing_is_not_compared():
    assert report.delta_by_pair([history("local", [40.0] * 6)], [("directed", "self")]).empty
