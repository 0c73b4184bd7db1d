"""Table 3 from histories: the paper's cells, Delta, and moments by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from fedmuscle_lib.creamfl import report
from fedmuscle_lib.creamfl.retrieval import FOLD, WHOLE
from fedmuscle_lib.creamfl.settings import Settings
from fedmuscle_lib.report import frame
from fedmuscle_lib.runs import History


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
    return History(
        Settings(algorithm=algorithm, seed=seed),
        metrics,
        *(pd.DataFrame() for _ in range(3)),
        {"address": "01", "versions": {}, "finished": "now"},
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
    rows = report.recalls(runs)
    last = frame.delta(frame.gains(frame.last(rows)), ["public", "algorithm"])
    found = frame.over_seeds(last, ["public", "algorithm"], "delta").set_index("algorithm")
    assert found.loc["creamfl_muscle", "mean"].tolist() == pytest.approx([150, 150])
    assert found.loc["local", "mean"].tolist() == [0, 0]
    theirs = report.printed()[1].set_index(["public", "algorithm"]).paper_delta
    assert theirs[WHOLE, "creamfl_muscle"] == 1.94 and theirs[FOLD, "creamfl_muscle"] == 1.17


def test_the_table_is_laid_out_beside_the_papers_cells_and_chance(runs):
    ends, (cells, deltas) = frame.last(report.recalls(runs)), report.printed()
    by = [*report.CELL, "algorithm", "chance"]
    table = frame.over_seeds(ends, by, "value").merge(cells, how="left")
    by_seed = frame.delta(frame.gains(ends), ["public", "algorithm"])
    delta = frame.over_seeds(by_seed, ["public", "algorithm"], "delta").merge(deltas, how="left")
    wide = report.side_by_side(table, delta.rename(columns={"mean": "delta"}))
    assert wide.index.tolist() == ["Server alone", "CreamFL + Muscle loss", "chance"]
    assert wide.columns[0] == "fold i2t R@1"
    assert wide.loc["CreamFL + Muscle loss", "whole i2t R@1"] == "5.0 ± 1.0 | 25.50"
    assert wide.loc["chance", "whole t2i R@10"] == "1.0"
    differences = frame.paired(ends, [("creamfl_muscle", "local")], ["public", "user"], "value")
    assert list(report.laid_out(differences)) == ["i2t R@1", "i2t R@10", "t2i R@1", "t2i R@10"]


def test_departures_name_what_both_leave_to_us(runs):
    assert "after the last round" in report.note(runs)
    departures = report.departures(runs).set_index("setting")
    assert {"division of pairs", "networks"} <= set(departures.index)
    assert departures.ours["initial weights"] == "those of checkpoints, adapted by LoRA"
