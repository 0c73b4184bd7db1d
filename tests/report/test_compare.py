"""One arm against another, and the order of the algorithms against the paper's."""

import math

import pandas as pd
import pytest
from histories import LARGE, history, history2, spread_runs, with_deltas

from fedmuscle_lib import report
from fedmuscle_lib.report import compare


def test_every_delta_minus_that_of_a_control():
    runs = spread_runs() + [
        history("fedmuscle", [44] * 6, public="coco"),
        history("self", [40] * 6, public="coco"),
    ]
    rows = report.delta_over(runs, "self")
    assert rows.algorithm.drop_duplicates().tolist() == ["local", "fedmuscle"]
    pd.testing.assert_frame_equal(
        rows[rows.algorithm == "fedmuscle"].drop(columns="algorithm").reset_index(drop=True),
        compare.delta_difference(runs, "fedmuscle", "self"),
    )
    shown = report.by_public(rows)
    assert shown.index.tolist() == ["Local training", "FedMuscle"] and shown.columns.tolist() == [
        "voc",
        "coco",
    ]
    assert (
        shown.loc["FedMuscle", "coco"] == "+10.00"
        and shown.loc["Local training", "voc"] == "+0.00 [+0.00, +0.00]"
    )


def test_delta_on_a_public_set_is_compared_with_that_on_another():
    runs = [history("local", [40] * 6, seed=seed) for seed in (0, 1)]
    runs += [
        history("fedmuscle", [v + seed] * 6, seed=seed, public=name)
        for seed in (0, 1)
        for name, v in (("voc", 44), ("noise", 42))
    ]
    (row,) = report.public_difference(runs, "voc").itertuples()
    assert (row.algorithm, row.public, row.over, row.n_seeds) == ("fedmuscle", "noise", "voc", 2)
    assert row.difference == pytest.approx(100 * (42 - 44) / 40)


def test_fedmuscles_delta_stands_against_every_other_over_all_users_and_by_task():
    """Users 5 and 6 of setup1, whose local metric is 50, have IC10; FedDF stands against its own
    control as well.
    """
    values = {
        "local": [50] * 6,
        "fedmuscle": [51] * 6,
        "feddf": [50] * 4 + [53] * 2,
        "own_teacher": [49] * 6,
    }
    runs = [history(name, cells, seed=seed) for name, cells in values.items() for seed in (0, 1, 2)]
    runs += [history("self", [50 + seed] * 6, seed=seed) for seed in (1, 3)] + [
        history("local", [50] * 6, seed=3)
    ]
    runs += report.as_arm([history("local", [60] * 6)], "tuned")
    rows = compare.paired_deltas(runs).set_index(["algorithm", "over", "task"])
    assert set(rows.index.droplevel("task")) == {
        ("fedmuscle", name) for name in ("feddf", "own_teacher", "self")
    } | {("feddf", "own_teacher")}
    assert set(rows.index.get_level_values("task")) == {
        "all",
        *(user.task for user in runs[0].settings.members),
    }
    differences = rows.difference
    assert differences["fedmuscle", "own_teacher", "all"] == pytest.approx(4)
    assert differences["fedmuscle", "feddf", "IC10"] == pytest.approx(-4) and differences[
        "fedmuscle", "feddf", "all"
    ] == pytest.approx(0)
    assert differences["feddf", "own_teacher", "all"] == pytest.approx(4)
    assert rows.n_seeds["fedmuscle", "self", "all"] == 1 and differences[
        "fedmuscle", "self", "all"
    ] == pytest.approx(0)  # seed 1 alone
    everyone = rows.xs("all", level="task").loc[[("fedmuscle", "feddf")]].reset_index()
    pd.testing.assert_series_equal(
        everyone.ci_low, compare.delta_difference(runs, "fedmuscle", "feddf").ci_low
    )


def test_gains_are_compared_beside_the_papers():
    """Ours over the same local training, the paper's each over the local training of its own
    table.
    """
    values = {"local": [40] * 10, "fedmuscle": [44] * 10}
    runs = [history2(name, cells, seed=seed) for name, cells in values.items() for seed in (0, 1)]
    runs += report.as_arm(
        [history2("fedmuscle", [46 + 2 * seed] * 10, seed=seed) for seed in (0, 1)], LARGE
    )
    rows = report.gain_difference(
        runs, f"fedmuscle, {LARGE}", "fedmuscle", paper=("table2", "table9")
    ).set_index("user")
    assert rows.difference.tolist() == pytest.approx([7.5] * 10) and rows[
        "std"
    ].tolist() == pytest.approx([2.5] * 10)
    assert rows.paper_difference[10] == pytest.approx(100 * (55.8 / 54.9 - 54.1 / 56.03))
    assert (
        report.gain_difference(runs, f"fedmuscle, {LARGE}", "fedmuscle")
        .paper_difference.isna()
        .all()
    )


def test_the_papers_own_order_agrees_with_itself(paper_runs):
    ranks = report.rank_agreement(paper_runs)
    assert ranks.public.tolist() == ["voc", "coco", "cifar100"]
    assert ranks.n_algorithms.eq(4).all()
    assert ranks.rho.tolist() == ranks.tau.tolist() == pytest.approx([1] * 3)
    assert (
        ranks.rho_p.tolist() == ranks.tau_p.tolist() == pytest.approx([2 / math.factorial(4)] * 3)
    )  # the two extremes of 24 orders
    assert ranks.n_seeds.eq(1).all() and ranks[["rho_lowest", "rho_highest"]].isna().all(axis=None)


def test_all_nine_algorithms_are_compared(table1_runs):
    ranks = report.rank_agreement(
        [run for run in table1_runs if run.settings.public == "voc"]
    ).iloc[0]
    # by its cells FedHeNN is sixth, not eighth, so that two others are a place lower: rho is 1 - 6
    # (2^2 + 1 + 1) / (9^3 - 9)
    assert (ranks.n_algorithms, ranks.rho, ranks.tau) == pytest.approx((9, 0.95, 1 - 2 * 2 / 36))
    assert ranks.rho_p < 1e-3


def test_an_opposite_order_and_one_with_a_tie():
    opposite = with_deltas(
        {"fedmuscle": -3, "gramian": -2, "pairwise": -1, "self": 99}
    )  # which the paper does not have
    ranks = report.rank_agreement(opposite).iloc[0]
    assert (ranks.n_algorithms, ranks.rho, ranks.tau) == pytest.approx((4, -1, -1))
    tied = report.rank_agreement(with_deltas({"fedmuscle": 3, "gramian": 3, "pairwise": 1})).iloc[0]
    # ranks 3.5, 3.5, 2, 1 against 4, 3, 2, 1; five of the six pairs are in order and one is tied
    assert (tied.rho, tied.tau) == pytest.approx((4.5 / math.sqrt(4.5 * 5), 5 / math.sqrt(5 * 6)))
