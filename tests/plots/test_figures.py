"""Figures: a look of its own for every algorithm, and everything that they are given."""

import math

import pandas as pd
import pytest
from draw_worlds import worlds
from drawn import curves_of, intervals_of, points_of
from histories import as_arm, as_runs, history

from fedmuscle_lib import plots, report
from fedmuscle_lib.core import style
from fedmuscle_lib.fedmuscle import algorithms
from fedmuscle_lib.report.frame import delta, paired


def test_every_algorithm_has_a_colour_and_a_marker_of_its_own():
    assert set(plots.STYLES) >= set(algorithms.names())
    assert (
        len({colour for colour, _ in plots.STYLES.values()})
        == len({marker for _, marker in plots.STYLES.values()})
        == len(plots.STYLES)
    )


def test_an_arm_has_the_same_colour_in_every_figure():
    arms = ["local, tuned", "fedmuscle, tuned", "anchored, tuned", "fedrcl, authors' values"]
    together = plots.styles(["fedmuscle, M = 5", *arms, "fedmuscle, M = 3"])
    assert len({colour for colour, _ in together.values()}) == 6
    assert {arm: plots.styles([arm])[arm] for arm in arms} == {arm: together[arm] for arm in arms}


def test_a_forest_names_arms_differences_or_points_and_draws_the_papers_hollow():
    rows = report.ends(report.tidy(as_runs("table7")))
    deltas = report.deltas(rows, report.printed(as_runs("table7")[0].settings, ["table7"]))
    figure = plots.forest(deltas)
    assert [ax.get_title() for ax in figure.axes] == ["Pascal VOC", "COCO", "CIFAR-100"]
    assert [len(points_of(ax, hollow=True)) for ax in figure.axes] == [4, 4, 4]
    values = delta(rows, ["public", "algorithm"])
    shown = paired(values, [("fedmuscle", "local"), ("fedmuscle", "gramian")], ["public"], "delta")
    (ax, *_) = plots.forest(shown).axes
    lines = [text.get_text() for text in ax.get_yticklabels()]
    assert lines == ["FedMuscle − Local training", "FedMuscle − Gramian loss"]
    assert points_of(ax)[0][0] == pytest.approx(26.7, abs=0.01)
    (ax, *_) = plots.forest(deltas.assign(others=3), lines=["others"]).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["others = 3"]


def test_a_curve_has_a_line_an_arm_in_each_panel():
    rows = pd.DataFrame({"round": [1, 2, 3], "mean": [1.0, 2, 4], "ci_low": 0.0, "ci_high": 5.0})
    each = [rows.assign(algorithm=arm, panel=panel) for arm, panel in
            (("fedmuscle", "loss"), ("fedmuscle", "Δ"), ("self", "Δ"))]  # fmt: skip
    figure = plots.curve(pd.concat(each, ignore_index=True))
    assert [ax.get_title() for ax in figure.axes] == ["loss", "Δ"]
    drawn = curves_of(figure)
    assert drawn["Δ", "Self (no communication)"] == [1, 2, 4]


def forest_rows():
    """Two panels of one unit and one of another; the first line has two arms."""
    ends = {"ci_low": [0.5, 1.5, -40, math.nan, 1], "ci_high": [1.5, 2.5, 60, math.nan, 3]}
    lines = {
        "panel": list("aabbc"),
        "unit": ["%"] * 4 + ["points"],
        "line": ["one", "one", "one", "two", "two"],
    }
    return pd.DataFrame(
        {
            **lines,
            "arm": ["local", "fedmuscle", "local", "local", "local"],
            "value": [1, 2, 10, 4, 2],
            **ends,
        }
    )


def test_a_forest_has_the_intervals_of_its_rows_and_one_scale_for_a_unit():
    rows = forest_rows()
    figure = style.housed(style.forest)(rows, plots.styles(rows.arm))
    first, second, third = figure.axes
    assert [intervals_of(ax) for ax in figure.axes] == [
        [(0.5, 1.5), (1.5, 2.5)],
        [(-40, 60)],
        [(1, 3)],
    ]
    assert (
        first.get_xlim() == second.get_xlim() != third.get_xlim()
        and first.get_xlim()[0] < -40
        and first.get_xlim()[1] > 60
    )
    (_, local), (_, ours) = points_of(first)
    assert local == -ours != 0, "the arms of a line stand apart"
    assert points_of(second) == [(10, 0), (4, 1)]
    assert [ax.get_xlabel() for ax in figure.axes] == ["%", "%", "points"] and not figure.legends


def test_users_have_a_panel_each_and_algorithms_a_line():
    rows = [
        {"algorithm": name, "round": r, "mean": 10 * r}
        for name in ("local", "fedmuscle")
        for r in (1, 2)
    ]
    curves = pd.concat(pd.DataFrame(rows).assign(panel=f"user {user}") for user in (1, 2))
    figure = plots.curve(curves, wrap=3)
    assert [ax.get_title() for ax in figure.axes] == ["user 1", "user 2"]
    names = [name for title, name in curves_of(figure) if title == "user 1"]
    assert names == ["Local training", "FedMuscle"]


def test_every_world_has_a_line_in_the_figure_of_worlds_and_the_paper_too():
    means = {"local": 40, "fedmuscle": 44, "self": 42, "shuffled": 20}
    runs = [
        history(name, [mean] * 6, seed=seed) for seed in range(3) for name, mean in means.items()
    ]
    runs += as_arm([history("local", [50] * 6, seed=seed) for seed in range(3)], "tuned")
    ends = report.ends(report.tidy(runs))
    deltas = report.deltas(ends, report.printed(runs[0].settings, ["table7"]))
    (ax,) = worlds(
        pd.concat([deltas.assign(world=name) for name in ("real, CNNs", "elsewhere")])
    ).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["real,\nCNNs", "elsewhere"]
    papers = deltas.set_index("algorithm").paper_delta["fedmuscle"]
    assert sorted(x for x, _ in points_of(ax)) == pytest.approx([5, 5, 10, 10, 25, 25])
    assert [papers, papers] in [list(line.get_xdata()) for line in ax.lines]


def test_an_arm_that_would_squeeze_the_others_is_cut_off_with_an_arrow_and_its_number():
    rows = forest_rows().assign(
        panel="a",
        unit="%",
        line=list("abcde"),
        arm=["local", "fedmuscle", "self", "head_only", "shuffled"],
    )
    rows = rows.assign(
        value=[1, 2, 3, 4, -80], ci_low=[0, 1, 2, 3, -100], ci_high=[2, 3, 4, 5, -60]
    )
    figure = style.housed(style.forest)(rows, plots.styles(rows.arm), clip=True)
    (ax,) = figure.axes
    assert ax.get_xlim()[0] > -10 and [text.get_text() for text in ax.texts] == ["◂ -80"]
    whole = style.housed(style.forest)(rows, plots.styles(rows.arm)).axes[0]
    assert whole.get_xlim()[0] < -100 and not whole.texts


def test_what_an_ablation_does_not_move_is_told_once_and_never_lost():
    """A grey line within the others' limits, which all panels share, a number beyond them; where
    nothing moves, all are drawn.
    """
    steady = {"self": 2.0, "local, tuned": 40.0, "head_only": -30.0}
    rows = [
        {"panel": panel, "x": x, "algorithm": arm, "delta": value}
        for panel, moves in (("a", 1), ("b", 1), ("c", 0))
        for x in (1, 2, 3)
        for arm, value in {"fedmuscle": moves * x, **steady}.items()
    ]
    rows = pd.DataFrame(rows).assign(ci_low=math.nan, ci_high=math.nan, paper_delta=math.nan)
    shown = rows[rows.panel != "c"]
    figure = plots.ablation(shown, "x", "x", wrap=2)
    texts = [[text.get_text() for text in ax.texts] for ax in figure.axes]
    told = ["Self (no communication)", "Local training, tuned +40 ▴", "Head only -30 ▾"]
    assert texts == [told, told]
    assert len({ax.get_ylim() for ax in figure.axes}) == 1
    (alone,) = plots.ablation(rows[rows.panel == "c"], "x", "x").axes
    low, high = alone.get_ylim()
    assert low < -30 and high > 40 and not [one for one in alone.texts if one.get_text()]
