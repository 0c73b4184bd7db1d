"""Table 3 from histories: the paper's cells, Delta, moments, and paired differences by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from fedmuscle_lib.creamfl import plots, report
from fedmuscle_lib.creamfl.retrieval import FOLD, WHOLE
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.runs import History

KINDS = ("server", "images", "texts", "pairs")


def history(algorithm: str, levels: list[float], seed: int = 0) -> History:
    """A run whose recalls in each round are a level, times 1 (i2t) or 2 (t2i), times 1 (whole) or 3
    (folds), plus k.
    """
    cells = [
        (r, g, d, k)
        for r in range(1, len(levels) + 1)
        for g in (WHOLE, FOLD)
        for d in ("i2t", "t2i")
        for k in (1, 5, 10)
    ]
    metrics = pd.DataFrame(cells, columns=["round", "gallery", "direction", "k"])
    scale = metrics.direction.map({"i2t": 1, "t2i": 2}) * metrics.gallery.map({WHOLE: 1, FOLD: 3})
    metrics["value"] = [
        levels[r - 1] * s * (1 + k)
        for r, s, k in zip(metrics["round"], scale, metrics.k, strict=True)
    ]
    metrics["chance"] = 0.1 * metrics.k
    costs = pd.DataFrame(
        {
            "round": 1,
            "party": KINDS,
            "kind": KINDS,
            "uplink_bytes": [0, 1e6, 1e6, 2e6],
            "downlink_bytes": 2e6,
            "flops": 1e9,
        }
    )
    told = {
        "samples": {"images": 40},
        "trained": dict.fromkeys(KINDS, 7),
        "seconds": 3.0,
        "peak_memory_bytes": 1,
    }
    told |= {"address": "01", "versions": {}, "finished": "now"}
    return History(
        Settings(algorithm=algorithm, seed=seed),
        metrics,
        costs,
        pd.DataFrame(),
        pd.DataFrame(),
        told,
    )


@pytest.fixture
def runs():
    """The Muscle loss has twice the recalls of the server alone on seed 0 and three times on seed
    1; its second of three rounds is best.
    """
    alone = [history("local", [1.0, 1.0, 1.0], seed) for seed in (0, 1)]
    return [
        *alone,
        history("creamfl_muscle", [1.0, 4.0, 2.0], 0),
        history("creamfl_muscle", [1.0, 5.0, 3.0], 1),
    ]


def test_delta_is_the_mean_of_six_relative_gains_over_server_alone(runs):
    found = report.delta(runs).set_index(["public", "algorithm"])
    assert found.delta[WHOLE, "creamfl_muscle"] == pytest.approx(150) and found.delta_std[
        FOLD, "creamfl_muscle"
    ] == pytest.approx(50)
    assert (
        found.paper_delta[WHOLE, "creamfl_muscle"] == 1.94
        and found.paper_delta[FOLD, "creamfl_muscle"] == 1.17
    )
    assert found.delta[WHOLE, "local"] == 0
    best = report.delta(runs, report.BEST).set_index(["public", "algorithm"])
    assert best.delta[WHOLE, "creamfl_muscle"] == pytest.approx(350)


def test_delta_over_a_recall_of_0_is_undefined(runs):
    nothing = history("local", [0.0], 2)
    found = report.delta([*runs, nothing, history("creamfl_muscle", [1.0], 2)])
    assert found.delta[found.algorithm == "creamfl_muscle"].isna().all()


def test_the_table_has_the_papers_cells_and_chance(runs):
    table = report.table(runs)
    assert (
        list(table.columns[:6]) == ["public", "user", "model", "task", "metric", "algorithm"]
        and len(table) == 2 * 12
    )
    row = table[
        (table.public == FOLD) & (table.user == "t2i_R@5") & (table.algorithm == "creamfl_muscle")
    ].iloc[0]
    assert (row["mean"], row.chance, row.paper_mean) == (pytest.approx(2.5 * 6 * 6), 0.5, 74.39)
    wide = report.side_by_side(table, report.delta(runs))
    assert (
        wide.index.tolist() == ["Server alone", "CreamFL + Muscle loss", "chance"]
        and wide.columns[0] == "fold i2t R@1"
    )
    assert (
        wide.loc["CreamFL + Muscle loss", "whole i2t R@1"] == "5.0 ± 1.0 | 25.50"
        and wide.loc["chance", "whole t2i R@10"] == "1.0"
    )


def test_differences_are_paired_over_seeds(runs):
    found = report.differences(runs)
    assert set(zip(found.a, found.b, strict=True)) == {("creamfl_muscle", "local")}
    row = found[(found.public == WHOLE) & (found.user == "i2t_R@1")].iloc[0]
    assert (row.difference, row.n_seeds) == (pytest.approx(3), 2)
    best = report.differences(runs, report.BEST)
    assert best[
        (best.public == WHOLE) & (best.user == "i2t_R@1")
    ].difference.item() == pytest.approx(7)
    assert list(report.laid_out(found)) == ["i2t R@1", "i2t R@10", "t2i R@1", "t2i R@10", "Δ"]


def test_costs_are_of_a_party_and_the_figure_has_a_panel_a_direction(runs):
    costs = report.costs(runs).set_index(["algorithm", "kind"])
    assert costs.samples["local", "images"] == 40 and costs.samples.isna()["local", "server"]
    assert (
        costs.uplink_mb["local", "pairs"],
        costs.gflop["local", "server"],
        costs.trained["local", "texts"],
    ) == (2, 1, 7)
    figure = plots.recall(report.curve(runs))
    assert [ax.get_title() for ax in figure.axes] == ["image to text", "text to image"]


def test_what_is_chosen_on_the_test_set_is_called_so(runs):
    assert "chosen on the test set" in report.note(
        runs, report.BEST
    ) and "after the last round" in report.note(runs)
    departures = report.departures(runs).set_index("setting")
    assert {"division of pairs", "networks"} <= set(departures.index)
    assert departures.ours["initial weights"] == "those of checkpoints, adapted by LoRA"
